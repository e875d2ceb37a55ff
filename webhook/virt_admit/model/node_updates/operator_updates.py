"""Updates of operators that the Operator Lifecycle Manager does not finish: what its own objects say, word for word.

A Subscription names the InstallPlan that installs the next ClusterServiceVersion. A failed InstallPlan is not tried again
before it is deleted. Sources: operator-framework/operator-lifecycle-manager:pkg/controller/operators/catalog/operator.go
#syncInstallPlans #validateExistingCRs #setSubsCond (ResolutionFailed has no time; the status of the Subscription has),
:pkg/controller/operators/catalog/step.go (stored versions);
operator-framework/api:pkg/operators/v1alpha1/subscription_types.go #clusterserviceversion_types.go; openshift-docs#35054.

ClusterServiceVersions are copied into every namespace, so they are read from snapshots that contain them, never from a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import INSTALL_PLAN, SUBSCRIPTION
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut, cut_middle

READS: Final[Reads] = union(
    clock.READS,
    {
        SUBSCRIPTION: (
            *CONDITIONS,
            "spec.name",
            "status.conditions.lastTransitionTime",
            "status.conditions.message",
            "status.conditions.reason",
            "status.currentCSV",
            "status.installPlanRef",
            "status.installedCSV",
            "status.lastUpdated",
        ),
        INSTALL_PLAN: ("status.conditions", "status.message", "status.phase"),
    },
)
_CSV: Final = kinds.guess("operators.coreos.com/v1alpha1", "ClusterServiceVersion")
_CRD: Final = kinds.guess("apiextensions.k8s.io/v1", "CustomResourceDefinition")._replace(namespaced=False)
_PACKAGES: Final = re.compile(
    r"kubevirt|hyperconverged|node-?healthcheck|-remediation|node-maintenance|sriov-network|nmstate|descheduler|"
    r"^(odf|ocs)-|local-storage|lvms|metallb|mtv-operator|forklift"
)
"""Packages of operators on which VMs, their nodes or their disks depend."""
_USUAL: Final = timedelta(minutes=20)
"""A ClusterServiceVersion is replaced, its Deployments are ready, and a catalog answers again, by then."""
_LONGEST: Final = 400
_STORED: Final = re.compile(
    r'risk of data loss updating "([a-z0-9.-]{1,200})": new CRD removes version (v[0-9a-z]{1,20}) that is listed as a stored'
)
_INVALID: Final = re.compile(r"error validating existing CRs? against new CRD'?s schema")


class HeldOperator(NamedTuple):
    """An operator whose update does not go on by itself."""

    subscription: Object
    reason: str
    remedy: str
    brief: str
    """The reason in as few words as a finding has."""


def held(cluster: Cluster) -> Sequence[HeldOperator]:
    """Return the operators whose update does not go on, in the order of their Subscriptions."""
    return cluster.cached(_held)


def _held(cluster: Cluster) -> tuple[HeldOperator, ...]:
    known = sorted(cluster.known(SUBSCRIPTION), key=lambda each: each.full_name)
    concerned = (each for each in known if _PACKAGES.search(each.at("spec", "name").text or ""))
    return tuple(found for each in concerned if not each.deleted for found in _of(each, cluster))


def _of(subscription: Object, cluster: Cluster) -> Iterator[HeldOperator]:
    fault = next(_faults(subscription, cluster), None)
    if fault is None:
        return
    package = subscription.at("spec", "name").text or subscription.name
    status = subscription["status"]
    now, then = (_release(status[each].text or "") for each in ("installedCSV", "currentCSV"))
    step = f" from {now} to {then}" if now and then and now != then else ""
    what = "the update" if now else "the installation"
    reason = f"{what} of operator {package}{step} is stuck{_since(fault.since, cluster)}: {fault.what}: {fault.words}"
    brief = f"{what}{f' to {then}' if step else ''} is stuck: {cut(fault.what, 120)}: {cut_middle(fault.words, 240)}."
    yield HeldOperator(subscription, reason, fault.remedy, brief)


def _release(csv: str) -> str:
    """Return the release in the name of a ClusterServiceVersion, as ``v4.8.0``."""
    return csv.partition(".")[2] or csv


def _is_long(since: str | None, cluster: Cluster) -> bool:
    """Return whether something certainly lasts for longer than usual."""
    age = clock.since(since, cluster)
    return age is not None and age >= _USUAL


def _since(since: str | None, cluster: Cluster) -> str:
    age = clock.since(since, cluster)
    return f" for {clock.duration(age)}" if age is not None else ""


class _Fault(NamedTuple):
    what: str
    words: str
    since: str | None
    remedy: str


def _faults(subscription: Object, cluster: Cluster) -> Iterator[_Fault]:
    yield from _failed_plan(subscription, cluster)
    yield from _failed_version(subscription, cluster)
    for name, what in _CONDITIONS.items():
        found = subscription.condition(name)
        words = _words(found["message"].text)
        changed = found["lastTransitionTime"].text or subscription.at("status", "lastUpdated").text
        if found["status"].text == "True" and words and (name == _PLAN_FAILED or _is_long(changed, cluster)):
            remedy = typed("Resolve what it names", about("describe", subscription, SUBSCRIPTION))
            yield _Fault(
                f"Subscription {subscription.full_name} {what}", words, found["lastTransitionTime"].text, remedy
            )


_PLAN_FAILED: Final = "InstallPlanFailed"
_CONDITIONS: Final = {
    "ResolutionFailed": "cannot be resolved",
    "BundleUnpackFailed": "cannot unpack its bundle",
    _PLAN_FAILED: "says that its InstallPlan failed",
}


def _failed_plan(subscription: Object, cluster: Cluster) -> Iterator[_Fault]:
    reference = subscription.at("status", "installPlanRef", "name").text or ""
    plan = find(cluster, INSTALL_PLAN, subscription.namespace, reference) if reference else None
    if plan is None or plan.at("status", "phase").text != "Failed":
        return
    installed = plan.condition("Installed")
    own = subscription.condition(_PLAN_FAILED)
    words = _words(plan.at("status", "message").text or installed["message"].text or own["message"].text)
    since = installed["lastTransitionTime"].text or own["lastTransitionTime"].text
    yield _Fault(
        f"InstallPlan {plan.full_name} failed", words or "it does not say why", since, _after(plan, words, cluster)
    )


def _after(plan: Object, words: str, cluster: Cluster) -> str:
    """Return what lets OLM try a failed InstallPlan again: it makes another one after the deletion."""
    again = about("delete", plan, INSTALL_PLAN)
    stored = _STORED.search(words)
    if stored is not None:
        crd, version = stored[1], stored[2]
        keeps = _storage_version(crd, cluster)
        present = f", so that each is stored as {keeps}" if keeps else " in the present version"
        command = kubectl("edit", _CRD, crd, "", "--subresource=status")
        return typed(
            f"See that every {crd.partition('.')[0]} object has been written again{present}; then take {version} out of "
            f"status.storedVersions of CustomResourceDefinition {crd} ({command}), and delete the InstallPlan, which OLM then "
            "makes again",
            again,
        )
    first = "Correct the objects that it names" if _INVALID.search(words) else "Resolve what it names"
    return typed(f"{first}; then delete the InstallPlan, which OLM makes again", again)


def _storage_version(crd: str, cluster: Cluster) -> str:
    found = next((each for each in cluster.known(_CRD) if each.name == crd), None)
    versions = found.at("spec", "versions").items() if found is not None else ()
    return next((each["name"].text or "" for each in versions if each["storage"].boolean), "")


def _failed_version(subscription: Object, cluster: Cluster) -> Iterator[_Fault]:
    """Yield the ClusterServiceVersion that is not ready for longer than usual.

    Also one that failed: OLM tries it again, as when its Deployment has no ready pod while nodes are drained
    (operator-lifecycle-manager:pkg/controller/operators/olm/operator.go#transitionCSVState).
    """
    names = {subscription.at("status", each).text for each in ("currentCSV", "installedCSV")} - {None, ""}
    for csv in cluster.known(_CSV, subscription.namespace):
        status = csv["status"]
        phase = status["phase"].text or ""
        if csv.name not in names or phase not in _PHASES:
            continue
        if _is_long(_unready_since(status), cluster):
            words = _words(status["message"].text) or status["reason"].text or "it does not say why"
            missing = "; ".join(_unmet(status["requirementStatus"]))
            remedy = typed("Resolve what it names, after which OLM goes on", about("describe", csv, _CSV))
            told = f"ClusterServiceVersion {csv.full_name} {_PHASES[phase]}"
            yield _Fault(
                told, f"{words}{f' ({missing})' if missing else ''}", status["lastTransitionTime"].text, remedy
            )


def _unready_since(status: Field) -> str | None:
    """Return since when a ClusterServiceVersion has not succeeded: between two tries its phase changes."""
    since = status["lastTransitionTime"].text
    for each in reversed(list(status["conditions"].items())):
        if each["phase"].text == "Succeeded":
            break
        since = each["lastTransitionTime"].text or since
    return since


_PHASES: Final = {
    "Failed": "failed",
    "Pending": "stays Pending",
    "InstallReady": "stays InstallReady",
    "Installing": "stays Installing",
    "Replacing": "stays Replacing",
    "Deleting": "stays Deleting",
    "Unknown": "is Unknown",
}


def _unmet(requirements: Field) -> Iterator[str]:
    """Yield the first requirements that a ClusterServiceVersion does not find."""
    unmet = [each for each in requirements.items() if each["status"].text not in ("Present", "Satisfied", None)]
    for each in unmet[:3]:
        yield f"{each['kind'].text} {each['name'].text}: {each['status'].text}"


def _words(text: str | None) -> str:
    return cut_middle(" ".join((text or "").split()).rstrip("."), _LONGEST)
