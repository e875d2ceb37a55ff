"""Running VMIs: what KubeVirt publishes on them, who owns them, on which node they are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from virt_admit.model.cluster import Cluster, Unseen, gather
from virt_admit.model.kinds import VM, VMI
from virt_admit.model.kubevirt import lifecycle, migrations, vms
from virt_admit.model.kubevirt.lifecycle import Then
from virt_admit.model.objects import Object
from virt_admit.model.reads import CONDITIONS, Reads

READS: Final[Reads] = {
    VMI: (
        *("metadata.labels", "metadata.ownerReferences", "metadata.creationTimestamp"),
        *("spec.evictionStrategy", "status.nodeName", "status.phase", "status.evacuationNodeName"),
        *(*CONDITIONS, "status.conditions.reason"),
    )
}
"""What this module and the eviction strategy need of VMIs."""

OWNER_READS: Final[Reads] = {VM: ("spec.running", "spec.runStrategy")}
"""What ``comes_back`` looks up."""


def running(vmi: Object) -> bool:
    """Whether the guest runs and nobody is stopping it."""
    return vmi.at("status", "phase").value == "Running" and not vmi.deleted


def migratable(vmi: Object) -> bool | None:
    """The condition ``LiveMigratable``; None: not known yet."""
    return {"True": True, "False": False}.get(vmi.condition("LiveMigratable")["status"].text or "")


def blocking_reason(vmi: Object) -> str:
    """Why a VMI that is not known to be migratable cannot migrate: the reason that KubeVirt gives."""
    condition = vmi.condition("LiveMigratable")
    if migratable(vmi) is None:
        return "LiveMigratable not reported yet"
    return condition["reason"].text or "LiveMigratable False"


# --- who owns them, and starts them again ----------------------------------------------------------------------------


def owner(vmi: Object, kind: str) -> str | None:
    """The name of the owner of that kind, or None."""
    owners = vmi.metadata["ownerReferences"]
    for each in owners.value if owners.is_list else ():  # read for every VMI of a cluster, hence without fields
        if isinstance(each, dict) and each.get("kind") == kind:
            name = each.get("name")
            return name if isinstance(name, str) else None
    return None


def owner_vm(vmi: Object, cluster: Cluster) -> Object | None:
    """The VM that the VMI is an instance of; None if it has none, or it is gone.

    Raises:
        Unseen: it has one that cannot be seen.
    """
    name = owner(vmi, "VirtualMachine")
    return None if name is None else cluster.get(VM, vms.namespace_of(vmi), name)


class Return(NamedTuple):
    """Whether something starts a VM again, and why."""

    comes: bool
    why: str
    remedy: str = ""
    """What would make it come back."""


def comes_back(vmi: Object, cluster: Cluster, *, lost: bool = False) -> Return:
    """Whether the VM runs again after a clean shutdown, such as that of a drain, or after its node was ``lost`` (9.2).

    Raises:
        Unseen: its VM, or what its VM wants, cannot be told.
    """
    if owner(vmi, "VirtualMachineInstanceReplicaSet"):
        return Return(True, "its replica set makes another")
    name = owner(vmi, "VirtualMachine")
    if name is None and vmi.controller is not None:
        raise Unseen(f"what {vmi.controller['kind'].text} {vmi.controller['name'].text} does with its VMI")
    if name is None:
        return Return(False, "no VM owns it", "make it a VirtualMachine")
    vm = owner_vm(vmi, cluster)
    if vm is None or vm.deleted:
        return Return(False, f"its VM {name} is gone" if vm is None else "its VM is being deleted")
    wants = vms.run_strategy(vms.vm_spec(vm))
    if wants is None or wants not in lifecycle.RUN_STRATEGY:
        raise Unseen(f"the run strategy of {VM} {vm.full_name}")
    outcomes = lifecycle.RUN_STRATEGY[wants]
    if (outcomes.node_lost if lost else outcomes.drain) is Then.RESTARTED:
        return Return(True, f"runStrategy {wants}")
    return Return(False, f"runStrategy {wants}", "set runStrategy Always, or start it by hand afterwards")


# --- which VMIs are on a node --------------------------------------------------------------------------------------


class _OnNodes(NamedTuple):
    by_node: Mapping[str, tuple[Object, ...]]
    unseen: str
    """What there may be more of; empty: nothing."""


def on_node(cluster: Cluster, node: str) -> Iterator[Object]:
    """The VMIs that have not ended and run on a node; where they are moving, the node that they come from.

    Raises:
        Unseen: after those that are known, if there may be more.
    """
    found = cluster.cached(_on_nodes)
    yield from found.by_node.get(node, ())
    if found.unseen:
        raise Unseen(found.unseen)


def occupied(cluster: Cluster) -> Collection[str]:
    """The names of the nodes on which some known VMI runs."""
    return cluster.cached(_on_nodes).by_node.keys()


def _on_nodes(cluster: Cluster) -> _OnNodes:
    found, unseen = gather(cluster.list(VMI))
    by_node: dict[str, list[Object]] = {}
    for vmi in found:
        node = vmi.at("status", "nodeName").text
        if node and vmi.at("status", "phase").text not in migrations.FINAL_PHASES:
            by_node.setdefault(node, []).append(vmi)
    return _OnNodes({node: tuple(vmis) for node, vmis in by_node.items()}, unseen)
