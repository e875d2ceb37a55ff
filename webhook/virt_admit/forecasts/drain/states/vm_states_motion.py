"""Pods and migrations of a cluster, grouped by VMI in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final, TypeVar

from virt_admit.model.kubernetes.cluster import Cluster, Entries, keeps, unlisted
from virt_admit.model.kubernetes.kinds import POD, VMI, VMIM
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import migrations, vms
from virt_admit.model.kubevirt.launcher import launcher_pod, vm_ledger
from virt_admit.model.scheduler.pods import FINISHED

JOB: Final = "kubevirt.io/migrationJobUID"
"""Label of a target pod: the uid of its migration."""


@dataclass(frozen=True, slots=True)
class Motion:
    """Pods and migrations of a cluster, grouped."""

    pods: Mapping[tuple[str, str], tuple[Object, ...]]
    """Launcher pods by namespace and name of their VMI, oldest first, also those that have ended."""
    targets: Mapping[str, Object]
    """The newest target pod of each migration, by its uid."""
    attachments: Mapping[str, tuple[Object, ...]]
    """Pods that attach volumes, by the uid of the launcher pod that owns them."""
    running: Mapping[str, tuple[tuple[str, str], ...]]
    """The VMs whose migrations hold a place, by their node."""
    arriving: Mapping[str, tuple[Object, ...]]
    """VMIs of other nodes that migrate to a node."""
    left: Mapping[str, tuple[Object, ...]]
    """VMIs that have left a node while their old pod has not ended."""
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


_GROUPS: Final = {field.name: partial(_group, field.name) for field in fields(Motion) if field.name != "pods_complete"}


def _motion(cluster: Cluster) -> Motion:
    pods: dict[tuple[str, str], list[Object]] = {}
    targets: dict[str, Object] = {}
    attachments: dict[str, list[Object]] = {}
    for pod in sorted(cluster.known(POD), key=_age):
        kind = pod.labels.get("kubevirt.io")
        if kind == "hotplug-disk":
            for owner in pod.metadata["ownerReferences"].items():
                attachments.setdefault(owner["uid"].text or "", []).append(pod)
        elif kind == "virt-launcher":
            pods.setdefault((vms.namespace_of(pod), vm_ledger.vmi_name(pod)), []).append(pod)
            job = pod.labels.get(JOB)
            if job:
                targets[job] = pod
    found = {(vms.namespace_of(vmi), vmi.name): vmi for vmi in cluster.known(VMI)}
    running: dict[str, list[tuple[str, str]]] = {}
    arriving: dict[str, list[Object]] = {}
    left: dict[str, list[Object]] = {}
    for migration in cluster.known(VMIM):
        phase = migration.at("status", "phase").text or PENDING
        if phase in migrations.FINAL_PHASES:
            continue
        key = vms.namespace_of(migration), migration.at("spec", "vmiName").text or ""
        target = targets.get(migration.metadata["uid"].text or "-")
        vmi = found.get(key)
        if phase != PENDING or target is not None:
            running.setdefault(source(vmi, migration) if vmi is not None else "", []).append(key)
        if vmi is not None:
            to = target_node(vmi, migration, target)
            if to and to != vmi.at("status", "nodeName").text:
                arriving.setdefault(to, []).append(vmi)
    for node, vmi in _moved(pods, found):
        if vmi not in arriving.get(node, ()):
            left.setdefault(node, []).append(vmi)
    return Motion(
        _frozen(pods),
        targets,
        _frozen(attachments),
        {node: tuple(sorted(keys)) for node, keys in running.items()},
        _by_name(arriving),
        _by_name(left),
        not unlisted(cluster, POD),
    )


def _by_name(groups: Mapping[str, list[Object]]) -> dict[str, tuple[Object, ...]]:
    return {node: tuple(sorted(some, key=lambda vmi: vmi.full_name)) for node, some in groups.items()}


def _moved(
    pods: Mapping[tuple[str, str], Sequence[Object]], found: Mapping[tuple[str, str], Object]
) -> Iterator[tuple[str, Object]]:
    """Yield the VMIs that have a living pod on another node than their own, with that node."""
    for key, some in pods.items():
        vmi = found.get(key)
        here = vmi.at("status", "nodeName").text if vmi is not None else None
        if vmi is None or not here or vmi.at("status", "phase").text in migrations.FINAL_PHASES:
            continue
        nodes = {pod.at("spec", "nodeName").text for pod in some if lives(pod) and is_of(pod, vmi)}
        yield from ((node, vmi) for node in sorted(filter(None, nodes)) if node != here)


PENDING: Final = "Pending"


K = TypeVar("K")


def _frozen(groups: Mapping[K, list[Object]]) -> dict[K, tuple[Object, ...]]:
    return {key: tuple(some) for key, some in groups.items()}


def _age(obj: Object) -> tuple[str, str]:
    return obj.metadata["creationTimestamp"].text or "", obj.name


def lives(pod: Object) -> bool:
    return pod.at("status", "phase").text not in FINISHED


def is_of(pod: Object, vmi: Object) -> bool:
    """Whether a pod with the name of the VMI belongs to it, and not to an earlier one."""
    made_by, uid = pod.labels.get(launcher_pod.CREATED_BY), vmi.metadata["uid"].text
    return not made_by or not uid or made_by == uid


def progress(vmi: Object, migration: Object) -> Field:
    """Return the ``migrationState`` of a VMI if it is that of this migration, else an absent field."""
    state = vmi.at("status", "migrationState")
    uid, own = state["migrationUid"].text, migration.metadata["uid"].text
    return state if uid is not None and uid == own else vmi["-"]


def source(vmi: Object, migration: Object) -> str:
    return progress(vmi, migration)["sourceNode"].text or vmi.at("status", "nodeName").text or ""


def target_node(vmi: Object, migration: Object, target: Object | None) -> str:
    bound = target.at("spec", "nodeName").text if target is not None else None
    return bound or progress(vmi, migration)["targetNode"].text or ""
