"""Updates of operators that the Operator Lifecycle Manager does not finish:
what its own objects say, word for word.

A Subscription names the InstallPlan that installs the next ClusterServiceVersion. A failed
InstallPlan is not tried again before it is deleted. Sources:
operator-framework/operator-lifecycle-manager:pkg/controller/operators/catalog/operator.go
#syncInstallPlans #validateExistingCRs #setSubsCond (ResolutionFailed has no time; the status of the
Subscription has), :pkg/controller/operators/catalog/step.go (stored versions);
operator-framework/api:pkg/operators/v1alpha1/subscription_types.go #clusterserviceversion_types.go;
openshift-docs#35054.

ClusterServiceVersions are copied into every namespace, so they are read from snapshots that contain
them, never from a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.evidence import lost_pins, unready_pods
from virt_admit.model.evidence.writes import silent_conversions, stored_versions, unmet_requirements
from virt_admit.model.evidence.writes.silent_conversions import SilentConversion
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, HCO, INSTALL_PLAN, SUBSCRIPTION
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import WHOLE_CONDITIONS, Reads, union
from virt_admit.model.kubevirt.settings import refused_upgrades, stored_shapes
from virt_admit.model.kubevirt.settings.stored_shapes import Undecodable
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, cut, cut_middle
from virt_admit.model.node_updates.operators import (
    awaited_approvals,
    bundle_unpacking,
    operator_groups,
)

READS: Final[Reads] = union(
    awaited_approvals.READS,
    bundle_unpacking.READS,
    refused_upgrades.READS,
    silent_conversions.READS,
    stored_shapes.READS,
    unready_pods.READS,
    lost_pins.SUBSCRIBED_READS,
    {
        SUBSCRIPTION: (
            *WHOLE_CONDITIONS,
            "spec.name",
            "spec.sourceNamespace",
            "status.currentCSV",
            "status.installPlanRef",
            "status.installedCSV",
            "status.lastUpdated",
        ),
        INSTALL_PLAN: ("status.conditions", "status.message", "status.phase"),
    },
)
_CSV: Final = kinds.guess("operators.coreos.com/v1alpha1", "ClusterServiceVersion")
_CATALOG_SOURCE: Final = kinds.guess("operators.coreos.com/v1alpha1", "CatalogSource")
_PACKAGES: Final = re.compile(
    r"kubevirt|hyperconverged|node-?healthcheck|-remediation|node-maintenance|sriov-network|"
    r"nmstate|descheduler|^(odf|ocs)-|local-storage|lvms|metallb|mtv-operator|forklift"
)
"""Packages of operators on which VMs, their nodes or their disks depend. Of the others, only an
InstallPlan that failed and a requirement that is not met are told: other faults may pass.
"""
_USUAL: Final = timedelta(minutes=20)
"""A ClusterServiceVersion is replaced, its Deployments are ready, and a catalog answers again,
by then.
"""
_LONGEST: Final = 400
_STORED: Final = re.compile(
    r'risk of data loss updating "([a-z0-9.-]{1,200})": new CRD removes version (v[0-9a-z]{1,20}) '
    r"that is listed as a stored"
)
_INVALID: Final = re.compile(r"error validating existing CRs? against new CRD'?s schema")


class HeldOperator(NamedTuple):
    """An operator whose update does not go on by itself."""

    subscription: Object
    reason: str
    remedy: str
    brief: str
    """The reason in as few words as a finding has, beside its Subscription."""
    terse: str
    """The same with what holds it alone."""
    of_vms: bool
    """Whether VMs, their nodes or their disks depend on it."""


@cached
def held(cluster: Cluster) -> Sequence[HeldOperator]:
    """Return the operators whose update does not go on, in the order of their Subscriptions."""
    known = sorted(cluster.known(SUBSCRIPTION), key=lambda each: each.full_name)
    return tuple(found for each in known if not each.deleted for found in _of(each, cluster))


def _of(subscription: Object, cluster: Cluster) -> Iterator[HeldOperator]:
    package = subscription.at("spec", "name").text or subscription.name
    of_vms = bool(_PACKAGES.search(package))
    faults = _faults if of_vms else _lasting
    fault = next(iter(faults(subscription, cluster)), None)
    if fault is None:
        return
    status = subscription["status"]
    now, then = (_release(status[each].text or "") for each in ("installedCSV", "currentCSV"))
    step = f" from {now} to {then}" if now and then and now != then else ""
    what = "the update" if now else "the installation"
    said = bundle_unpacking.brief(fault.words) if fault.cause else cut_middle(fault.words, 240)
    lasts = f"{fault.state}{clock.lasting(fault.since, cluster)}"
    reason, brief = (
        f"{begin}: {': '.join(filter(None, (told, words, fault.cause)))}"
        for begin, told, words in (
            (f"{what} of operator {package}{step} {lasts}", fault.what, fault.words),
            (
                f"{what}{step} {fault.state}",
                cut(fault.what.replace(f" {subscription.namespace}/", " "), 120),
                said,
            ),
        )
    )
    begin = brief.partition(": ")[0]
    terse = f"{begin}: {fault.cause}" if fault.cause else brief
    yield HeldOperator(subscription, reason, fault.remedy, f"{brief}.", f"{terse}.", of_vms)


def _release(csv: str) -> str:
    """Return the release in the name of a ClusterServiceVersion, as ``v4.8.0``."""
    return csv.partition(".")[2] or csv


def _is_long(since: str | None, cluster: Cluster) -> bool:
    """Return whether something certainly lasts for longer than usual."""
    return clock.has_lasted(since, _USUAL, cluster)


class _Fault(NamedTuple):
    what: str
    words: str
    since: str | None
    remedy: str
    cause: str = ""
    """What holds it, if another object does."""
    state: str = "is stuck"


def _lasting(subscription: Object, cluster: Cluster) -> Iterator[_Fault]:
    """Yield the faults that do not pass, whatever the operator is for."""
    yield from _failed_plan(subscription, cluster)
    name = subscription.at("status", "currentCSV").text
    csv = find(cluster, _CSV, subscription.namespace, name)
    if csv is not None and csv.at("status", "reason").text == unmet_requirements.NOT_MET:
        yield from _failed_version(subscription, cluster)


def _faults(subscription: Object, cluster: Cluster) -> Iterator[_Fault]:
    yield from _failed_plan(subscription, cluster)
    yield from _several_groups(subscription, cluster)
    yield from _failed_version(subscription, cluster)
    yield from _not_upgradeable(subscription, cluster)
    for name, what in _CONDITIONS.items():
        found = subscription.condition(name)
        words = _words(found["message"].text)
        changed = found["lastTransitionTime"].text or subscription.at("status", "lastUpdated").text
        if (
            found["status"].text == "True"
            and words
            and (name == _PLAN_FAILED or _is_long(changed, cluster))
        ):
            unpack = bundle_unpacking.failure(subscription, None, words, cluster)
            edited = typed("Correct what it names", about("edit", subscription, SUBSCRIPTION))
            remedy = (
                unpack.remedy if unpack is not None else _of_words(words, subscription) or edited
            )
            told = f"Subscription {subscription.full_name} {what}"
            since = found["lastTransitionTime"].text
            yield _Fault(told, words, since, remedy, unpack.reason if unpack is not None else "")
    yield from _awaited(subscription, cluster)


_CATALOG: Final = re.compile(r"\bsource ([a-z0-9.-]{1,200})/([a-z0-9.-]{1,200})")
"""How the resolver names a CatalogSource (pkg/controller/registry/resolver/cache/cache.go)."""
_DEPLOYMENT: Final = re.compile(
    r"deployment \"?([a-z0-9.-]{1,200})\"? (?:not ready|to become ready)|for deployment "
    r"([a-z0-9.-]{1,200})"
)
"""How OLM names a Deployment that has no ready pod (pkg/controller/install/deployment.go)."""


def _of_words(words: str, obj: Object) -> str:
    """Return what ends a fault of which OLM names the object; empty: it names none."""
    if catalog := _CATALOG.search(words):
        command = kubectl("describe", _CATALOG_SOURCE, catalog[1], catalog[2])
        return typed(
            f"See why the pod of CatalogSource {catalog[2]}/{catalog[1]} does not answer, and "
            "repair it",
            command,
        )
    if deployment := _DEPLOYMENT.search(words):
        name = (deployment[1] or deployment[2]).rstrip(".")
        command = kubectl("describe", DEPLOYMENT, name, obj.namespace)
        return typed(
            f"See why Deployment {name} has no ready pod, and repair it, after which OLM goes on",
            command,
        )
    return ""


_PLAN_FAILED: Final = "InstallPlanFailed"
_CONDITIONS: Final = {
    "ResolutionFailed": "cannot be resolved",
    "BundleUnpackFailed": "cannot unpack its bundle",
    _PLAN_FAILED: "says that its InstallPlan failed",
}


def _plan(subscription: Object, cluster: Cluster) -> Object | None:
    """Return the InstallPlan of a Subscription; None: it is not known, or installs others alone."""
    reference = subscription.at("status", "installPlanRef", "name").text
    plan = find(cluster, INSTALL_PLAN, subscription.namespace, reference)
    installs = plan.at("spec", "clusterServiceVersionNames").items() if plan is not None else ()
    names_ = {text for each in installs if (text := each.text)}
    own = {subscription.at("status", each).text for each in ("currentCSV", "installedCSV")}
    return None if names_ and own - {None} and names_.isdisjoint(own) else plan


def _awaited(subscription: Object, cluster: Cluster) -> Iterator[_Fault]:
    """Yield the InstallPlan that waits for an approval that its Subscription does not ask for."""
    plan = _plan(subscription, cluster)
    since = plan.created if plan is not None else None
    if plan is None or not _is_long(since, cluster):
        return
    if found := awaited_approvals.awaited(subscription, plan, cluster):
        told = f"InstallPlan {plan.full_name} (approved: false)"
        yield _Fault(told, found.reason, since, found.remedy, state="waits for approval")


def _several_groups(subscription: Object, cluster: Cluster) -> Iterator[_Fault]:
    """Yield the ClusterServiceVersion and the InstallPlan that several OperatorGroups hold."""
    status, plan = subscription["status"], _plan(subscription, cluster)
    installed, current = status["installedCSV"].text or "", status["currentCSV"].text or ""
    csv = find(cluster, _CSV, subscription.namespace, installed or current)
    checked = _words(plan.condition("Installed")["message"].text) if plan is not None else ""
    failed = csv is not None and csv.at("status", "reason").text == operator_groups.TOO_MANY
    waits = (
        plan is not None
        and plan.at("status", "phase").text != "Complete"
        and operator_groups.is_blamed(checked)
    )
    broken = csv.at("status", "lastTransitionTime").text if csv is not None and failed else None
    made = plan.created if plan is not None and waits else None
    found = operator_groups.surplus(subscription.namespace, csv, cluster)
    if found is None or not (_is_long(broken, cluster) or _is_long(made, cluster)):
        return
    told = [f"InstallPlan {plan.full_name} does not go on"] if plan is not None and waits else []
    if csv is not None and failed:
        why = f" ({operator_groups.TOO_MANY})"
        told.append(f"ClusterServiceVersion {csv.name} failed{clock.past(broken, cluster)}{why}")
    first, *more = told
    words, state = more[0] if more else checked, "is stuck" if made else "would not go on"
    yield _Fault(first, words, made, found.remedy, found.reason, state)


def _failed_plan(subscription: Object, cluster: Cluster) -> Iterator[_Fault]:
    plan = _plan(subscription, cluster)
    if plan is None or plan.at("status", "phase").text != "Failed":
        return
    installed = plan.condition("Installed")
    own = subscription.condition(_PLAN_FAILED)
    words = _words(
        plan.at("status", "message").text or installed["message"].text or own["message"].text
    )
    since = installed["lastTransitionTime"].text or own["lastTransitionTime"].text
    unpack = bundle_unpacking.failure(subscription, plan, words, cluster)
    remedy = unpack.remedy if unpack is not None else _after(plan, words, cluster)
    told, said = f"InstallPlan {plan.full_name} failed", words or "it does not say why"
    yield _Fault(told, said, since, remedy, unpack.reason if unpack is not None else "")


def _after(plan: Object, words: str, cluster: Cluster) -> str:
    """Return what lets OLM try a failed InstallPlan again:
    it makes another one after the deletion.
    """
    again = about("delete", plan, INSTALL_PLAN)
    stored = _STORED.search(words)
    if stored is not None:
        return _rewritten(stored[1], stored[2], again, cluster)
    first = (
        "Correct the objects that it names" if _INVALID.search(words) else "End what made it fail"
    )
    return typed(f"{first}; then delete the InstallPlan, which OLM makes again", again)


def _rewritten(name: str, version: str, again: str, cluster: Cluster) -> str:
    """Return how a stored version goes: an object that is not written again would be lost with
    it.
    """
    keeps = stored_versions.storage_version(stored_versions.definition(name, cluster))
    if keeps == version:
        words = (
            f"Update through a release that stores {name} in another version first, as {version} "
            "is still the version in which they are stored; do not take it out of "
            "status.storedVersions"
        )
        return typed(words, stored_versions.show(name))
    then = (
        f"only then take {version} out of its status.storedVersions "
        f"({stored_versions.edit(name)}), and delete the InstallPlan, which OLM makes again "
        f"({again})"
    )
    return stored_versions.rewrite(name, keeps, then)


def _failed_version(subscription: Object, cluster: Cluster) -> Iterator[_Fault]:
    """Yield the ClusterServiceVersion that is not ready for longer than usual.

    Also one that failed: OLM tries it again, as when its Deployment has no ready pod while nodes
    are drained
    (operator-lifecycle-manager:pkg/controller/operators/olm/operator.go#transitionCSVState).
    """
    installed = subscription.at("status", "installedCSV").text or ""
    names = dict.fromkeys(
        (subscription.at("status", "currentCSV").text, installed)
    )  # the new one knows what it waits for
    found = [find(cluster, _CSV, subscription.namespace, name) for name in names]
    known = [each for each in found if each is not None and _phase(each) in _PHASES]
    for csv in known:
        status = csv["status"]
        if _phase(csv) in _REPLACED and csv is not known[0]:
            continue  # the new one tells it
        if status["reason"].text == _NOT_UPGRADEABLE and (
            held := _refused(subscription, csv, cluster)
        ):
            yield held
        elif since := next((x for x in _unready_since(csv, known) if _is_long(x, cluster)), None):
            yield _unready(csv, since, cluster)


def _unready(csv: Object, since: str | None, cluster: Cluster) -> _Fault:
    """Return that a ClusterServiceVersion is not ready, and the pod for which it waits."""
    status = csv["status"]
    words = _words(status["message"].text) or status["reason"].text or "it does not say why"
    unmet = unmet_requirements.of_version(csv, cluster)
    missing = "; ".join(each.words for each in unmet)
    described = typed("End what it reports, after which OLM goes on", about("describe", csv, _CSV))
    described = next((each.remedy for each in unmet), described)
    told = f"ClusterServiceVersion {csv.full_name} {_PHASES[_phase(csv)]}"
    said = ": ".join(filter(None, (words, missing)))
    cause, remedy = _unplaced(words, csv, cluster)
    return _Fault(told, said, since, remedy or _of_words(words, csv) or described, cause)


def _unplaced(words: str, csv: Object, cluster: Cluster) -> tuple[str, str]:
    """Return which pod of the Deployment that OLM names demands what no node has, and what changes
    that; empty: none does."""
    named = _DEPLOYMENT.search(words)
    name = (named[1] or named[2]).rstrip(".") if named is not None else None
    deployment = find(cluster, DEPLOYMENT, csv.namespace, name)
    found = unready_pods.pinned(deployment, cluster) if deployment is not None else None
    if found is None:
        known: Undecodable | SilentConversion | None = None
        if deployment is not None:
            shape = stored_shapes.of_deployment(deployment, cluster)
            known = shape or silent_conversions.of_deployment(deployment, cluster)
        return (known.words, f"{known.remedy}; OLM goes on then") if known else ("", "")
    pod, pin = found
    by = lost_pins.subscribed(pod, pin, cluster)
    cause = f"pod {pod.name} {pin.words}{f': {by.words}' if by is not None else ''}"
    return cause, capital(by.remedy if by is not None else lost_pins.remedy(pod, pin, cluster))


_NOT_UPGRADEABLE: Final = "OperatorConditionNotUpgradeable"


def _refused(subscription: Object, csv: Object, cluster: Cluster) -> _Fault | None:
    """Return that a ClusterServiceVersion waits because the operator does not let itself be
    replaced.
    """
    status, installed = csv["status"], subscription.at("status", "installedCSV").text or ""
    since = status["lastTransitionTime"].text
    refused = refused_upgrades.of_operator(
        csv.namespace, installed, _words(status["message"].text), cluster
    )
    if refused is None or not _is_long(since, cluster):
        return None
    return _Fault(
        f"ClusterServiceVersion {csv.full_name} waits ({_NOT_UPGRADEABLE})",
        refused.reason,
        since,
        refused.remedy,
    )


def _not_upgradeable(subscription: Object, cluster: Cluster) -> Iterator[_Fault]:
    """Yield that HyperConverged refuses to be replaced,
    where no ClusterServiceVersion can be read.
    """
    status = subscription["status"]
    installed, current = status["installedCSV"].text or "", status["currentCSV"].text or ""
    hco = next(iter(cluster.known(HCO, subscription.namespace)), None)
    since = hco.condition("Upgradeable")["lastTransitionTime"].text if hco is not None else None
    plan = _plan(subscription, cluster)
    done = plan is not None and plan.at("status", "phase").text == "Complete"
    waits = bool(installed) and bool(current) and installed != current and done
    if (
        not waits
        or not _is_long(since, cluster)
        or not _is_long(status["lastUpdated"].text, cluster)
    ):
        return
    if refused := refused_upgrades.of_operator(subscription.namespace, installed, "", cluster):
        title = f"Subscription {subscription.full_name} waits for {installed}"
        yield _Fault(title, refused.reason, status["lastUpdated"].text, refused.remedy)


def _unready_since(csv: Object, known: Sequence[Object]) -> Iterator[str | None]:
    """Yield since when a ClusterServiceVersion has not succeeded, or another one waits for that:
    between two tries its phase changes.

    OLM gives an installation up after 5 minutes, and begins it again
    (operator-lifecycle-manager:pkg/controller/operators/olm/operator.go#transitionCSVState). The
    release that it replaces is Replacing from the begin to the end of every update.
    """
    status = csv["status"]
    since = status["lastTransitionTime"].text
    replaced = [each for each in known if _phase(each) in _REPLACED]
    if csv in replaced:  # it had succeeded before that
        yield since
        return
    for each in reversed(list(status["conditions"].items())):
        if each["phase"].text == "Succeeded":
            break
        since = each["lastTransitionTime"].text or since
    yield since
    yield from (each["status"]["lastTransitionTime"].text for each in replaced)


def _phase(csv: Object) -> str:
    return csv.at("status", "phase").text or ""


_REPLACED: Final = ("Replacing", "Deleting")
"""Phases of the old release of an update: its successor says how the update goes."""
_PHASES: Final = {
    "Failed": "failed",
    "Pending": "stays Pending",
    "InstallReady": "stays InstallReady",
    "Installing": "stays Installing",
    "Replacing": "stays Replacing",
    "Deleting": "stays Deleting",
    "Unknown": "is Unknown",
}


def _words(text: str | None) -> str:
    return cut_middle(" ".join((text or "").split()).rstrip("."), _LONGEST)
