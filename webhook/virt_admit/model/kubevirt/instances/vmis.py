"""Running VMIs: their published conditions, their owners and their nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import about, kubectl, typed, virtctl
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, each, entry, unlisted
from virt_admit.model.kubernetes.kinds import VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.kubevirt.instances import lifecycle, vms
from virt_admit.model.kubevirt.instances.lifecycle import Then
from virt_admit.model.lookups import find

GENERATION: Final = "kubevirt.io/vm-generation"
"""The annotation of a VMI that a VirtualMachine has made
(kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#setGenerationAnnotation).
"""
READS: Final[Reads] = {
    VMI: (
        f"metadata.annotations.{GENERATION}",
        *("metadata.labels", "metadata.ownerReferences", "metadata.creationTimestamp"),
        *("spec.evictionStrategy", "status.nodeName", "status.phase", "status.evacuationNodeName"),
        *(*CONDITIONS, "status.conditions.reason"),
    )
}
"""What this module and the eviction strategy need of VMIs."""

OUTDATED: Final = "kubevirt.io/outdatedLauncherImage"
"""Label of a VMI whose virt-launcher is older than the running KubeVirt."""

OWNER_READS: Final[Reads] = {VM: ("spec.running", "spec.runStrategy", "status.stateChangeRequests")}
"""The fields that ``comes_back`` reads."""


def running(vmi: Object) -> bool:
    """Whether the guest runs and the VMI is not being deleted."""
    return vmi.at("status", "phase").value == "Running" and not vmi.deleted


def migratable(vmi: Object) -> bool | None:
    """Return the condition ``LiveMigratable``; None: not known yet."""
    return {"True": True, "False": False}.get(vmi.condition("LiveMigratable")["status"].text or "")


def blocking_reason(vmi: Object) -> str:
    """Return KubeVirt's reason why a VMI that is not known to be migratable cannot migrate."""
    condition = vmi.condition("LiveMigratable")
    if migratable(vmi) is None:
        return "LiveMigratable not reported yet"
    return condition["reason"].text or "LiveMigratable False"


_RESIZES: Final = ("HotVCPUChange", "HotMemoryChange")
HOTPLUGS: Final = (*_RESIZES, "MigrationRequired")
"""The conditions of hotplugs of CPUs, memory and interfaces that the guest does not have yet."""


def is_resized(vmi: Object) -> bool:
    """Return whether CPUs or memory were hotplugged that only a migration into a larger pod brings
    to the guest.

    Source: kubevirt/kubevirt:pkg/virt-controller/watch/vmi/lifecycle.go#syncHotplugCondition.
    """
    return any(vmi.is_true(kind) for kind in _RESIZES)


_GRACE: Final = 30
"""Seconds (pkg/virt-controller/services/template.go#gracePeriodInSeconds)."""


def grace_seconds(vmi: Object) -> int:
    """Return the seconds that a guest has to shut down."""
    said = vmi.at("spec", "terminationGracePeriodSeconds").integer
    return _GRACE if said is None else clock.bounded(said)


# --- who owns them, and starts them again ---------------------------------------------------------


def owner(vmi: Object, kind: str) -> str | None:
    """Return the name of the owner of that kind, or None."""
    owners = vmi.metadata["ownerReferences"]
    # no fields: this runs for every VMI
    for owner_reference in owners.value if owners.is_list else ():
        if isinstance(owner_reference, dict) and owner_reference.get("kind") == kind:
            name = owner_reference.get("name")
            return name if isinstance(name, str) else None
    return None


def owner_vm(vmi: Object, cluster: Cluster) -> Object | None:
    """Return the VM of the VMI; None if it has none, or the VM does not exist any more.

    Raises:
        Unseen: it has a VM that cannot be read.
    """
    name = owner(vmi, "VirtualMachine")
    return None if name is None else cluster.get(VM, vms.namespace_of(vmi), name)


def known_vm(vmi: Object, cluster: Cluster) -> Object | None:
    """Return the same; None also if its VM cannot be read."""
    return find(cluster, VM, vms.namespace_of(vmi), owner(vmi, VM.kind))


class Return(NamedTuple):
    """Whether a VM starts again, and why."""

    comes: bool
    why: str
    remedy: str = ""
    """The remedy that makes it start again."""


def comes_back(vmi: Object, cluster: Cluster, *, lost: bool = False) -> Return:
    """Return whether the VM starts again after a clean shutdown, such as that of a drain (9.2).

    With ``lost``, return whether it starts again after its node was lost.

    Raises:
        Unseen: its VM or its run strategy cannot be determined.
    """
    if owner(vmi, "VirtualMachineInstanceReplicaSet"):
        return Return(True, "its replica set makes another")
    name = owner(vmi, "VirtualMachine")
    if name is None and vmi.controller is not None:
        raise Unseen(
            f"what {vmi.controller['kind'].text} {vmi.controller['name'].text} does with its VMI"
        )
    if name is None:
        return Return(False, "no VM owns it", made_durable(vmi))
    vm = owner_vm(vmi, cluster)
    if vm is None or vm.deleted:
        return Return(False, f"its VM {name} is gone" if vm is None else "its VM is being deleted")
    wants = vms.run_strategy(vms.vm_spec(vm))
    if wants is None or wants not in lifecycle.RUN_STRATEGY:
        raise Unseen(f"the run strategy of {VM} {vm.full_name}")
    outcomes = lifecycle.RUN_STRATEGY[wants]
    if vmi.deleted and _is_start_asked(vm):
        return Return(True, f"runStrategy {wants}, and its restart was asked for before")
    why = f"runStrategy {wants}{', and its VMI was deleted before' if lost and vmi.deleted else ''}"
    after = outcomes.deleted if vmi.deleted else outcomes.node_lost if lost else outcomes.drain
    if after is Then.RESTARTED:
        return Return(True, why)
    if lifecycle.VIRTCTL[wants].start is None:  # Once: KubeVirt starts a VM that has no VMI
        deletes = kubectl("delete", VMI, vmi.name, vms.namespace_of(vmi))
        return Return(False, why, typed(_RERUN, deletes))
    if after is not Then.OFF:  # its owner stopped it, or it waits for a migration
        return Return(False, why)
    if vmi.deleted:
        return Return(False, why, typed(_STOPPED, virtctl("start", vm.name, vm.namespace)))
    return Return(False, why, "set runStrategy Always; or start it by hand afterwards")


_STOPPED: Final = "if it is to run again, start it when it has stopped"
_RERUN: Final = "if it is to run again, delete its VMI when it has stopped"


def made_durable(vmi: Object) -> str:
    """Return what lets a VMI start again that nothing owns. One that is left of a VirtualMachine
    may not be needed; a new VM of its name adopts it.
    """
    if vmi.annotations.get(GENERATION):
        return "create its VirtualMachine again, if its guest is still needed"
    return "make it a VirtualMachine"


def edit(found: Sequence[Object]) -> str:
    """Return the command that edits the VM of the first VMI that has one; if none has, the one that
    shows the first VMI.
    """
    own = ((owner(vmi, VM.kind), vms.namespace_of(vmi)) for vmi in found)
    edits = (kubectl("edit", VM, name, namespace) for name, namespace in own if name)
    return next(edits, about("describe", found[0], VMI) if found else "")


def may_return(vmi: Object, cluster: Cluster) -> bool:
    """Return whether a VM starts again after a loss of its node, or that is not known."""
    try:
        return comes_back(vmi, cluster, lost=True).comes
    except Unseen:
        return True


def _is_start_asked(vm: Object) -> bool:
    """Return whether a start for ``virtctl restart`` is still due, whatever the run strategy."""
    return any(
        asked["action"].text == "Start" for asked in vm.at("status", "stateChangeRequests").items()
    )


# --- which VMIs are on a node ---------------------------------------------------------------------


def on_node(cluster: Cluster, node: str) -> Iterator[Object]:
    """Yield the VMIs that have not ended and run on a node;
    a migrating VMI counts on its source node.

    Raises:
        Unseen: after the known ones, if more may exist.
    """
    yield from entry(cluster, by_node, node) or ()
    unseen = unread(cluster)
    if unseen:
        raise Unseen(unseen)


def unread(cluster: Cluster) -> str:
    """Return what could not be read although it may be a VMI; empty: all VMIs are known."""
    return unlisted(cluster, VMI) or cluster.cached(_without_node)


def _without_node(cluster: Cluster) -> str:
    """Return a VMI that runs, but does not say where; empty: there is none.

    KubeVirt writes both at once.
    """
    return next(
        (f"the node of {VMI} {name}" for name in each(cluster, VMI, _name_without_node) if name), ""
    )


def _name_without_node(vmi: Object) -> str:
    return vmi.full_name if running(vmi) and not vmi.at("status", "nodeName").text else ""


@cached
def occupied(cluster: Cluster) -> Collection[str]:
    """Return the names of the nodes on which a known VMI runs."""
    return tuple(cluster.cached(by_node))


def by_node(cluster: Cluster) -> Mapping[str, tuple[Object, ...]]:
    """Return the known VMIs that have not ended, by their node."""
    found: dict[str, list[Object]] = {}
    for node, vmi in filter(None, each(cluster, VMI, on_its_node)):
        found.setdefault(node, []).append(vmi)
    return {node: tuple(some) for node, some in found.items()}


def on_its_node(vmi: Object) -> tuple[str, Object] | None:
    """Return the node of a VMI that has not ended, and the VMI.

    None: it has no node, or has ended.
    """
    node = vmi.at("status", "nodeName").text
    if node and not vmi.ended:
        return node, vmi
    return None
