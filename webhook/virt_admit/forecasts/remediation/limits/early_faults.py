"""Objects that use up the limit of a health check and that it does not act on: a Machine that
starts or goes, and a node that is rebooted on purpose for less than the time of its condition.

Such an object is not healthy for the controller, and not unhealthy either. Sources:
kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/machinehealthcheck_targets.go
#healthCheckTargets, machinehealthcheck_controller.go#unhealthyMachineCount;
openshift/machine-api-operator:pkg/controller/machinehealthcheck/machinehealthcheck_controller.go
#internalRemediation (none of a Machine that is being deleted).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.remediation import awaited_return, remediation_steps, unhealthy_objects
from virt_admit.forecasts.remediation.unhealthy_objects import UnhealthyObject
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.remediation import bare_metal, machine_drain, machines
from virt_admit.model.remediation.health_checks import HealthCheck

READS: Final[Reads] = union(
    awaited_return.READS, bare_metal.POWER_READS, machine_drain.DELETED_READS
)
_GOES: Final = timedelta(hours=1)
"""A Machine is deleted in less than this, unless a hook or a pod of its node holds that up."""


def passing(
    check: HealthCheck, selection: Selection, counted: int, cluster: Cluster
) -> Mapping[str, str]:
    """Return why each object is not healthy that a check counts, by name; empty: it acts on one of
    them later, or what they all are is not known.
    """
    found = list(unhealthy_objects.unhealthy(check, selection, cluster))
    known = {each.name: each for each in found if not isinstance(each, Unseen)}
    if len(known) < len(found) or len(known) != counted:
        return {}
    why = {name: _passing(check, each, cluster) for name, each in known.items()}
    return why if all(why.values()) else {}


def _passing(check: HealthCheck, found: UnhealthyObject, cluster: Cluster) -> str:
    """Return what an object does that ends by itself; empty: nothing is known to."""
    obj = found.obj
    if obj.deleted:
        age = clock.since(obj.metadata["deletionTimestamp"].text, cluster)
        goes = age is not None and age < _GOES and not machine_drain.is_held_up(obj)
        return found.why if goes else ""
    if found.starts_until is not None:
        return found.why
    name = obj.name if check.kind is kinds.NHC else machines.node_name(obj)
    node = find(cluster, kinds.NODE, "", name) if name else None
    if node is None or _acts(check, node, found.why, cluster):
        return ""
    host = bare_metal.serviced(node.name, cluster)
    lasts = clock.lasting(node.condition("Ready")["lastTransitionTime"].text, cluster)
    if host is not None and node.at("spec", "unschedulable").boolean:
        return f"{found.why}{lasts}, BareMetalHost {host.name} is in {bare_metal.SERVICED}"
    planned = awaited_return.is_planned(node.name, cluster)
    return f"{found.why}{lasts}, {awaited_return.awaited(node.name, cluster)}" if planned else ""


def _acts(check: HealthCheck, node: Object, why: str, cluster: Cluster) -> bool:
    """Return whether a check acts on a node now, for anything but a young condition of it."""
    symptoms = list(remediation_steps.symptoms(check))
    conditions = list(node.at("status", "conditions").items())
    if why != unhealthy_objects.matching(conditions, symptoms):
        return True
    try:
        return unhealthy_objects.has_expired(conditions, symptoms, cluster)
    except Unseen:
        return True
