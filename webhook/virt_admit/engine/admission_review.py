"""AdmissionReview, the wire format: decode bytes into ``Request``, encode ``Response`` into bytes."""

from __future__ import annotations

import base64
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from virt_admit.model import json_codec, kinds
from virt_admit.model.json_patch import Patch
from virt_admit.model.kinds import Kind
from virt_admit.model.messages import cut
from virt_admit.model.objects import Object
from virt_admit.model.releases import NO_TARGET, Target
from virt_admit.model.sanitize import line, name
from virt_admit.policy.policy import Policy
from virt_admit.rule import Action, Finding, Operation, Rule

API_VERSION: Final = "admission.k8s.io/v1"

MAX_BODY: Final = 7 * 1024 * 1024
"""Bytes: two objects of 3 MiB and their envelope (kubernetes-sigs/controller-runtime http.go#maxRequestSize)."""
MAX_VALUES: Final = 250_000
"""Values in the JSON of a review: two objects of 1.5 MiB, the limit of etcd, with a value in 12 bytes, the least in
tests/data and in examples/. More of them, as in ``[[],[],[]]``, would take up to 250 MiB and 7 seconds."""
MAX_ENVELOPE: Final = 64 * 1024
"""Bytes before the object of a review whose object is not read: names, the user and the groups."""
MAX_CAUSES: Final = 20
MAX_CAUSE: Final = 1024
"""Characters of the message of one cause."""
MAX_MESSAGE: Final = 1500
"""Characters of ``status.message``, and of the audit annotation that lists the fixes."""
MAX_WARNINGS: Final = 10
MAX_WARNING: Final = 256
"""Characters; the API server truncates longer ones if all together exceed 4,096 (apiserver filters/warning.go)."""


class ReviewError(ValueError):
    """The bytes are not an AdmissionReview that can be answered; the message says why."""


class Request(NamedTuple):
    """The request to review. ``check`` and ``scan`` also make requests, without ``uid`` and ``user``."""

    operation: str
    kind: Kind | None
    """None: a kind that virt-admit does not know."""
    obj: Object | None
    old: Object | None = None
    uid: str = ""
    name: str = ""
    namespace: str = ""
    user: str = ""
    groups: frozenset[str] = frozenset()
    subresource: str = ""
    dry_run: bool = False
    target: Target = NO_TARGET
    """The releases that ``check`` and ``scan`` judge against; requests of the API server have none."""
    too_large: bool = False
    """Whether the objects were not read, because they have too many values."""

    @property
    def subject(self) -> Object | None:
        """The object under review; on DELETE it is the old object."""
        return self.old if self.operation == Operation.DELETE else self.obj


class Verdict(NamedTuple):
    """A finding with its action."""

    rule: Rule
    finding: Finding
    action: Action
    exempted: str = ""
    """The reason of the exemption that suppressed the finding; empty: none."""
    note: str = ""
    """Why an exemption annotation on the object does not count; empty: there is none."""

    @property
    def text(self) -> str:
        """One line for users: the path, the problem, and the rule."""
        return f"{self.finding.path}: {self.message} {tag(self.rule)}"

    @property
    def message(self) -> str:
        """The problem, and why an exemption does not count."""
        return f"{self.finding.message.rstrip('.')}. {self.note}" if self.note else self.finding.message


NONE_OMITTED: Final[Mapping[Action, int]] = {}


class Response(NamedTuple):
    """The result of a review: verdicts, strongest first, and the rules that could not be evaluated."""

    verdicts: tuple[Verdict, ...] = ()
    patch: tuple[Patch, ...] = ()
    fixed: tuple[Verdict, ...] = ()
    """The findings that ``patch`` removes."""
    unseen: tuple[tuple[Rule, str], ...] = ()
    errors: tuple[tuple[Rule, str], ...] = ()
    not_judged: tuple[Rule, ...] = ()
    """The rules that the time limit of the review stopped. They are in ``unseen`` too."""
    omitted: Mapping[Action, int] = NONE_OMITTED
    """How many verdicts are left out, by action, because their rule has too many of them."""
    policy: Policy | None = None
    """The policy that was applied."""
    rules_run: tuple[Rule, ...] = ()
    """The rules that judged the object: those for it that the policy does not switch off.
    One without a verdict found nothing."""

    @property
    def allowed(self) -> bool:
        return not any(verdict.action is Action.DENY for verdict in self.verdicts)

    @property
    def outcome(self) -> str:
        """One word for metrics and logs."""
        if not self.allowed:
            return "denied"
        if self.patch:
            return "fixed"
        if any(verdict.action is Action.WARN for verdict in self.verdicts):
            return "warned"
        return "exempt" if any(verdict.exempted for verdict in self.verdicts) else "allowed"


class Reply(NamedTuple):
    """An encoded response, with the request and response for metrics and logs."""

    body: bytes
    request: Request
    response: Response = Response()


def tag(rule: Rule) -> str:
    """Return the mark at the end of each message. Nothing else in kubectl's output names virt-admit."""
    return f"[virt-admit/{rule.id}]"


def decode(body: bytes) -> Request:
    """Decode an AdmissionReview.

    If it has too many values, its objects are not read.

    Raises:
        ReviewError: the body is not JSON, not an AdmissionReview v1, or has no request or no uid; or it has too many
            values and does not begin with what identifies the request, as the reviews of an API server do.
    """
    if len(body) > MAX_VALUES and sum(map(body.count, (b",", b"[", b"{"))) > MAX_VALUES:
        return _envelope(body)
    return _decode(body)


def _envelope(body: bytes) -> Request:
    """Decode what comes before the object."""
    start, _, _ = body[:MAX_ENVELOPE].partition(b'"object":')
    try:
        return _decode(start + b'"object":null}}')._replace(too_large=True)
    except ReviewError:
        raise ReviewError(f"the review has more than {MAX_VALUES:,} values; its uid must come before them") from None


def _decode(body: bytes) -> Request:
    try:
        review = json_codec.loads(body)
    except (ValueError, RecursionError) as error:
        raise ReviewError(f"the body is not JSON: {error}") from None
    if not isinstance(review, dict):
        raise ReviewError("the body is not a JSON object")
    if review.get("kind") != "AdmissionReview" or review.get("apiVersion") != API_VERSION:
        raise ReviewError(f"expected an AdmissionReview of {API_VERSION}")
    request = review.get("request")
    if not isinstance(request, dict):
        raise ReviewError("the AdmissionReview has no request")
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise ReviewError("the request has no uid")
    return _request(request, uid)


# Plain look-ups, because no path of the envelope is ever shown


def _request(request: Mapping[str, Any], uid: str) -> Request:
    namespace = _text(request, "namespace")
    user, resource = _map(request, "userInfo"), _map(request, "resource")
    kind = kinds.by_resource(".".join(filter(None, (_text(resource, "resource"), _text(resource, "group")))))
    if kind is None and not isinstance(request.get("resource"), dict):
        named = _map(request, "kind")
        kind = kinds.find(_text(named, "group"), _text(named, "kind"))
    operation = _text(request, "operation")
    groups = user.get("groups")
    data = request.get("object")
    if operation == Operation.CREATE and kind and kind.status_from_elsewhere and isinstance(data, dict):
        data = {key: value for key, value in data.items() if key != "status"}
    return Request(
        uid=uid,
        operation=operation,
        kind=kind,
        obj=_object(data, namespace),
        old=_object(request.get("oldObject"), namespace),
        name=_text(request, "name"),
        namespace=namespace,
        user=_text(user, "username"),
        groups=frozenset(filter(None, map(_only_text, groups)) if isinstance(groups, list) else ()),
        subresource=_text(request, "subResource"),
        dry_run=request.get("dryRun") is True,
    )


def _only_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _text(holder: Mapping[str, Any], key: str) -> str:
    return _only_text(holder.get(key))


def _map(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = holder.get(key)
    return value if isinstance(value, dict) else {}


def _object(data: Any, namespace: str) -> Object | None:
    return Object(data, namespace) if isinstance(data, dict) else None


def encode(request: Request, response: Response) -> bytes:
    """Encode the response to a request."""
    encoded: dict[str, Any] = {"uid": request.uid, "allowed": response.allowed}
    if not response.allowed:
        denials = [verdict for verdict in response.verdicts if verdict.action is Action.DENY]
        encoded["status"] = _status(request, denials, response.omitted.get(Action.DENY, 0))
    if response.patch:
        encoded["patchType"] = "JSONPatch"
        encoded["patch"] = base64.b64encode(
            json_codec.dumps([operation.as_json() for operation in response.patch])
        ).decode()
    if warnings := _warnings(response):
        encoded["warnings"] = warnings
    if audit := _audit(response):
        encoded["auditAnnotations"] = audit
    return json_codec.dumps({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": encoded})


def _status(request: Request, denials: Sequence[Verdict], omitted: int) -> dict[str, Any]:
    subject = request.subject or Object({})
    count = len(denials) + omitted
    shown = denials if count <= MAX_CAUSES else denials[: MAX_CAUSES - 1]
    causes = [
        {
            "reason": str(verdict.finding.cause),
            "field": name(str(verdict.finding.path)),
            "message": _tagged(verdict.message, verdict.rule, MAX_CAUSE),
        }
        for verdict in shown
    ]
    if more := count - len(shown):
        last = denials[-1]
        causes.append(
            {
                "reason": str(last.finding.cause),
                "field": name(str(last.finding.path)),
                "message": f"and {more} more; run: virt-admit check {tag(last.rule)}",
            }
        )
    return {
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": _message(subject, denials, omitted),
        "details": {
            "group": name(subject.group),
            "kind": name(subject.kind) or "object",
            "name": name(subject.name or request.name),
            "causes": causes,
        },
    }


def _message(subject: Object, denials: Sequence[Verdict], omitted: int) -> str:
    """Return the text that kubectl prints instead of causes if several objects of one command are denied.

    Several denials are a list with one line each, because kubectl prints line breaks as they are (k8s.io/kubectl
    pkg/cmd/util/helpers.go#MultipleErrors).
    """
    head = name(f"{subject.kind} {subject.full_name}".strip()) + ":"
    bullet = "\n* " if len(denials) + omitted > 1 else " "
    texts: list[str] = []
    room = MAX_MESSAGE - len(head)
    for index, verdict in enumerate(denials):
        text = line(verdict.text)
        more = f"and {len(denials) + omitted - index} more; run: virt-admit check"
        if len(text) + len(more) + 2 * len(bullet) > room:
            texts.append(more if texts else cut(text, room - len(bullet)))
            break
        texts.append(text)
        room -= len(bullet) + len(text)
    else:
        texts += [f"and {omitted} more; run: virt-admit check"] if omitted else []
    return head + "".join(bullet + text for text in texts)


def _warnings(response: Response) -> list[str]:
    texts = [_not_judged(response)] if response.not_judged else []
    texts += [_fix_text(verdict) for verdict in response.fixed]
    texts += [_short(verdict) for verdict in response.verdicts if verdict.action is Action.WARN]
    texts = list(dict.fromkeys(texts))
    count = len(texts) + response.omitted.get(Action.WARN, 0)
    if count > MAX_WARNINGS:
        more = count - MAX_WARNINGS + 1
        texts = [*texts[: MAX_WARNINGS - 1], f"and {more} more; run: virt-admit check"]
    return texts


def _not_judged(response: Response) -> str:
    count = len(response.not_judged)
    return (
        f"not judged by {count} {'rule' if count == 1 else 'rules'}: the object is too large to review in time; "
        "run: virt-admit check"
    )


def _short(verdict: Verdict) -> str:
    return _tagged(f"{verdict.finding.path}: {verdict.message}", verdict.rule, MAX_WARNING)


def fix_sentence(finding: Finding, verb: str = "was") -> str:
    """Return what a fix changes and why, as a report: ``spec.x was set to 1 because it is missing.``"""
    changes = ", ".join(change.passive(verb) for change in finding.fix)
    return line(f"{changes} because {finding.why}." if finding.why else f"{changes}.")


def _fix_text(verdict: Verdict) -> str:
    return _tagged(fix_sentence(verdict.finding), verdict.rule, MAX_WARNING)


def _tagged(text: str, rule: Rule, most: int) -> str:
    """Return a text and the tag of its rule as one printable line of at most ``most`` characters."""
    mark = " " + tag(rule)
    return cut(line(text), most - len(mark)) + mark


def _audit(response: Response) -> dict[str, str]:
    if not (response.verdicts or response.fixed or response.unseen):  # the common case
        return {}
    by_action: defaultdict[Action, set[str]] = defaultdict(set)
    for verdict in response.verdicts:
        by_action[verdict.action].add(verdict.rule.id)
    annotations = {
        "denied-by": by_action[Action.DENY],
        "warned-by": by_action[Action.WARN],
        "audited-by": by_action[Action.AUDIT],
        "fixed-by": {verdict.rule.id for verdict in response.fixed},
        "exempted-by": {verdict.rule.id for verdict in response.verdicts if verdict.exempted},
        "unseen": {rule.id for rule, _ in response.unseen},
        "not-judged": {rule.id for rule in response.not_judged},
    }
    audit = {key: ",".join(sorted(ids)) for key, ids in annotations.items() if ids}
    if response.fixed:
        texts = (_tagged(fix_sentence(verdict.finding), verdict.rule, MAX_CAUSE) for verdict in response.fixed)
        audit["fix"] = cut("; ".join(texts), MAX_MESSAGE)
    if audit and response.policy and response.policy.digest:
        audit["policy"] = response.policy.digest
    return audit


def strongest_first(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Sort verdicts: denials, warnings, then the rest.

    With equal actions, the first verdict of a rule at a field precedes its further ones, so that a truncated list shows
    different problems.
    """
    verdicts = tuple(verdicts)
    if len(verdicts) < 2:  # the common case
        return verdicts
    met: Counter[tuple[str, tuple[str, ...]]] = Counter()
    ranked: list[tuple[int, int, Verdict]] = []
    for verdict in verdicts:
        place = verdict.rule.id, verdict.finding.path.without_indices
        ranked.append((-verdict.action, met[place], verdict))
        met[place] += 1
    return tuple(verdict for _, _, verdict in sorted(ranked, key=lambda each: each[:2]))
