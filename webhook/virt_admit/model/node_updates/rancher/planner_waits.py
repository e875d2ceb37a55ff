"""What the planner of Rancher waits for before it goes on with a node.

It writes the same words into the Machine of the node, its RKEControlPlane and Rancher's Cluster.
The Machine keeps the time of its first words; the Cluster has the time of the last ones. A probe
of kube-controller-manager or kube-scheduler trusts nothing but the self-signed certificate of that
component, which lasts a year, and which no rotation of RKE2 renewed for long. Sources:
rancher/rancher: pkg/capr/planner/planner.go#setMachineConditionStatus, :pkg/capr/planner/store.go
#probesMessage, :pkg/capr/planner/probe.go; harvester/harvester#3863, #5828; rancher/rancher#41125.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model import machine_nodes
from virt_admit.model.evidence.writes.fleet_objects import LOCAL
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, RANCHER_CLUSTER
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import WHOLE_CONDITIONS, Reads, union
from virt_admit.model.node_updates import update_orders
from virt_admit.model.remediation import machine_drain

READS: Final[Reads] = union(
    clock.READS,
    machine_nodes.READS,
    {CAPI_MACHINE: WHOLE_CONDITIONS, RANCHER_CLUSTER: ("status.conditions",)},
)
_PROBES: Final = re.compile(r"\bwaiting for probes: ([\w-]+(?:, [\w-]+)*)")


class PlannerWait(NamedTuple):
    """What Rancher waits for at a node."""

    machine: Object
    by: str
    """The object that says it, with its kind."""
    words: str
    since: str | None
    exact: bool
    """Whether ``since`` is the begin of this wait, not of all that Rancher does at the node."""

    @property
    def probes(self) -> tuple[str, ...]:
        """The probes for which it waits; empty: it waits for something else."""
        found = _PROBES.search(self.words)
        return tuple(found[1].split(", ")) if found is not None else ()

    def lasts(self, cluster: Cluster) -> timedelta:
        """Return for how long; nothing if that is not known."""
        return clock.since(self.since, cluster) or timedelta()


def of_node(node: str, cluster: Cluster) -> PlannerWait | None:
    """Return what the planner waits for at a node; None: for nothing, or that is not known."""
    for machine in cluster.known(CAPI_MACHINE):
        if machine_nodes.node_name(machine, cluster) == node:
            return of_machine(machine, cluster)
    return None


def of_machine(machine: Object, cluster: Cluster) -> PlannerWait | None:
    """Return what the planner waits for at the node of a Machine; None: for nothing, or that is not
    known.
    """
    for each in cluster.known(RANCHER_CLUSTER, LOCAL) if machine.namespace == LOCAL else ():
        updated = each.condition("Updated")
        words = updated["message"].words
        if updated["status"].text in ("False", "Unknown") and f" {machine.name}: " in words:
            by = f"{update_orders.title(each)}, Machine {machine.name}"
            since = update_orders.since(updated)
            return PlannerWait(machine, by, words.partition(f" {machine.name}: ")[2], since, True)
    own = machine_drain.condition(machine, "Reconciled")
    words = own["message"].words
    if own["status"].text not in ("False", "Unknown") or not words:
        return None
    title = f"Machine {machine.full_name}"
    return PlannerWait(machine, title, words, own["lastTransitionTime"].text, False)
