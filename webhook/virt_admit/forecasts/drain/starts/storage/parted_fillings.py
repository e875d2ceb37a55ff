"""Disks that are not filled, as the volumes of the pod that fills them lie on different nodes.

A pod of CDI has the disk and the scratch space as claims of its own. Both are made again with the
DataVolume, so it is the class that has to change (kubevirt/containerized-data-importer issues 3287
and 3631; doc/waitforfirstconsumer-storage-handling.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from virt_admit.forecasts.drain.starts.storage import chosen_places
from virt_admit.forecasts.placement.starts import parted_volumes
from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, STORAGE_CLASS, VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    parted_volumes.READS, {DATA_VOLUME: ("metadata.ownerReferences", "status.phase")}
)
_WAITS: Final = "WaitForFirstConsumer"


def problem(disk: Object, pods: Sequence[Object], begin: str, cluster: Cluster) -> Problem | None:
    """Return which pod that fills a disk cannot reach all of its volumes; None: none."""
    for pod in pods:
        placed = pod.condition("PodScheduled")
        if pod.at("spec", "nodeName").text or placed["status"].text != "False":
            continue
        found = parted_volumes.of_pod(pod, cluster)
        if found is not None:
            why = f"{begin}: kube-scheduler finds no node for pod {pod.name}: {found.why}"
            first = found.at_once.name if found.at_once is not None else ""
            brief = f"the volumes of pod {pod.name} lie on different nodes"
            brief += f" (StorageClass {first}: Immediate)" if first else ""
            remedy = _remedy(disk, found.at_once, cluster)
            return Problem(why, remedy, ProblemCause.NOT_REPORTED, brief=brief)
    return None


def _remedy(disk: Object, at_once: Object | None, cluster: Cluster) -> str:
    own = disk.owned_by(VM.kind)
    again = f"which VM {own} makes again" if own else "and make it again"
    delete = kubectl("delete", DATA_VOLUME, disk.name, disk.namespace)
    if at_once is None:
        words = f"delete DataVolume {disk.name}, which is not filled, {again}"
        return typed(words, delete)
    waiting = sorted(
        each.name
        for each in cluster.known(STORAGE_CLASS)
        if each["provisioner"].text == at_once["provisioner"].text
        and each["volumeBindingMode"].text == _WAITS
    )
    use = (
        f"use StorageClass {waiting[0]} ({_WAITS})"
        if waiting
        else (
            f"make StorageClass {at_once.name} again with volumeBindingMode {_WAITS} (it cannot be "
            "changed in place; its volumes stay)"
        )
    )
    further = (
        f"then delete DataVolume {disk.name}, which is not filled, {again} ({delete}). With the "
        f"annotation {chosen_places.AT_ONCE} it is filled before a VM uses it"
    )
    see = about("get", at_once, STORAGE_CLASS, "-o", "yaml")
    return typed(f"{use} for the disk and for scratch space", see, further)
