"""The reasons why a health check currently does nothing,
or does nothing for some of its objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from virt_admit.forecasts.remediation import (
    exclusions,
    remediation_steps,
    reported_status,
    unhealthy_objects,
)
from virt_admit.forecasts.remediation.unhealthy_objects import UnhealthyObject
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.kubernetes.nodes import is_control_plane
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.messages import names
from virt_admit.model.node_updates.config_pool_updates import CURRENT, DESIRED
from virt_admit.model.remediation import (
    etcd_guard,
    health_checks,
    machine_owners,
    machines,
    refused_nodes,
)
from virt_admit.model.remediation.health_checks import HealthCheck

STORM: Final = "StormActive"
"""The condition of a NodeHealthCheck that waits until its nodes have recovered for
``stormCooldownDuration``.
"""

DELAY_READS: Final[Reads] = union(
    etcd_guard.READS,
    {
        kinds.CLUSTER_VERSION: CONDITIONS,
        kinds.NODE: (
            "metadata.labels",
            *(f"metadata.annotations.{key}" for key in (CURRENT, DESIRED)),
        ),
    },
)
"""The fields that ``postponed`` and ``guarded`` read."""

METAL3_NAMESPACE: Final = "openshift-machine-api"
"""The only namespace of a Metal3RemediationTemplate for a NodeHealthCheck
(templates.go#validateTemplate).
"""


def obstacles(
    check: HealthCheck, selection: Selection, unhealthy: Sequence[UnhealthyObject], cluster: Cluster
) -> Iterator[str | Unseen]:
    """Yield the reasons why a check currently does nothing, given its unhealthy objects."""
    yield from lasting(check, cluster)
    if check.kind is kinds.NHC:
        yield from postponed(check, unhealthy, cluster)
        yield from _excluded(selection, cluster)
        for held in guarded(check, unhealthy, cluster):
            yield (
                held
                if isinstance(held, Unseen)
                else f"to {held[0]}, to keep the quorum of etcd: {held[1]}"
            )
        yield from (
            f"to {names(nodes)}: {reason}"
            for reason, nodes in refused(check, selection, cluster).items()
        )
    for reason, kept in machine_owners.kept(check, selection).items():
        yield f"to {names(machine.name for machine in kept)}: {reason}"
    for refusal in reported_status.refusals(check, selection, cluster):
        yield f"to {refusal.machine.name}: {refusal.owner} has not remediated it {refusal.lasts}"
    if check.kind is kinds.CAPI_MHC:
        yield from _capi_cluster(check, unhealthy, cluster)
    if check.kind is kinds.CAPI_MHC and check.template.present:
        yield from _requested(check, unhealthy, cluster)


def refused(
    check: HealthCheck, selection: Selection, cluster: Cluster
) -> Mapping[str, Sequence[str]]:
    """Return the nodes that a check never remediates, by the reason.

    Each remediator of a NodeHealthCheck may leave a node alone. A MachineHealthCheck needs the
    controller of the Machine.
    """
    if check.kind is not kinds.NHC:
        kept = machine_owners.kept(check, selection).items()
        return {
            reason: [node for machine in some if (node := machines.node_name(machine))]
            for reason, some in kept
        }
    steps = remediation_steps.steps(check)
    left_alone = refused_nodes.refused(
        selection, lambda node: _left_alone(steps, node, cluster)
    ).by_reason
    exhausted = list(_exhausted(check, len(steps)))
    return {**left_alone, **({_EXHAUSTED: exhausted} if exhausted else {})}


def _left_alone(steps: Sequence[remediation_steps.Step], node: Object, cluster: Cluster) -> str:
    """Return why each of these remediators leaves a node alone: the reason of the first; empty:
    one acts on it.
    """
    reasons = [remediation_steps.refusal(step, node, cluster) for step in steps]
    return reasons[0] if reasons and all(reasons) else ""


_EXHAUSTED: Final = "all its remediators have timed out, and none is left"


def _exhausted(check: HealthCheck, steps: int) -> Iterator[str]:
    """Yield the nodes for which a NodeHealthCheck starts no other remediation
    (#getCurrentTemplateWithTimeout).
    """
    for node in check.obj.at("status", "unhealthyNodes").items():
        timed_out = sum(each["timedOut"].present for each in node["remediations"].items())
        if timed_out and timed_out >= steps:
            yield node["name"].text or ""


def lasting(check: HealthCheck, cluster: Cluster) -> Iterator[str | Unseen]:
    """Yield the reasons why a check does nothing that stay until an object is changed."""
    if check.selector.errors:
        yield "its selector is malformed"
    if check.kind is not kinds.NHC and check.paused.present:
        yield f"it is paused by the annotation {health_checks.PAUSED}"
    if check.kind is kinds.NHC:
        yield from _disabled(check, cluster)
    for step in remediation_steps.steps(check):
        yield from _template(step, check, cluster)


def _template(
    step: remediation_steps.Step, check: HealthCheck, cluster: Cluster
) -> Iterator[str | Unseen]:
    try:
        template = step.template(cluster)
    except Unseen as unseen:
        yield unseen
        return
    if template is None:
        yield f"{step.title} does not exist"
    elif not template.at("spec", "template").is_map:
        yield f"{step.title} has no spec.template"
    elif (
        check.kind is kinds.NHC
        and step.kind is kinds.METAL3_TEMPLATE
        and step.namespace != METAL3_NAMESPACE
    ):
        yield f"{step.title} is not in the namespace {METAL3_NAMESPACE}"


# --- NodeHealthCheck ------------------------------------------------------------------------------


PAUSED_FOR: Final = "it is paused: "
"""How the reason begins for which an administrator has paused a NodeHealthCheck."""


def _disabled(check: HealthCheck, cluster: Cluster) -> Iterator[str | Unseen]:
    reasons = [item.text or "?" for item in check.obj.at("spec", "pauseRequests").items()]
    if reasons:
        yield f"{PAUSED_FOR}{names(reasons)}"
    try:
        conflicts = remediation_steps.conflicting(cluster)
        if conflicts:
            yield (
                "it is disabled while MachineHealthChecks exist: "
                f"{names(mhc.full_name for mhc in conflicts)}; use only one of the two kinds"
            )
    except Unseen as unseen:
        yield unseen


def _excluded(selection: Selection, cluster: Cluster) -> Iterator[str | Unseen]:
    found: dict[str, list[str]] = {}
    for node in selection.objects:
        try:
            if why := exclusions.reason(node, cluster):
                found.setdefault(why, []).append(node.name)
        except Unseen as unseen:
            yield unseen
    for why, some in found.items():
        yield f"to {names(some)}: {why}"


def guarded(
    check: HealthCheck, unhealthy: Sequence[UnhealthyObject], cluster: Cluster
) -> Iterator[tuple[str, str] | Unseen]:
    """Yield the control-plane nodes that etcd keeps from a remediation, each with the reason.

    Source: nodehealthcheck_controller.go#isControlPlaneRemediationAllowed.

    A remediation that has begun goes on, and only OpenShift has the guard.
    """
    under_way = {
        node["name"].text
        for node in check.obj.at("status", "unhealthyNodes").items()
        if any(True for _ in node["remediations"].items())
    }
    waiting = [
        each.name for each in unhealthy if is_control_plane(each.obj) and each.name not in under_way
    ]
    if not waiting:
        return
    versions_known, unread = gather(cluster.list(kinds.CLUSTER_VERSION))
    if not versions_known:
        if unread:
            yield Unseen(unread)
        return
    try:
        for name in waiting:
            if why := etcd_guard.refusal(name, cluster):
                yield name, why
    except Unseen as unseen:
        yield unseen


def postponed(
    check: HealthCheck, unhealthy: Sequence[UnhealthyObject], cluster: Cluster
) -> Iterator[str | Unseen]:
    """Yield what postpones every remediation of a NodeHealthCheck for now
    (nodehealthcheck_controller.go#Reconcile).
    """
    if check.kind is not kinds.NHC:
        return
    yield from upgrade(unhealthy, cluster)
    if in_storm(check):
        yield "too many nodes were unhealthy, and stormCooldownDuration has not passed since"


def in_storm(check: HealthCheck) -> bool:
    """Return whether a NodeHealthCheck waits for ``stormCooldownDuration`` after too many nodes
    were unhealthy.
    """
    return check.obj.at("spec", "stormCooldownDuration").present and check.obj.is_true(STORM)


def upgrade(unhealthy: Sequence[UnhealthyObject], cluster: Cluster) -> Iterator[str | Unseen]:
    """Yield why a cluster upgrade postpones every remediation (upgrade_checker.go#Check)."""
    updated = [target.name for target in unhealthy if _is_updated(target.obj)]
    if updated:
        yield (
            f"it waits for the update of {names(updated)}: current and desired machine "
            "configuration differ"
        )
    found, unseen = gather(cluster.list(kinds.CLUSTER_VERSION))
    if any(version.is_true("Progressing") for version in found):
        yield "it waits for the end of the cluster upgrade (ClusterVersion is Progressing)"
    elif unseen and not found:
        yield Unseen(unseen)


def _is_updated(node: Object) -> bool:
    desired = node.annotations.get(DESIRED)
    return bool(desired) and desired != node.annotations.get(CURRENT)


# --- Cluster API ----------------------------------------------------------------------------------


def _capi_cluster(
    check: HealthCheck, unhealthy: Sequence[UnhealthyObject], cluster: Cluster
) -> Iterator[str | Unseen]:
    """Yield why the state of the Cluster stops the check
    (machinehealthcheck_controller.go#Reconcile, #needsRemediation).
    """
    name = f"Cluster {check.obj.namespace}/{check.cluster_name or ''}"
    try:
        owner = cluster.get(kinds.CAPI_CLUSTER, check.obj.namespace, check.cluster_name or "")
    except Unseen as unseen:
        yield unseen
        return
    if owner is None:
        yield f"{name} does not exist"
        return
    if owner.at("spec", "paused").boolean:
        yield f"{name} is paused"
    if not unhealthy_objects.is_true(owner, "InfrastructureReady"):
        asked = any(
            target.obj.annotation(unhealthy_objects.REMEDIATE).present for target in unhealthy
        )
        yield f"{'to other machines: ' if asked else ''}the infrastructure of {name} is not ready"
    if not unhealthy_objects.is_initialized(owner):
        yield f"to workers: the control plane of {name} is not initialized"


def stopped_cluster(check: HealthCheck, cluster: Cluster) -> Iterator[str | Unseen]:
    """Yield why the Cluster of a check stops it now, as far as the Cluster says so.

    A Machine never outlives its Cluster. A list of objects that has Machines without it left it
    out.
    """
    try:
        owner = cluster.get(kinds.CAPI_CLUSTER, check.obj.namespace, check.cluster_name or "")
    except Unseen as unseen:
        yield unseen
        return
    if owner is None:
        return
    if owner.at("spec", "paused").boolean:
        yield f"Cluster {owner.full_name} is paused"
    for condition in ("InfrastructureReady", "ControlPlaneInitialized"):
        if owner.condition(condition)["status"].text not in (None, "True"):
            yield f"Cluster {owner.full_name} does not have the condition {condition}"


def _requested(
    check: HealthCheck, unhealthy: Sequence[UnhealthyObject], cluster: Cluster
) -> Iterator[str | Unseen]:
    """Yield that a remediation request keeps other machines waiting.

    The controller stops at the first machine that already has a request, and its list has no fixed
    order (machinehealthcheck_controller.go#patchUnhealthyTargets).
    """
    if len(unhealthy) < 2:
        return
    (step,) = remediation_steps.steps(check)
    request = kinds.guess(step.reference["apiVersion"].text or "", step.remediator)
    for target in unhealthy:
        try:
            found = cluster.get(request, check.obj.namespace, target.name)
        except Unseen as unseen:
            yield unseen
            return
        if found is not None:
            waiting = names(each.name for each in unhealthy if each is not target)
            yield (
                f"to {waiting}, possibly: the check stops at the request {step.remediator} "
                f"{target.name}"
            )
            return
