"""Nodes with the marks of a maintenance whose object does not exist any more.

The Node Maintenance Operator taints and cordons a node, sets the label that keeps remediators off,
and takes all of it back before it lets go of the NodeMaintenance. Up to 0.20.1 the removal of the
finalizer can start another pass, which marks the node again for an object that goes
(medik8s/node-maintenance-operator#163). An operator that is removed before its objects leaves the
marks too. Its Lease is deleted at the end of a maintenance, so one that is left is of a later pass.
Sources: medik8s/node-maintenance-operator:internal/controller/taint.go,
:internal/controller/nodemaintenance_controller.go#Reconcile #stopNodeMaintenanceImp;
medik8s/common:pkg/lease/manager.go#invalidateLease.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import LEASE, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find
from virt_admit.model.node_updates.operators.cordons import Cordon
from virt_admit.model.remediation import maintenance

_TAINT: Final = "medik8s.io/drain"
_EXCLUDED: Final = "remediation.medik8s.io/exclude-from-remediation"
_LEASES: Final = "medik8s-leases"
_HOLDER: Final = "node-maintenance"
_ENDED: Final = "UncordonNode"
"""The event of a node whose maintenance the operator has ended."""

READS: Final[Reads] = {
    NODE: ("metadata.labels", "spec.taints", "spec.unschedulable"),
    **dict.fromkeys(maintenance.KINDS, ("spec.nodeName",)),
}
LEASE_READS: Final[Reads] = {LEASE: ("spec.holderIdentity", "spec.acquireTime")}
"""What ``with_lease`` reads. In ``watch`` it would bring the heartbeats of all nodes."""
_BY: Final = "the Node Maintenance Operator, for a NodeMaintenance that does not exist any more"


def of_node(node: Object, cluster: Cluster) -> Cordon | None:
    """Return that a node has the marks of a maintenance that is over; None: it has none,
    or its NodeMaintenance may exist.
    """
    taints = node.at("spec", "taints").items()
    taint = next((each for each in taints if each["key"].text == _TAINT), None)
    if taint is None or any(unlisted(cluster, kind) for kind in maintenance.KINDS):
        return None
    every = (each for kind in maintenance.KINDS for each in cluster.known(kind))
    if any(maintenance.node(each).text == node.name for each in every):
        return None
    state = "" if node.at("spec", "unschedulable").boolean else f"tainted by {_BY}"
    waits, mark = " ".join(_facts(node, cluster)), f"taint {_TAINT}"
    return Cordon(_BY, waits, False, _remedy(node), mark=mark, by_hand=True, state=state)


def with_lease(cordon: Cordon, node: Object, cluster: Cluster) -> Cordon:
    """Return what keeps pods from a node with the Lease that shows a later pass of the operator."""
    lease = find(cluster, LEASE, _LEASES, f"node-{node.name.lower()}")
    if cordon.by != _BY or lease is None or lease.at("spec", "holderIdentity").text != _HOLDER:
        return cordon
    ended, taken = _ended(node, cluster), clock.instant(lease.at("spec", "acquireTime").text)
    again = " again" if ended is not None and taken is not None and taken >= ended else ""
    at = f" at {clock.stamp(taken)}" if taken is not None else ""
    said = f"{_HOLDER} took Lease {lease.full_name}{again}{at}."
    return cordon._replace(waits=f"{cordon.waits} {said}")


def _ended(node: Object, cluster: Cluster) -> datetime | None:
    """Return when the operator last ended a maintenance of a node; None: no event says it."""
    known = events.known(NODE.kind, _ENDED, cluster)
    own = (each for each in known if each.at("involvedObject", "name").text == node.name)
    return max(filter(None, map(events.time_of, own)), default=None)


def _facts(node: Object, cluster: Cluster) -> Iterator[str]:
    yield f"No NodeMaintenance is about {node.name}, so the operator does not take its marks back."
    if (ended := _ended(node, cluster)) is not None:
        yield f"It uncordoned the node at {clock.stamp(ended)} (event {_ENDED})."
    if _EXCLUDED in node.labels:
        yield f"The label {_EXCLUDED} keeps remediators off the node."


def _remedy(node: Object) -> str:
    """Return what takes all marks of the operator back."""
    name = argument(node.name)
    steps = [shell("kubectl", "taint", "nodes", name, f"{_TAINT}-")]
    if node.at("spec", "unschedulable").boolean:
        steps.insert(0, shell("kubectl", "uncordon", name))
    if _EXCLUDED in node.labels:
        steps.append(shell("kubectl", "label", "node", name, f"{_EXCLUDED}-"))
    update = "update that operator, which up to 0.20.1 may mark a node again as a maintenance ends"
    further = [*(f"then {each}" for each in steps[1:]), update]
    words = f"take the marks of {node.name} back by hand if no maintenance goes on"
    return typed(words, steps[0], "; ".join(further))
