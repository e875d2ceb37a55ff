"""Checks of an installation: whether API servers reach and trust the webhook and call it for the
right objects.

A check that the API server does not answer is unknown, never ok and never wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from virt_admit import __version__
from virt_admit.install import manifests, product_bundles
from virt_admit.install.floor import check_floor
from virt_admit.install.guard import GROUP, GUARD, PLURALS
from virt_admit.install.impact import EMERGENCY_EXIT, failed_open, rejected_now
from virt_admit.install.inspect import (
    ApiReader,
    Connect,
    InspectedEntry,
    Installation,
    Json,
    Unreadable,
    expected_form,
)
from virt_admit.install.manifests import MAY_FAIL, NAME
from virt_admit.install.observations import CheckObservation, CheckResult, Outcome, Status
from virt_admit.install.probe import Probe
from virt_admit.install.sweeps import check_sweeps
from virt_admit.install.trust import check_trust
from virt_admit.model.commands import shell
from virt_admit.model.kubevirt.settings.versions import Version, parse_version
from virt_admit.model.messages import count, names
from virt_admit.policy.policy import PolicyError
from virt_admit.rules import Rules
from virt_admit.settings import NAMESPACE, SERVICE

OLDEST: Final = Version(1, 30)
"""The first Kubernetes release with stable match conditions."""

ROTATION: Final = frozenset((f"{NAME}-certs", f"{NAME}-configurations"))
"""The roles that only the built-in rotation of certificates needs."""

ACCOUNT: Final = f"system:serviceaccount:{NAMESPACE}:{SERVICE}"


def diagnose(
    api: ApiReader, rules: Rules, now: datetime, connect: Connect, probe: Probe | None = None
) -> list[CheckObservation]:
    """Run all checks.

    Args:
        api: the API server.
        rules: all rules.
        now: the current time, with a time zone.
        connect: tries a TLS connection to a URL.
        probe: the dry-run create to send last; None: send nothing.
    """
    installation = Installation(api, rules, now, connect)
    present = TOPICS if _may_be_installed(installation) else BEFORE_INSTALLATION
    topics = {name: TOPICS[name] for name in present} | (
        {"probe": probe} if probe is not None else {}
    )
    return [
        found for topic, check in topics.items() for found in _observe(topic, check(installation))
    ]


def _may_be_installed(installation: Installation) -> bool:
    try:
        with expected_form():
            return bool(installation.ours()) or installation.deployment() is not None
    except Unreadable:
        return True


def _observe(topic: str, outcomes: CheckResult) -> Iterator[CheckObservation]:
    try:
        with expected_form():
            found = [CheckObservation(topic, *outcome) for outcome in outcomes]
    except Unreadable as error:
        found = [CheckObservation(topic, Status.UNKNOWN, str(error))]
    yield from found


def exit_code(observations: Iterable[CheckObservation]) -> int:
    """Return 1 if there is a problem, else 2 if a check could not be completed, else 0."""
    found = {observation.status for observation in observations}
    return 1 if Status.WRONG in found else 2 if Status.UNKNOWN in found else 0


APPLY: Final = (
    "apply the webhook configurations of this release with your own kustomization: kubectl apply "
    "-k ours/webhooks"
)
INSTALL: Final = (
    "install it in this order (docs/install.md): kubectl apply -k ours; kubectl -n virt-admit "
    "rollout status deployment/virt-admit-webhook; kubectl apply -k ours/webhooks"
)
BASE: Final = "apply your own kustomization again (docs/install.md): kubectl apply -k ours"


def _versions(installation: Installation) -> CheckResult:
    found = installation.get("/version") or {}
    version = parse_version(found.get("gitVersion"))
    if version is None:
        raise Unreadable("the API server does not report its version")
    if version < OLDEST:
        oldest = f"{OLDEST.major}.{OLDEST.minor}"
        yield (
            Status.WRONG,
            f"Kubernetes {version} is older than {oldest} and ignores match conditions",
        )
    else:
        yield Status.OK, f"Kubernetes {version}, virt-admit {__version__}"
    deployment = installation.deployment()
    if deployment is not None:
        labels = deployment["metadata"].get("labels", {})
        running = labels.get("app.kubernetes.io/version", "unknown")
        if running != __version__:
            versions = f"the cluster runs virt-admit {running}, this command is {__version__}"
            yield Status.NOTE, f"{versions}: their rules may differ"


def _installation(installation: Installation) -> CheckResult:
    if not _may_be_installed(installation):
        text = (
            "virt-admit is not installed: neither its Deployment nor its webhook configurations "
            "exist"
        )
        yield Status.WRONG, text, INSTALL
    elif installation.deployment() is not None and not installation.ours():
        yield (
            Status.NOTE,
            "the Deployment exists; the webhook configurations follow when its pods are ready",
        )


def _registration(installation: Installation) -> CheckResult:
    actual = {entry.name: entry for entry in installation.ours()}
    expected = manifests.webhooks(installation.rules.at_admission)
    wrong: list[Outcome] = [
        found for configuration in expected for found in _missing_calls(configuration, actual)
    ]
    wrong += _excess_calls(expected, actual)
    for entry in actual.values():
        if entry.fails and entry.name not in MAY_FAIL:
            text = (
                f"{entry.name} has failurePolicy Fail: without a running webhook, API servers "
                "reject drains and repairs"
            )
            wrong.append((Status.WRONG, text, APPLY))
    yield from wrong or [
        (Status.OK, "both webhook configurations send every kind that rules judge")
    ]


def _missing_calls(expected: Json, actual: Mapping[str, InspectedEntry]) -> CheckResult:
    """Yield what our webhook configuration does not send to the webhook but should."""
    kind = expected["kind"]
    entries = [
        InspectedEntry(f"{kind} {NAME}", entry["name"], entry) for entry in expected["webhooks"]
    ]
    missing = [entry.name for entry in entries if entry.name not in actual]
    if len(missing) == len(entries):
        judging = kind == "ValidatingWebhookConfiguration"
        effect = "no object is judged" if judging else "no object gets its defaults"
        yield Status.WRONG, f"{kind} {NAME} does not exist: {effect}", APPLY
    elif missing:
        yield Status.WRONG, f"{kind} {NAME} has no entry {names(missing)}", APPLY
    for entry in entries:
        if entry.name in actual and (places := entry.intercepted - actual[entry.name].intercepted):
            yield Status.WRONG, f"{entry.name} does not send {_shown(places)}", APPLY


def _excess_calls(expected: Iterable[Json], actual: Mapping[str, InspectedEntry]) -> CheckResult:
    """Yield what our webhook configurations send although no rule judges it."""
    judged = {
        entry["name"]: InspectedEntry("", entry["name"], entry).intercepted
        for each in expected
        for entry in each["webhooks"]
    }
    for entry in actual.values():
        if places := entry.intercepted - judged.get(entry.name, set()):
            unjudged = f"{entry.name} sends {_shown(places)}, which no rule judges"
            yield Status.WRONG, f"{unjudged}: find out which account changed it", APPLY


def _shown(places: Iterable[tuple[str, ...]]) -> str:
    return names(sorted({f"{operation} of {resource}" for _, _, resource, operation in places}))


def _own_namespace(installation: Installation) -> CheckResult:
    if not installation.ours():
        return
    labels = installation.namespace_labels()
    caught = [entry.name for entry in installation.ours() if entry.selects(labels)]
    if caught:
        sent = f"{names(caught)} would send objects of our own namespace {NAMESPACE}"
        yield Status.WRONG, f"{sent}: the webhook could block its own repair", APPLY
    else:
        yield Status.OK, f"namespace {NAMESPACE} is excluded"


def _endpoints(installation: Installation) -> CheckResult:
    fails = any(entry.fails for entry in installation.ours())
    for service in installation.services():
        found = installation.get(f"/api/v1/namespaces/{service.namespace}/services/{service.name}")
        if found is None:
            yield Status.WRONG, f"Service {service} does not exist", BASE
            continue
        if service.port not in [port["port"] for port in found["spec"].get("ports") or ()]:
            yield Status.WRONG, f"Service {service} has no port {service.port}", BASE
            continue
        ready = installation.ready(service)
        text = (
            f"{count(ready, 'endpoint')} of Service {service} {'is' if ready == 1 else 'are'} ready"
        )
        if ready == 0:
            command = shell("kubectl", "-n", service.namespace, "describe", "pods")
            yield Status.WRONG, text, f"run {command}"
        elif ready == 1 and fails:
            text += ": while it restarts, API servers reject virtual machines"
            yield Status.WRONG, text, "run two replicas or more"
        else:
            yield Status.OK, text


def _rights(installation: Installation) -> CheckResult:
    if not installation.services():
        return  # a webhook with a URL runs elsewhere and has other rights
    rules = installation.rules.at_admission
    shipped = manifests.rbac(rules)
    for namespace, roles in manifests.rbac_elsewhere(rules).items():
        if installation.get(f"/api/v1/namespaces/{namespace}") is not None:
            shipped += roles
    external = bool(installation.issued_by_another())
    needed = [
        right
        for role in shipped
        for rule in role.get("rules", ())
        if not (external and role["metadata"]["name"] in ROTATION)  # the rotation is off
        for right in _rights_of(rule, role["metadata"].get("namespace", ""))
    ]
    refused: dict[str, list[str]] = {}
    for right in needed:
        if not _may(installation.api, right):
            refused.setdefault(right["verb"], []).append(
                f"{right['resource']}.{right['group']}".rstrip(".")
            )
    if not external:
        yield from _guarded(installation)
    for verb, resources in refused.items():
        yield Status.WRONG, f"{SERVICE} has no right to {verb} {names(resources)}", BASE
    if not refused:
        yield Status.OK, f"{SERVICE} has all {len(needed)} required rights"


def _guarded(installation: Installation) -> CheckResult:
    for plural in PLURALS:
        if installation.get(f"/apis/{GROUP}/v1/{plural}/{GUARD}") is None:
            text = (
                f"{plural} {GUARD} does not exist: {SERVICE} may change more of its configurations "
                "than caBundle"
            )
            yield Status.WRONG, text, BASE


def _rights_of(rule: Mapping[str, Sequence[str]], namespace: str) -> Iterator[dict[str, str]]:
    parts = rule["apiGroups"], rule["resources"], rule["verbs"], rule.get("resourceNames", ("",))
    for right in itertools.product(*parts):
        yield dict(zip(("group", "resource", "verb", "name"), right, strict=True)) | {
            "namespace": namespace
        }


def _may(api: ApiReader, right: Json) -> bool:
    """Return whether the webhook's account has a right."""
    group, kind = "authorization.k8s.io", "SubjectAccessReview"
    every = "system:serviceaccounts"
    groups = ["system:authenticated", every, f"{every}:{NAMESPACE}"]
    spec = {"resourceAttributes": right, "user": ACCOUNT, "groups": groups}
    answer = api.post(
        f"/apis/{group}/v1/{kind.lower()}s",
        {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec},
    )
    return bool(answer["status"]["allowed"])


def _policy(installation: Installation) -> CheckResult:
    place = installation.policy_place()
    try:
        found = installation.policy()
    except PolicyError as error:
        text = f"the policy is not valid: {names(error.problems, 400)}"
        remedy = (
            "fix it. Until then the previous policy stays in force; a restarted pod uses audit and "
            "rejects nothing"
        )
        yield Status.WRONG, text, remedy
        return
    if found is None:
        yield Status.OK, f"{place} does not exist: the built-in policy {place.fallback} is in force"
        return
    for exemption in found.expired:
        ended = f"exemption for {exemption.match} expired on {exemption.until}"
        yield Status.NOTE, f"{ended}: {exemption.reason}"
    yield Status.OK, "the policy is valid"


def _others(installation: Installation) -> CheckResult:
    labels = installation.namespace_labels()
    judged = [(kind.group, kind.plural) for kind in installation.rules.at_admission.kinds]
    wrong: list[Outcome] = []
    for entry in installation.others():
        if not entry.fails or entry.service is None:
            continue
        affected = [plural for group, plural in judged if entry.matches_kind(group, plural)]
        if entry.matches_kind("", "pods") and entry.selects(labels):
            affected.append("our own pods")
        if affected and not installation.ready(entry.service):
            text = (
                f"{entry.configuration}: {entry.name} rejects {names(affected)}: {entry.service} "
                "has no ready endpoint"
            )
            wrong.append((Status.WRONG, text, "repair that webhook, or delete its configuration"))
    yield from wrong or [(Status.OK, "no unavailable webhook rejects the same kinds")]


def _product_bundles(installation: Installation) -> CheckResult:
    for ended, text in product_bundles.ending(installation):
        yield Status.WRONG if ended else Status.NOTE, text, product_bundles.REMEDY


def _failing_open(installation: Installation) -> CheckResult:
    found = failed_open(installation.api.text("/metrics"))
    total = round(sum(found.values()))
    if total:
        text = (
            f"this API server let {count(total, 'request')} pass without a webhook response since "
            f"its start ({names(found)})"
        )
        yield Status.NOTE, text, "run virt-admit scan to judge the objects in the cluster"
    else:
        yield (
            Status.OK,
            "this API server let no request pass without a webhook response since its start",
        )


TOPICS: Final[Mapping[str, Callable[[Installation], CheckResult]]] = {
    "impact": lambda installation: (
        (Status.WRONG, text, EMERGENCY_EXIT) for text in rejected_now(installation)
    ),
    "versions": _versions,
    "installation": _installation,
    "rights": _rights,
    "endpoints": _endpoints,
    "registration": _registration,
    "own namespace": _own_namespace,
    "trust": check_trust,
    "policy": _policy,
    "floor": check_floor,
    "other webhooks": _others,
    "webhook bundles": _product_bundles,
    "watch": check_sweeps,
    "failing open": _failing_open,
}
"""In the order of an installation: a problem comes before its consequences."""

BEFORE_INSTALLATION: Final = ("versions", "installation", "floor", "other webhooks")
"""What can be said before virt-admit is installed.
Other checks would find nothing wrong because there is nothing.
"""
