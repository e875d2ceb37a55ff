"""The other nodes have less free memory than the VMs of the fullest node need.

**Why.** A drain of the fullest node, or its loss, needs that memory at once. Migrations without
room stay Pending, so the drain and an upgrade do not complete. VMs of a lost node do not start
again.

**Fix.** Add a node, move or stop VMs, or lower ``maxUnavailable`` of the MachineConfigPools if
several nodes drain at once.
"""

from virt_admit.forecasts.placement import headroom
from virt_admit.forecasts.placement.absent import owed_nodes
from virt_admit.forecasts.placement.headroom import Headroom
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.scheduler.resources import MEMORY, show
from virt_admit.rule import (
    NODE,
    Action,
    Context,
    Finding,
    Findings,
    Object,
    count,
    names,
    rule,
    union,
)


@rule(
    kinds=(NODE,),
    reads=union(headroom.READS, owed_nodes.READS),
    action=Action.WARN,
    event="MigrationImpossible",
    at_admission=False,
    sources=(
        (
            "OpenShift Virtualization, Postinstallation configuration 4.1.2, memory for live "
            "migrations"
        ),
    ),
)
def check(node: Object, context: Context) -> Findings:
    found = headroom.headroom(context.cluster)
    if found is None or found.fullest != node.name or found.free >= found.needed:
        return
    needed, free = show(MEMORY, found.needed), show(MEMORY, found.free)
    several = (
        f" of {count(found.at_once, 'node')} like this drained at once" if found.at_once > 1 else ""
    )
    yield Finding(
        node.metadata["name"].path,
        f"the VMs{several} need {needed} of memory, but the other nodes have {free} "
        f"free{_while(found)}, so a drain of this node leaves VMs without room. "
        f"{_remedy(found, context.cluster)}",
        value=node.name,
    )


def _while(found: Headroom) -> str:
    """Return which nodes are out of service and would have the room:
    they are not absent forever.
    """
    if not found.enough_later:
        return ""
    return f" while {names(found.away, 60)} {'takes' if len(found.away) == 1 else 'take'} no VMs"


def _remedy(found: Headroom, cluster: Cluster) -> str:
    if not found.enough_later:
        first = owed_nodes.first_step(cluster)
        return f"{first}, else move VMs." if first else "Add a node or move VMs."
    again = "it takes" if len(found.away) == 1 else "they take"
    return f"Drain this node only once {again} VMs again."
