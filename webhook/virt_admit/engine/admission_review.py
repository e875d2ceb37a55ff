"""AdmissionReview: what a request asks, what the response says, and how the response is encoded."""

from __future__ import annotations

import base64
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from virt_admit.model.kubernetes import json_codec
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import cut
from virt_admit.model.releases import NO_TARGET, UpgradeTarget
from virt_admit.model.sanitize import line, name
from virt_admit.policy.policy import Policy
from virt_admit.rule import Action, Finding, Operation, Rule

API_VERSION: Final = "admission.k8s.io/v1"

MAX_CAUSES: Final = 20
MAX_CAUSE: Final = 1024
"""Characters of the message of one cause."""
MAX_MESSAGE: Final = 1500
"""Characters of ``status.message``, and of the audit annotation that lists the fixes."""
MAX_WARNINGS: Final = 10
MAX_WARNING: Final = 256
"""Characters; the API server truncates longer ones if all together exceed 4,096 (apiserver
filters/warning.go).
"""


class Request(NamedTuple):
    """The request to review.

    ``check`` and ``scan`` also make requests, without ``uid`` and ``user``.
    """

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
    target: UpgradeTarget = NO_TARGET
    """The releases that ``check`` and ``scan`` judge against;
    requests of the API server have none.
    """
    too_large: bool = False
    """Whether the objects were not read, because they have too many values. What comes after them,
    ``dry_run``, was not read either.
    """
    has_variables: bool = False
    """Whether values may be variables that are filled in later: those of files."""

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
        if self.note:
            return f"{self.finding.message.rstrip('.')}. {self.note}"
        return self.finding.message


NONE_OMITTED: Final[Mapping[Action, int]] = {}


class Response(NamedTuple):
    """The result of a review: verdicts, strongest first,
    and the rules that could not be evaluated.
    """

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
    evaluated_rules: tuple[Rule, ...] = ()
    """The rules that judged the object: those for it that the policy does not switch off.
    One without a verdict found nothing."""
    probe: str = ""
    """The warning that answers a probe of ``doctor``; empty for every other request."""

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
    """Return the mark at the end of each message.

    Nothing else in kubectl's output names virt-admit.
    """
    return f"[virt-admit/{rule.id}]"


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
    return json_codec.dumps(
        {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": encoded}
    )


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
    """Return the text that kubectl prints instead of causes if several objects of one command are
    denied.

    Several denials are a list with one line each, because kubectl prints line breaks as they are
    (k8s.io/kubectl pkg/cmd/util/helpers.go#MultipleErrors).
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
    texts = [response.probe] if response.probe else []
    texts += [_not_judged(response)] if response.not_judged else []
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
        f"not judged by {count} {'rule' if count == 1 else 'rules'}: the object is too large to "
        "review in time; run: virt-admit check"
    )


def _short(verdict: Verdict) -> str:
    return _tagged(f"{verdict.finding.path}: {verdict.message}", verdict.rule, MAX_WARNING)


def fix_sentence(finding: Finding, verb: str = "was") -> str:
    """Return what a fix changes and why, as a report:
    ``spec.x was set to 1 because it is missing.``
    """
    changes = ", ".join(change.passive(verb) for change in finding.fix)
    return line(f"{changes} because {finding.why}." if finding.why else f"{changes}.")


def _fix_text(verdict: Verdict) -> str:
    return _tagged(fix_sentence(verdict.finding), verdict.rule, MAX_WARNING)


def _tagged(text: str, rule: Rule, most: int) -> str:
    """Return a text and the tag of its rule as one printable line of at most ``most``
    characters.
    """
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
        texts = (
            _tagged(fix_sentence(verdict.finding), verdict.rule, MAX_CAUSE)
            for verdict in response.fixed
        )
        audit["fix"] = cut("; ".join(texts), MAX_MESSAGE)
    if audit and response.policy and response.policy.digest:
        audit["policy"] = response.policy.digest
    return audit


def strongest_first(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Sort verdicts: denials, warnings, then the rest.

    With equal actions, the first verdict of a rule at a field precedes its further ones, so that a
    truncated list shows different problems.
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
