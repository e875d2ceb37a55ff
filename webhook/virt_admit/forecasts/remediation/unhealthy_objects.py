"""The objects that a health check judges: which of them are unhealthy now,
and which of them it leaves alone.

A controller counts more objects against the limit than it remediates. A Machine that is being
deleted, that has no node yet or whose condition has not lasted long enough is not healthy, so it
uses up the limit (openshift/machine-api-operator:
machinehealthcheck_controller.go#healthCheckTargets).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.model import machine_nodes
from virt_admit.model.commands import merge_patch
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.units import format_duration
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut, names
from virt_admit.model.remediation import health_checks, machine_drain, machine_starts, machines
from virt_admit.model.remediation.health_checks import TERMINATING, HealthCheck

EXTERNAL_REMEDIATION: Final = "host.metal3.io/external-remediation"
"""The annotation of a Machine whose host the bare metal operator has to power-cycle
(…#externalRemediationAnnotationExists).
"""

REMEDIATE: Final = "cluster.x-k8s.io/remediate-machine"
"""The annotation that makes a Cluster API Machine unhealthy at once
(machinehealthcheck_targets.go#needsRemediation).
"""


class UnhealthyObject(NamedTuple):
    """An object that counts as unhealthy, and why."""

    name: str
    why: str
    obj: Object
    """The Node of a NodeHealthCheck, else the Machine."""
    starts_until: datetime | None = None
    """When the time of its start is over. None: it does not start, or that is not known."""


def unhealthy(
    check: HealthCheck, selection: Selection, cluster: Cluster
) -> Iterator[UnhealthyObject | Unseen]:
    """Yield the selected objects that count as unhealthy now,
    some of them before the time of their condition.
    """
    judge = (
        _node
        if check.kind is kinds.NHC
        else _capi_machine
        if check.kind is kinds.CAPI_MHC
        else _machine
    )
    for obj in selection.objects:
        try:
            why = judge(check, obj, cluster)
        except Unseen as unseen:
            yield unseen
            continue
        if why:
            yield UnhealthyObject(obj.name, why, obj, _starts_until(check, obj, cluster))


def _starts_until(check: HealthCheck, obj: Object, cluster: Cluster) -> datetime | None:
    """Return until when a Machine may become a Node, or a Node may be Ready for the first time."""
    born, now = clock.instant(obj.created), clock.now(cluster)
    allowed = _of_first_ready(check, obj, born) if check.kind is kinds.NHC else None
    if check.kind is not kinds.NHC and not machines.node_name(obj):
        allowed = check.known_startup_time()
    if born is None or now is None or not allowed or obj.deleted:
        return None
    with contextlib.suppress(OverflowError):  # of a year that no clock shows
        ends = born + timedelta(microseconds=allowed // 1000)
        return ends if ends > now else None
    return None


def _of_first_ready(check: HealthCheck, node: Object, born: datetime | None) -> int | None:
    """Return the time that a NodeHealthCheck leaves a Node that has not been Ready since it was
    created, in nanoseconds; None: it has been, or none is set.
    """
    ready = node.condition("Ready")
    changed = clock.instant(ready["lastTransitionTime"].text)
    if born is None or changed is None or changed - born > _REGISTERS:
        return None
    shown = ("Ready", ready["status"].text)
    symptoms = remediation_steps.symptoms(check)
    return next((each.time for each in symptoms if (each.type, each.status) == shown), None)


_REGISTERS: Final = timedelta(minutes=1)
"""A kubelet that registers its Node reports at once that it is not Ready yet."""


def matching(
    conditions: Iterable[Field],
    symptoms: Iterable[remediation_steps.Symptom],
    *,
    last: bool = False,
) -> str:
    """Return the first symptom that these conditions show, as ``type=status``;
    empty if they show none.

    A list that holds a type twice counts with its first entry, or with the last one
    (…#matchesUnhealthyConditions of NodeHealthCheck builds a map).
    """
    found: dict[str, str] = {}
    for condition in conditions:
        kind, status = condition["type"].text or "", condition["status"].text or ""
        if last or kind not in found:
            found[kind] = status
    pairs = ((symptom.type, symptom.status) for symptom in symptoms)
    return next(
        (f"{kind}={status}" for kind, status in pairs if kind and found.get(kind) == status), ""
    )


def _node(check: HealthCheck, node: Object, cluster: Cluster) -> str:
    conditions = list(node.at("status", "conditions").items())
    symptoms = remediation_steps.symptoms(check)
    why = matching(conditions, symptoms, last=True)
    terminating = any(condition["type"].text == TERMINATING for condition in conditions)
    if not (why and terminating and _any_machine_health_check(cluster)):
        return why
    # the termination handler replaces this machine (mhc/checker.go#NeedIgnoreNode), but only a node
    # whose time is over is left to it; one that is about to match is not healthy either
    # (nodehealthcheck_controller.go#checkNodeConditions)
    return "" if has_expired(conditions, symptoms, cluster) else why


def has_expired(
    conditions: Iterable[Field], symptoms: Iterable[remediation_steps.Symptom], cluster: Cluster
) -> bool:
    """Return whether any of these conditions has lasted as long as its symptom demands.

    Without a time stamp it has.

    Raises:
        Unseen: the time cannot be determined.
    """
    shown = {condition["type"].text: condition for condition in conditions}
    times = {symptom: shown[symptom.type] for symptom in symptoms if symptom.type in shown}
    lasting = [
        (symptom.time, condition["lastTransitionTime"].text)
        for symptom, condition in times.items()
        if symptom.time is not None and condition["status"].text == symptom.status
    ]
    if any(since is None for _, since in lasting):
        return True
    ages = [(time, clock.since(since, cluster)) for time, since in lasting]
    if any(age is not None and age / timedelta(microseconds=1) * 1000 > time for time, age in ages):
        return True
    if any(age is None for _, age in ages):
        raise Unseen("the time")
    return False


def _any_machine_health_check(cluster: Cluster) -> bool:
    found, unseen = gather(cluster.list(kinds.MHC))
    if not found and unseen:
        raise Unseen(unseen)
    return bool(found)


def _machine(check: HealthCheck, machine: Object, cluster: Cluster) -> str:
    name = machines.node_name(machine)
    if machine.at("status", "phase").text == "Failed":
        return (
            f"Failed: deleted in spite of {health_checks.EXTERNAL}"
            if _external(check)
            else "Failed"
        )
    if machine.deleted:
        return "is being deleted"
    if machine.annotation(EXTERNAL_REMEDIATION).present:
        return "waits for external remediation"
    if not name:
        return _without_node(check, machine, cluster)
    node = cluster.get(kinds.NODE, "", name)
    return _conditions_of(node, check) if node else "its node does not exist"


def _without_node(check: HealthCheck, machine: Object, cluster: Cluster) -> str:
    """Return that a Machine has no Node.

    One that starts counts against the limit, but it is not remediated yet.
    """
    allowed = check.known_startup_time()
    age = clock.age(machine, cluster)
    if allowed and age is not None and age / timedelta(microseconds=1) * 1000 < allowed:
        return f"starts: no node yet, after {duration(age)} of {format_duration(allowed)}"
    return "has no node"


def _external(check: HealthCheck) -> bool:
    """Return whether hosts are power-cycled, except those of failed Machines
    (…#internalRemediation).
    """
    return check.external and not check.template.present


def _conditions_of(node: Object, check: HealthCheck) -> str:
    return matching(node.at("status", "conditions").items(), remediation_steps.symptoms(check))


# --- Cluster API ----------------------------------------------------------------------------------


def _capi_machine(check: HealthCheck, machine: Object, cluster: Cluster) -> str:
    if machine.annotation(REMEDIATE).present:
        return f"has the annotation {REMEDIATE}"
    if machine.deleted:
        return "is being deleted"
    if failed := failure(machine):
        return f"Failed: {cut(failed.partition(': ')[0], 40)}"
    name = machines.node_name(machine)
    if not name:
        return _without_node(check, machine, cluster)
    owner = capi_cluster(check, cluster)
    why = matching(conditions(machine), remediation_steps.machine_symptoms(check))
    if owner is not None and not is_initialized(owner):
        reported = why and machine.label(machines.CAPI_CONTROL_PLANE_LABEL).present
        return (
            f"reports {why}"
            if reported
            else "its node is not read before the control plane is initialized"
        )
    if owner is not None and not is_true(owner, "InfrastructureReady"):
        _capi_node(machine, name, cluster)  # it must exist, but its conditions are not judged yet
        return ""
    if not why and not (check.template.present and machine_drain.recovered(machine)):
        why = _reported(machine)
    if why:
        return f"reports {why}"
    return _conditions_of(_capi_node(machine, name, cluster), check)


_JUDGED: Final = "HealthCheckSucceeded"
"""The condition in which a health check writes what it thinks of a Machine. Releases that count a
failure write it in the conditions of v1beta1 alone.
"""


def failure(machine: Object) -> str:
    """Return why a Machine of Cluster API counts as unhealthy although its node may be healthy;
    empty: it does not.

    The newest releases no longer count it
    (internal/controllers/machinehealthcheck/machinehealthcheck_targets.go #needsRemediation of 1.11
    does, core/reconcilers/machinehealthcheck/machinehealthcheck_targets.go of 1.14 does not). They
    write that the check has succeeded.
    """
    said = [each["status"].text for each in _judged(machine)]
    return "" if "True" in said and "False" not in said else machine_starts.failure(machine)


class Repair(NamedTuple):
    """What an administrator does, and the command for the first object."""

    words: str
    command: str


def repair(check: HealthCheck, selection: Selection, cluster: Cluster) -> Iterator[Repair]:
    """Yield how Machines no longer count as unhealthy that have failed although their nodes are
    Ready.

    A higher limit would have them deleted with the VMs of their nodes
    (metal3-io/cluster-api-provider-metal3#2055).
    """
    known = selection.objects if check.kind is kinds.CAPI_MHC else ()
    failed = [each for each in known if failure(each) and _has_ready_node(each, cluster)]
    for first in failed[:1]:
        cleared: dict[str, object] = {"failureReason": None, "failureMessage": None}
        older = not first.at("status", "deprecated", "v1beta1").present
        data = {"status": cleared if older else {"deprecated": {"v1beta1": cleared}}}
        yield Repair(
            "clear failureReason and failureMessage of the infrastructure objects, then of Machine "
            f"{names((each.name for each in failed), 80)}: the nodes are Ready. A higher limit "
            "would delete them",
            merge_patch(
                kinds.CAPI_MACHINE, first.name, first.namespace, data, "--subresource=status"
            ),
        )


def _has_ready_node(machine: Object, cluster: Cluster) -> bool:
    node = find(cluster, kinds.NODE, "", machine_nodes.node_name(machine, cluster))
    return node is not None and node.is_true("Ready")


def _reported(machine: Object) -> str:
    """Return what a health check says against a Machine,
    such as ``HealthCheckSucceeded=False (UnhealthyNode)``.
    """
    against = (each for each in _judged(machine) if each["status"].text == "False")
    return next((f"{_JUDGED}=False ({each['reason'].text or 'no reason'})" for each in against), "")


def _judged(machine: Object) -> Iterator[Field]:
    status = machine["status"]
    for place in (status, status["v1beta2"], status.at("deprecated", "v1beta1")):
        yield from (each for each in place["conditions"].items() if each["type"].text == _JUDGED)


def _capi_node(machine: Object, name: str, cluster: Cluster) -> Object:
    """Return the Node of a Cluster API Machine.

    The management cluster seldom holds the nodes of its workload clusters, so a missing Node means
    nothing, and another cluster's Node can have the same name.

    Raises:
        Unseen: the Node is not in this cluster.
    """
    node = cluster.get(kinds.NODE, "", name)
    if node is None or node.annotations.get(machine_nodes.CAPI_OWNER, machine.name) != machine.name:
        raise Unseen(f"node {name} of the workload cluster")
    return node


def capi_cluster(check: HealthCheck, cluster: Cluster) -> Object | None:
    """Return the Cluster API Cluster of a check, or None if it cannot be read or does not exist."""
    return find(cluster, kinds.CAPI_CLUSTER, check.obj.namespace, check.cluster_name or "")


def conditions(obj: Object) -> Iterable[Field]:
    """Return the conditions that the controller of Cluster API reads,
    in either version of the API.
    """
    newer = obj.at("status", "v1beta2", "conditions")
    return (newer if newer.present else obj.at("status", "conditions")).items()


def is_initialized(owner: Object) -> bool:
    """Return whether the control plane of a Cluster was initialized. One that is ready has been,
    also where a list of objects leaves the condition out."""
    kind = "ControlPlaneInitialized"
    if is_true(owner, kind):
        return True
    is_left_out = not owner.condition(kind).present
    status, newer = owner["status"], ("initialization", "controlPlaneInitialized")
    return is_left_out and True in (status["controlPlaneReady"].boolean, status.at(*newer).boolean)


def is_true(obj: Object, kind: str) -> bool:
    return matching(conditions(obj), (remediation_steps.Symptom(kind, "True", 0),)) != ""
