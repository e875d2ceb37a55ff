"""Is the registration sound? What would keep API servers from reaching, trusting or rightly asking the webhook.

What the API server will not give is unknown, never sound and never wrong.
"""

from __future__ import annotations

import base64
import enum
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from virt_admit import __version__
from virt_admit.install import manifests
from virt_admit.install.inspect import Api, Connect, Entry, Installation, Json, Unreadable
from virt_admit.install.manifests import MAY_FAIL, NAME
from virt_admit.model.kubevirt.versions import Version, parse_version
from virt_admit.model.messages import count, names
from virt_admit.policy import parser
from virt_admit.policy.policy import PolicyError
from virt_admit.rules import Rules
from virt_admit.settings import CERTS_SECRET, NAMESPACE, SERVICE
from virt_admit_certs.certificates import Certificate, issued_by, valid
from virt_admit_certs.names import good_for, names_of
from virt_admit_certs.state import parse_bundle, parse_certs

OLDEST: Final = Version(1, 30)
"""The first Kubernetes release with match conditions switched on for good."""

LEFT: Final = 0.2
"""Of a certificate's life. It is renewed at half of it, so with less than this something is wrong."""

ACCOUNT: Final = f"system:serviceaccount:{NAMESPACE}:{SERVICE}"


class Status(enum.StrEnum):
    """How one thing is."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing, not wrong."""
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Observation:
    """One thing that was looked at."""

    topic: str
    health: Status
    text: str
    remedy: str = ""
    """What to do, if something is wrong."""


What = tuple[Status, str] | tuple[Status, str, str]
"""What an observation says besides its topic."""
CheckResult = Iterator[What]


def diagnose(api: Api, rules: Rules, now: datetime, connect: Connect) -> list[Observation]:
    """Look at everything. ``rules``: all of them; ``now``: an aware time."""
    there = Installation(api, rules, now, connect)
    return [found for topic, look in TOPICS.items() for found in _observe(topic, look(there))]


def _observe(topic: str, looked: CheckResult) -> Iterator[Observation]:
    try:
        for what in looked:
            yield Observation(topic, *what)
    except Unreadable as blind:
        yield Observation(topic, Status.UNKNOWN, str(blind))


def exit_code(observations: Iterable[Observation]) -> int:
    """0: sound; 1: something is wrong; 2: nothing is known to be wrong, but something could not be told."""
    found = {each.health for each in observations}
    return 1 if Status.WRONG in found else 2 if Status.UNKNOWN in found else 0


APPLY: Final = "apply manifests/webhooks, or those of your overlay, of this release"
BASE: Final = "kubectl apply -k manifests/base, or your overlay"
RENEW: Final = "see the log of whoever issues it: our webhook, cert-manager or OpenShift's service CA"
BUNDLE: Final = "virt-admit certs status; whatever else writes caBundle must leave it alone (docs/install.md)"


def _versions(there: Installation) -> CheckResult:
    found = there.get("/version") or {}
    version = parse_version(found.get("gitVersion"))
    if version is None:
        raise Unreadable("the API server does not tell its version")
    if version < OLDEST:
        yield Status.WRONG, f"Kubernetes {version} is older than {OLDEST.major}.{OLDEST.minor}: no match conditions"
    else:
        yield Status.OK, f"Kubernetes {version}, virt-admit {__version__}"
    deployment = there.deployment()
    if deployment is not None:
        running = deployment["metadata"].get("labels", {}).get("app.kubernetes.io/version", "unknown")
        if running != __version__:
            yield (
                Status.NOTE,
                f"the cluster runs virt-admit {running}; this is {__version__} and judges by its own rules",
            )


def _registration(there: Installation) -> CheckResult:
    actual = {entry.name: entry for entry in there.ours()}
    wanted = manifests.webhooks(there.rules.at_admission)
    wrong: list[What] = [found for each in wanted for found in _unasked(each, actual)]
    for entry in actual.values():
        if entry.fails and entry.name not in MAY_FAIL:
            text = f"{entry.name} has failurePolicy Fail: with no webhook running, drains and repairs would be refused"
            wrong.append((Status.WRONG, text, APPLY))
    yield from wrong or [(Status.OK, "both webhook configurations ask about every kind that is judged")]


def _unasked(wanted: Json, actual: Mapping[str, Entry]) -> CheckResult:
    """What a configuration of ours does not ask, and should."""
    kind = wanted["kind"]
    entries = [Entry(f"{kind} {NAME}", entry["name"], entry) for entry in wanted["webhooks"]]
    missing = [entry.name for entry in entries if entry.name not in actual]
    if len(missing) == len(entries):
        so = "nothing is judged" if kind == "ValidatingWebhookConfiguration" else "nothing gets its defaults"
        yield Status.WRONG, f"there is no {kind} {NAME}: {so}", APPLY
    elif missing:
        yield Status.WRONG, f"{kind} {NAME} has no entry {names(missing)}", APPLY
    for entry in entries:
        if entry.name in actual and (places := entry.asks - actual[entry.name].asks):
            shown = names(sorted({f"{operation} of {resource}" for _, _, resource, operation in places}))
            yield Status.WRONG, f"{entry.name} does not ask about {shown}", APPLY


def _own_namespace(there: Installation) -> CheckResult:
    labels = there.namespace_labels()
    caught = [entry.name for entry in there.ours() if entry.selects(labels)]
    if caught:
        yield Status.WRONG, f"{names(caught)} would ask about objects in our own namespace {NAMESPACE}", APPLY
    else:
        yield Status.OK, f"the namespace {NAMESPACE} is left out"


def _endpoints(there: Installation) -> CheckResult:
    fails = any(entry.fails for entry in there.ours())
    for service in there.services():
        found = there.get(f"/api/v1/namespaces/{service.namespace}/services/{service.name}")
        if found is None:
            yield Status.WRONG, f"there is no Service {service}", BASE
            continue
        if service.port not in [port["port"] for port in found["spec"].get("ports") or ()]:
            yield Status.WRONG, f"the Service {service} has no port {service.port}", BASE
            continue
        ready = there.ready(service)
        text = f"{count(ready, 'endpoint')} of the Service {service} {'is' if ready == 1 else 'are'} ready"
        if ready == 0:
            yield Status.WRONG, text, f"kubectl -n {service.namespace} describe pods"
        elif ready == 1 and fails:
            yield Status.WRONG, f"{text}: while it restarts, virtual machines are refused", "run two replicas or more"
        else:
            yield Status.OK, text


def _trust(there: Installation) -> CheckResult:
    for service in there.services():
        place = there.issued_by_another() or CERTS_SECRET
        namespace, _, name = place.partition("/")
        secret = there.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")
        pem = base64.b64decode((secret or {}).get("data", {}).get("tls.crt") or "")
        chain = parse_certs(pem, [], "tls.crt")
        if not chain:
            yield Status.WRONG, f"there is no certificate in the Secret {place}", "see the log of the webhook"
            continue
        yield from _certificate(chain[0], service.host, there.now)
        yield from _bundles(
            {
                entry.name: _distrust(chain, entry.bundle, there.now)
                for entry in there.ours()
                if entry.service == service
            }
        )
    by_url = [entry for entry in there.ours() if entry.url]
    yield from _bundles(
        {entry.name: there.connect(entry.url, entry.bundle.decode(errors="replace")) for entry in by_url}
    )


def _bundles(distrust: Mapping[str, str]) -> CheckResult:
    """What entries say of the certificate: why API servers would refuse it, by entry; empty if they accept it."""
    reasons: dict[str, list[str]] = {}
    for entry, reason in distrust.items():
        reasons.setdefault(reason, []).append(entry)
    for reason, found in reasons.items():
        if reason:
            yield Status.WRONG, f"{names(found)}: {reason}", BUNDLE
        else:
            yield Status.OK, f"the certificate is trusted by the caBundle of {count(len(found), 'webhook')}"


def _certificate(leaf: Certificate, host: str, now: datetime) -> CheckResult:
    ends = f"{leaf.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    life = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    if not good_for(leaf, host):
        text = f"the certificate is for {names(names_of(leaf)) or 'no name'}, not for {host}"
        yield Status.WRONG, text, "issue it for that name"
    if not valid(leaf, now):
        yield Status.WRONG, f"the certificate is valid from {leaf.not_valid_before_utc:%Y-%m-%d %H:%M} to {ends}", RENEW
    elif leaf.not_valid_after_utc - now < life * LEFT:
        yield Status.WRONG, f"the certificate ends at {ends} and has not been renewed", RENEW
    else:
        yield Status.OK, f"the certificate is valid until {ends}"


def _distrust(chain: Sequence[Certificate], bundle: bytes, now: datetime) -> str:
    """Why API servers with this bundle refuse the chain; empty if they accept it."""
    if not bundle:
        return "caBundle is empty: API servers go by the authorities of their operating system"
    roots = [cert for cert in parse_bundle(bundle, []) if valid(cert, now)]
    if not roots:
        return "caBundle has no certificate of an authority that is valid"
    if _leads(chain[0], frozenset(chain[1:]), roots, now):
        return ""
    return "caBundle does not trust the certificate that is served"


def _leads(cert: Certificate, between: frozenset[Certificate], roots: Sequence[Certificate], now: datetime) -> bool:
    return any(issued_by(cert, root) for root in roots) or any(
        issued_by(cert, each) and valid(each, now) and _leads(each, between - {each}, roots, now) for each in between
    )


def _rights(there: Installation) -> CheckResult:
    if not there.services():
        return  # called by URL: it runs elsewhere, with rights of its own
    rules = there.rules.at_admission
    shipped = manifests.rbac(rules)
    for home, roles in manifests.rbac_elsewhere(rules).items():
        if there.get(f"/api/v1/namespaces/{home}") is not None:
            shipped += roles
    other = bool(there.issued_by_another())
    needed = [
        right
        for role in shipped
        for rule in role.get("rules", ())
        if not (other and "resourceNames" in rule)  # these are for the rotation, which is off
        for right in _rights_of(rule, role["metadata"].get("namespace", ""))
    ]
    refused: dict[str, list[str]] = {}
    for right in needed:
        if not _may(there.api, right):
            refused.setdefault(right["verb"], []).append(f"{right['resource']}.{right['group']}".rstrip("."))
    for verb, places in refused.items():
        yield Status.WRONG, f"{SERVICE} may not {verb} {names(places)}", BASE
    if not refused:
        yield Status.OK, f"{SERVICE} has all {len(needed)} rights that it needs"


def _rights_of(rule: Mapping[str, Sequence[str]], namespace: str) -> Iterator[dict[str, str]]:
    for group, resource, verb, name in itertools.product(
        rule["apiGroups"], rule["resources"], rule["verbs"], rule.get("resourceNames", ("",))
    ):
        yield {"group": group, "resource": resource, "verb": verb, "namespace": namespace, "name": name}


def _may(api: Api, right: Json) -> bool:
    """Whether the webhook's account has a right."""
    group, kind = "authorization.k8s.io", "SubjectAccessReview"
    groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"]
    spec = {"resourceAttributes": right, "user": ACCOUNT, "groups": groups}
    answer = api.post(f"/apis/{group}/v1/{kind.lower()}s", {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec})
    return bool(answer["status"]["allowed"])


def _policy(there: Installation) -> CheckResult:
    config = there.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}-policy")
    if config is None:
        return
    try:
        found = parser.parse((config.get("data") or {}).get("policy.yaml", "").encode(), there.rules, "policy.yaml")
    except PolicyError as error:
        text = f"the policy is refused: {names(error.problems, 400)}"
        yield (
            Status.WRONG,
            text,
            "mend it: until then the last good one is in force, and no restarted pod begins to serve",
        )
        return
    for exemption in found.at(there.now.date()).expired:
        yield Status.NOTE, f"the exemption of {exemption.match} ended on {exemption.until}: {exemption.reason}"
    yield Status.OK, "the policy can be read"


def _others(there: Installation) -> CheckResult:
    labels = there.namespace_labels()
    judged = [(kind.group, kind.plural) for kind in there.rules.at_admission.kinds]
    wrong: list[What] = []
    for entry in there.others():
        if not entry.fails or entry.service is None:
            continue
        hit = [plural for group, plural in judged if entry.matches_kind(group, plural)]
        if entry.matches_kind("", "pods") and entry.selects(labels):
            hit.append("our own pods")
        if hit and not there.ready(entry.service):
            text = f"{entry.configuration}: {entry.name} refuses {names(hit)}: {entry.service} has no ready endpoint"
            wrong.append((Status.WRONG, text, "mend that webhook, or take its configuration away"))
    yield from wrong or [(Status.OK, "no other webhook refuses the same kinds because it is away")]


_FAILED_OPEN: Final = re.compile(
    r'^apiserver_admission_webhook_fail_open_count\{[^}]*name="([^"]+)\.virt-admit\.io"[^}]*\} (\S+)$', re.MULTILINE
)


def _failing_open(there: Installation) -> CheckResult:
    found = {name: float(number) for name, number in _FAILED_OPEN.findall(there.api.text("/metrics"))}
    total = round(sum(found.values()))
    if total:
        text = f"since this API server started, {count(total, 'request')} passed that nobody judged ({names(found)})"
        yield Status.NOTE, text, "virt-admit scan finds what came through"
    else:
        yield Status.OK, "since this API server started, no request passed that nobody judged"


TOPICS: Final[Mapping[str, Callable[[Installation], CheckResult]]] = {
    "versions": _versions,
    "registration": _registration,
    "own namespace": _own_namespace,
    "endpoints": _endpoints,
    "trust": _trust,
    "rights": _rights,
    "policy": _policy,
    "other webhooks": _others,
    "failing open": _failing_open,
}
