"""Instance managers of a new release of Longhorn that cannot start beside those of the old one.

An update of Longhorn makes a second instance manager on each node. The old one goes once nothing
runs in it, so that it keeps what it requested while a volume is attached: its CPU, and its huge
pages if the v2 data engine is on. Each v1 instance that starts does so in the manager of the
setting default-instance-manager-image; one of the v2 data engine in any that runs (in 1.5, whose
managers have both engines, in the new one too). Sources:
longhorn/longhorn-manager:datastore/longhorn.go#listInstanceManagers,
:controller/node_controller.go#syncInstanceManagers; longhorn/longhorn#7025, #7094.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.longhorn import kubelet_refusals
from virt_admit.model.commands import shell, typed
from virt_admit.model.kubernetes import clock, workloads
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import (
    LONGHORN_MANAGER,
    LONGHORN_SETTING,
    LONGHORN_VOLUME,
    POD,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import names

READS: Final[Reads] = union(
    clock.READS,
    kubelet_refusals.READS,
    {
        LONGHORN_MANAGER: (
            *("metadata.creationTimestamp", "spec.dataEngine", "spec.image", "spec.nodeID"),
            "status.currentState",
        ),
        LONGHORN_SETTING: ("value",),
        LONGHORN_VOLUME: (
            *("spec.backendStoreDriver", "spec.dataEngine"),
            *("status.kubernetesStatus", "status.state"),
        ),
    },
)
_SETTING: Final = "default-instance-manager-image"
_RUNNING: Final = "running"
_USUAL: Final = timedelta(minutes=10)
_MOST: Final = 240


class HeldManagers(NamedTuple):
    """New instance managers that do not start while the old ones run."""

    manager: Object
    """The first of them."""
    nodes: tuple[str, ...]
    reason: str
    """As the beginning of a sentence, without its end."""
    brief: str
    remedy: str


def gets_none(manager: Object, cluster: Cluster) -> bool:
    """Return whether an instance manager certainly gets no new instance: it is a former one, and
    not of the v2 data engine alone.
    """
    return _engine(manager) == "v1" and _is_former(manager, cluster)


def _engine(manager: Object) -> str:
    return manager.at("spec", "dataEngine").text or "v1"


def _is_former(manager: Object, cluster: Cluster) -> bool:
    """Return whether the image of an instance manager is certainly not that of the setting."""
    setting = find(cluster, LONGHORN_SETTING, manager.namespace, _SETTING)
    wanted = setting["value"].text if setting is not None else None
    image = manager.at("spec", "image").text
    return bool(wanted) and bool(image) and image != wanted


def beside(manager: Object, cluster: Cluster) -> Object | None:
    """Return the former instance manager that runs on the node of one, for the same data engine;
    None: none does.
    """
    for each in cluster.known(LONGHORN_MANAGER, manager.namespace):
        here = each.at("spec", "nodeID").text == manager.at("spec", "nodeID").text
        running = each.at("status", "currentState").text == _RUNNING
        same = _engine(each) == _engine(manager)
        if here and running and same and _is_former(each, cluster):
            return each
    return None


@cached
def held(cluster: Cluster) -> HeldManagers | None:
    """Return the new instance managers for which a kubelet has no room beside the former ones;
    None: there are none.
    """
    found = {
        each.at("spec", "nodeID").text or "": (each, refused.reason)
        for each in sorted(cluster.known(LONGHORN_MANAGER), key=lambda each: each.name)
        if clock.has_lasted(each.created, _USUAL, cluster) and not _is_former(each, cluster)
        for pod in (find(cluster, POD, each.namespace, each.name),)
        for refused in (kubelet_refusals.of_pod(pod, cluster) if pod is not None else None,)
        if refused is not None and beside(each, cluster) is not None
    }
    if not found:
        return None
    nodes = sorted(found)
    manager, why = found[nodes[0]]
    former = beside(manager, cluster)
    old = f" ({_tag(former)})" if former is not None else ""
    users = _users(manager.namespace, cluster)
    lasts = clock.lasting(manager.created, cluster)
    which = f"instance managers ({_tag(manager)}) on {names(nodes, 80)}"
    keeps = f"the former ones{old} keep that until no attached volume runs in them"
    reason = (
        f"The update of Longhorn does not go on{lasts}: its new {which} are refused ({why}), "
        f"because {keeps}{users.words}. No volume is attached again meanwhile, so VMs neither "
        "move nor start again"
    )
    brief = f"the new {which} are refused ({why}): {keeps}"
    return HeldManagers(manager, tuple(nodes), reason, brief, _remedy(manager, users))


def waits(manager: Object, cluster: Cluster) -> str:
    """Return what lets an instance manager start that is refused beside a former one; empty: none
    runs there.
    """
    if beside(manager, cluster) is None:
        return ""
    return _remedy(manager, _users(manager.namespace, cluster))


class _Users(NamedTuple):
    """The VMs whose volumes are attached, those of v2 volumes first."""

    v2: Sequence[str]
    v1: Sequence[str]

    @property
    def words(self) -> str:
        """As `` (VM a/b with a v2 volume, VM a/c)``; empty: not known."""
        parts = [f"VM {each} with a v2 volume" for each in self.v2]
        parts += [f"VM {each}" for each in self.v1]
        return f" ({names(parts, _MOST)})" if parts else ""


def _users(namespace: str, cluster: Cluster) -> _Users:
    found: dict[str, bool] = {}
    for volume in cluster.known(LONGHORN_VOLUME, namespace):
        status, spec = volume["status"], volume["spec"]
        if status["state"].text != "attached":
            continue
        engine = spec["dataEngine"].text or spec["backendStoreDriver"].text
        seen = status["kubernetesStatus"]
        for each in seen["workloadsStatus"].items():
            if each["workloadType"].text == "VirtualMachineInstance":
                vm = f"{seen['namespace'].text}/{each['workloadName'].text}"
                found[vm] = found.get(vm, False) or engine == "v2"
    by = {of: sorted(each for each, is_v2 in found.items() if is_v2 is of) for of in (True, False)}
    return _Users(by[True], by[False])


def _tag(manager: Object) -> str:
    return workloads.image_tag(manager.at("spec", "image").text or "")


def _remedy(manager: Object, users: _Users) -> str:
    """Return what lets both be there, or the former ones end. Deleting one breaks the disks of all
    VMs whose engines run in it.
    """
    first = f", first {names(users.v2, 120)}" if users.v2 else ""
    which = f" ({names([*users.v2, *users.v1], _MOST)})" if users.v1 or users.v2 else ""
    words = (
        f"Shut down all VMs with attached volumes{which} together{first}: the former instance "
        "managers then end by themselves and the new ones start, after which start the VMs again"
    )
    label = "longhorn.io/component=instance-manager"
    see = shell("kubectl", "get", "pods", "-n", manager.namespace, "-l", label, "-o", "wide")
    keep = (
        "do not restart one VM alone, which would stay down, and delete no instance manager: the "
        "disks run in it; or give each node room for both, as twice the huge pages, which takes a "
        "restart of its kubelet"
    )
    return typed(words, see, keep)
