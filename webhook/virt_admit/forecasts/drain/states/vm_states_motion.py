"""Pods and migrations of a cluster, grouped by VMI in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster, Entries, each, keeps, unlisted
from virt_admit.model.kubernetes.kinds import POD, VMI, VMIM
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import launcher_pod, vm_ledger
from virt_admit.model.lookups import find


@dataclass(frozen=True, slots=True)
class Motion:
    """Pods and migrations of a cluster, grouped."""

    pods: Mapping[tuple[str, str], tuple[Object, ...]]
    """Launcher pods by namespace and name of their VMI, oldest first,
    also those that have ended.
    """
    targets: Mapping[str, Object]
    """The newest target pod of each migration, by its uid."""
    attachments: Mapping[str, tuple[Object, ...]]
    """Pods that attach volumes, by the uid of the launcher pod that owns them."""
    moving: tuple[tuple[str, str], ...]
    """The VMs whose migrations hold a place, by namespace and name."""
    running: Mapping[str, tuple[tuple[str, str], ...]]
    """Those of them that count for a node."""
    arriving: Mapping[str, tuple[Object, ...]]
    """VMIs of other nodes that migrate to a node."""
    left: Mapping[str, tuple[Object, ...]]
    """VMIs that have left a node while their old pod has not ended."""
    stranded: Mapping[str, tuple[Object, ...]]
    """VMIs that never came to a node, but whose target pod there has not ended:
    their migration was cancelled.
    """
    pods_complete: bool


def motion(cluster: Cluster) -> Motion:
    """Return the pods and migrations of a cluster, grouped once."""
    if not keeps(cluster):
        return cluster.cached(_motion)
    groups: dict[str, Any] = {name: Entries(cluster, group) for name, group in _GROUPS.items()}
    return Motion(**groups, pods_complete=not unlisted(cluster, POD))


def _group(name: str, cluster: Cluster) -> Mapping[Any, Any]:
    groups: Mapping[Any, Any] = getattr(cluster.cached(_motion), name)
    return groups


_GROUPS: Final = {
    field.name: partial(_group, field.name)
    for field in fields(Motion)
    if field.name != "pods_complete"
}


def _motion(cluster: Cluster) -> Motion:
    launchers: dict[tuple[str, str], list[_Launcher]] = {}
    targets: dict[str, Object] = {}
    attachments: dict[str, list[Object]] = {}
    for launcher in sorted(filter(None, each(cluster, POD, _launcher)), key=attrgetter("age")):
        launchers.setdefault(launcher.vmi, []).append(launcher)
        if launcher.job:
            targets[launcher.job] = launcher.pod
    for owners, pod in sorted(
        filter(None, each(cluster, POD, _attachment)), key=lambda found: _age(found[1])
    ):
        for owner in owners:
            attachments.setdefault(owner, []).append(pod)
    moving: list[tuple[str, str]] = []
    running: dict[str, list[tuple[str, str]]] = {}
    arriving: dict[str, list[Object]] = {}
    left: dict[str, list[Object]] = {}
    stranded: dict[str, list[Object]] = {}
    for migration in cluster.known(VMIM):
        phase = migration.at("status", "phase").text or PENDING
        if migration.ended:
            continue
        key = vms.namespace_of(migration), migration.at("spec", "vmiName").text or ""
        target = targets.get(migration.metadata["uid"].text or "-")
        vmi = find(cluster, VMI, *key)
        if phase != PENDING or target is not None:
            moving.append(key)
            for node in _senders(vmi):
                running.setdefault(node, []).append(key)
        if vmi is not None and (to := _arrives(vmi, migration, target)):
            arriving.setdefault(to, []).append(vmi)
    for node, vmi, older in _elsewhere(launchers, cluster):
        group = left if older else stranded
        known = (*arriving.get(node, ()), *group.get(node, ()))
        # By name: each look-up of a live cluster makes a new view of the object.
        if all(vmi.full_name != each.full_name for each in known):
            group.setdefault(node, []).append(vmi)
    return Motion(
        {key: tuple(launcher.pod for launcher in some) for key, some in launchers.items()},
        targets,
        {owner: tuple(some) for owner, some in attachments.items()},
        tuple(sorted(moving)),
        {node: tuple(sorted(keys)) for node, keys in running.items()},
        _by_name(arriving),
        _by_name(left),
        _by_name(stranded),
        not unlisted(cluster, POD),
    )


def _arrives(vmi: Object, migration: Object, target: Object | None) -> str:
    """Return the other node to which a VMI migrates; empty: it is not known yet,
    or the VMI is there or stays.
    """
    to = target_node(vmi, migration, target)
    return (
        ""
        if to == vmi.at("status", "nodeName").text or has_failed(progress(vmi, migration))
        else to
    )


def _by_name(groups: Mapping[str, list[Object]]) -> dict[str, tuple[Object, ...]]:
    return {
        node: tuple(sorted(some, key=lambda vmi: vmi.full_name)) for node, some in groups.items()
    }


class _Launcher(NamedTuple):
    """What groups need of a launcher pod."""

    age: tuple[str, str]
    pod: Object
    vmi: tuple[str, str]
    job: str | None
    """The uid of the migration of which it is the target."""
    node: str | None
    """Its node while it lives."""


def _launcher(pod: Object) -> _Launcher | None:
    labels = pod.labels
    if labels.get("kubevirt.io") != "virt-launcher":
        return None
    vmi = vms.namespace_of(pod), vm_ledger.vmi_name(pod)
    node = pod.at("spec", "nodeName").text if lives(pod) else None
    return _Launcher(_age(pod), pod, vmi, labels.get(launcher_pod.MIGRATION_JOB), node)


def _attachment(pod: Object) -> tuple[tuple[str, ...], Object] | None:
    """Return the uids of the pods to which a pod attaches a volume, and itself."""
    if pod.labels.get("kubevirt.io") != "hotplug-disk":
        return None
    return tuple(owner["uid"].text or "" for owner in pod.metadata["ownerReferences"].items()), pod


def _place(vmi: Object) -> tuple[tuple[str, str], str | None]:
    return (vms.namespace_of(vmi), vmi.name), vmi.at("status", "nodeName").text


def _elsewhere(
    launchers: Mapping[tuple[str, str], Sequence[_Launcher]], cluster: Cluster
) -> Iterator[tuple[str, Object, bool]]:
    """Yield the other node of each living pod that is not on that of its VMI, the VMI, and whether
    no pod there is older.

    Only the VMIs of such pods are looked up: most changes of the others mean nothing here.
    """
    places = dict(each(cluster, VMI, _place))
    for key, some in launchers.items():
        here = places.get(key)
        if not here or all(pod.node in (None, here) for pod in some):
            continue
        vmi = find(cluster, VMI, *key)
        if vmi is None or vmi.ended:
            continue
        living = [pod for pod in some if pod.node and is_of(pod.pod, vmi)]
        own = max((pod.age[0] for pod in living if pod.node == here), default="")
        for pod in living:
            if pod.node and pod.node != here:
                yield pod.node, vmi, not own or pod.age[0] <= own


PENDING: Final = "Pending"


def _age(obj: Object) -> tuple[str, str]:
    return obj.created, obj.name


def pods(vmi: Object, cluster: Cluster) -> Sequence[Object]:
    """Return the launcher pods of a VM or a VMI, oldest first, also those that have ended."""
    return motion(cluster).pods.get((vms.namespace_of(vmi), vmi.name), ())


def own_pods(vmi: Object, cluster: Cluster) -> list[Object]:
    """Return those of this VMI, and of no earlier one of the VM."""
    return [pod for pod in pods(vmi, cluster) if is_of(pod, vmi)]


def lives(pod: Object) -> bool:
    return not pod.ended


def is_of(pod: Object, vmi: Object) -> bool:
    """Whether a pod with the name of the VMI belongs to it, and not to an earlier one."""
    made_by, uid = pod.labels.get(launcher_pod.CREATED_BY), vmi.metadata["uid"].text
    return not made_by or not uid or made_by == uid


def progress(vmi: Object, migration: Object) -> Field:
    """Return the ``migrationState`` of a VMI if it is that of this migration,
    else an absent field.
    """
    state = vmi.at("status", "migrationState")
    uid, own = state["migrationUid"].text, migration.metadata["uid"].text
    return state if uid is not None and uid == own else vmi["-"]


def _senders(vmi: Object | None) -> set[str]:
    """Return the nodes on whose limit a running migration of a VMI counts
    (migration.go#outboundMigrationsOnNode).

    They are its node and the source of what its ``migrationState`` is about, also where that is an
    earlier migration.
    """
    if vmi is None:
        return set()
    return {
        vmi.at("status", "nodeName").text or "",
        vmi.at("status", "migrationState", "sourceNode").text or "",
    } - {""}


def has_failed(state: Field) -> bool:
    """Whether a migration has failed, by the ``migrationState``:
    the guest has stayed where it was.
    """
    return state["completed"].boolean is True and state["failed"].boolean is True


def source(vmi: Object, migration: Object) -> str:
    return progress(vmi, migration)["sourceNode"].text or vmi.at("status", "nodeName").text or ""


def target_node(vmi: Object, migration: Object, target: Object | None) -> str:
    bound = target.at("spec", "nodeName").text if target is not None else None
    return bound or progress(vmi, migration)["targetNode"].text or ""
