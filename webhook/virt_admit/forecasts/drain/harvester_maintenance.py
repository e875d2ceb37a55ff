"""What Harvester's maintenance mode does to VMs with a label:
it stops their guests before it drains the node.

Source:
harvester/harvester:pkg/controller/master/nodedrain/nodedrain_controller.go#listVMILabelMaintainModeStrategy,
:pkg/util/constants.go#LabelMaintainModeStrategy. kubectl drain knows nothing of the label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, each, entry
from virt_admit.model.kubernetes.kinds import NODE, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.node_updates.maintenance_updates import REQUESTED, STATUS, is_in_maintenance
from virt_admit.model.node_updates.rancher import cpu_manager_jobs
from virt_admit.model.remediation import machine_drain

LABEL: Final = "harvesterhci.io/maintain-mode-strategy"
RESTARTED: Final = "ShutdownAndRestartAfterEnable"
"""Harvester starts the VM on another node as soon as the node is empty."""
KEPT: Final = "ShutdownAndRestartAfterDisable"
"""Harvester starts the VM when the node leaves maintenance mode."""
LEFT_OFF: Final = "Shutdown"
"""Harvester does not start the VM again."""

READS: Final[Reads] = {
    NODE: (f"metadata.annotations.{REQUESTED}",),
    VMI: (f"metadata.labels.{LABEL}",),
}
"""The fields that decide it."""
_STOPPED_ON: Final = "harvesterhci.io/maintain-mode-strategy-node-name"
"""The annotation of a VM that maintenance mode has shut down, until Harvester starts it again:
the node.
"""
STOPPED_READS: Final[Reads] = union(
    cpu_manager_jobs.READS,
    machine_drain.DELETED_READS,
    {
        NODE: (f"metadata.annotations.{REQUESTED}", f"metadata.annotations.{STATUS}"),
        VM: (f"metadata.annotations.{_STOPPED_ON}", f"metadata.labels.{LABEL}", "status.created"),
    },
)
"""The fields that ``stopped`` and ``note`` read."""

_AFTERWARDS: Final = {
    RESTARTED: "and starts it elsewhere once the node is in maintenance",
    KEPT: "and starts it when the node leaves maintenance",
    LEFT_OFF: "and does not start it again",
}


def strategy(vmi: Object) -> str:
    """Return how maintenance mode shuts a VMI down; empty: it migrates like any other."""
    value = vmi.labels.get(LABEL, "")
    return value if value in _AFTERWARDS else ""


def stops(vmi: Object, cluster: Cluster) -> str:
    """Return the strategy by which maintenance mode, that was asked for, stops a VMI; empty:
    it does not.

    Raises:
        Unseen: the VMI has a strategy, and its node cannot be read.
    """
    found = strategy(vmi)
    node = cluster.get(NODE, "", vmi.at("status", "nodeName").text or "") if found else None
    return found if node is not None and node.annotation(REQUESTED).present else ""


def may_have_stopped(vmi: Object, cluster: Cluster) -> bool:
    """Return whether a VMI ends on a node that Harvester was asked to drain: a forced drain stops
    the VMs that cannot migrate.
    """
    node = find(cluster, NODE, "", vmi.at("status", "nodeName").text)
    return vmi.deleted and node is not None and node.annotation(REQUESTED).present


def reason(found: str) -> str:
    """Return what Harvester does to a VM with this strategy."""
    return f"Harvester's maintenance mode shuts it down ({LABEL}: {found}), {_AFTERWARDS[found]}"


# --- afterwards -----------------------------------------------------------------------------------

_COMPLETED: Final = "completed"
_STARTS: Final = {
    RESTARTED: "elsewhere once {} is in maintenance",
    KEPT: "when {} leaves maintenance",
}


def stopped(vm: Object, cluster: Cluster) -> str:
    """Return that maintenance mode has shut a VM down, and when Harvester starts it again; empty:
    nothing shows it.
    """
    name = vm.annotations.get(_STOPPED_ON, "")
    node = find(cluster, NODE, "", name) if name and strategy(vm) in _STARTS else None
    if node is None or not is_in_maintenance(node):
        return ""
    return (
        f"was shut down for the maintenance of {name}, and Harvester starts it again "
        f"{_STARTS[strategy(vm)].format(name)}"
    )


def note(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that a node is in maintenance mode, which VMs were shut down for it,
    and when they start again; or that a Job of Harvester works on it.
    """
    yield from cpu_manager_jobs.note(node, cluster)
    if not is_in_maintenance(node):
        return
    leaves = any(machine_drain.deleted_of(node.name, cluster))
    if node.annotations.get(STATUS) == _COMPLETED and not leaves:
        yield (
            "This node is in maintenance mode of Harvester, whose drain is completed. When the "
            "work on it is done, disable the maintenance mode in Harvester: VMs may run there "
            "again."
        )
    shut = entry(cluster, _shut_down, node.name) or {}
    for found, when in _STARTS.items():
        if some := sorted(shut.get(found, ())):
            were, them = ("were", "them") if len(some) > 1 else ("was", "it")
            starts = f"Harvester starts {them} again {when.format('this node')}"
            yield f"{names(some, 120)} {were} shut down for this maintenance. {starts}."


def _shut_down(cluster: Cluster) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return the VMs that were shut down for the maintenance of each node, by strategy."""
    found: dict[str, dict[str, list[str]]] = {}
    for node, how, name in filter(None, each(cluster, VM, _shut)):
        found.setdefault(node, {}).setdefault(how, []).append(name)
    return found


def _shut(vm: Object) -> tuple[str, str, str] | None:
    node = vm.annotations.get(_STOPPED_ON, "")
    return (
        (node, strategy(vm), vm.full_name)
        if node and not vm.at("status", "created").boolean
        else None
    )
