"""Pods whose volumes lie on different nodes, so that no node reaches all of them.

kube-scheduler only says ``volume node affinity conflict`` of each node. A class with the binding
mode Immediate has a volume made before any pod has a node, each on its own, so those of a driver
whose volumes belong to one node may part. Sources: kubernetes/kubernetes:
pkg/scheduler/framework/plugins/volumebinding/volume_binding.go#ErrReasonNodeConflict,
pkg/controller/volume/persistentvolume/pv_controller.go#syncUnboundClaim; issue
kubevirt/containerized-data-importer#3287.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.kinds import NODE, PVC, STORAGE_CLASS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import fields, find
from virt_admit.model.messages import names
from virt_admit.model.scheduler import volumes
from virt_admit.model.scheduler.pods import claim_names

READS: Final[Reads] = union(volumes.READS, {NODE: ("metadata.labels",)})


class PartedVolumes(NamedTuple):
    """Volumes of one pod that no node reaches together."""

    why: str
    at_once: Object | None
    """A class that placed one of them before the pod had a node; None: none is known."""


def of_pod(pod: Object, cluster: Cluster) -> PartedVolumes | None:
    """Return which volumes of a pod lie apart; None: some node reaches all of them, or that is not
    known.
    """
    nodes = () if unlisted(cluster, NODE) else cluster.known(NODE)
    placed: dict[str, str] = {}
    reached: list[frozenset[str]] = []
    for name in dict.fromkeys(claim_names(pod)):
        try:
            claim = volumes.claim(cluster, pod.namespace, name)
        except Unseen:
            return None
        place = claim.place
        if claim.fault or claim.free is not None or place is None:
            continue
        reached.append(
            frozenset(
                each.name
                for each in nodes
                if not claim.refusal(each.name, each.labels, moment=False)
            )
        )
        volume = fields(cluster, PVC, pod.namespace, name).at("spec", "volumeName").text or "?"
        placed[name] = f"that of claim {name} is {place.words} alone ({volume})"
    if len(placed) < 2 or not all(reached) or frozenset.intersection(*reached):
        return None
    at_once = next(filter(None, (_at_once(pod.namespace, name, cluster) for name in placed)), None)
    mode = (
        f". StorageClass {at_once.name} places a volume before its pod has a node "
        "(volumeBindingMode Immediate)"
        if at_once is not None
        else ""
    )
    apart = names(placed.values(), 400)
    why = f"its volumes lie apart, so no node reaches all of them: {apart}{mode}"
    return PartedVolumes(why, at_once)


def _at_once(namespace: str, claim: str, cluster: Cluster) -> Object | None:
    named = fields(cluster, PVC, namespace, claim).at("spec", "storageClassName").text
    found = find(cluster, STORAGE_CLASS, "", named)
    mode = found["volumeBindingMode"].text if found is not None else ""
    return found if mode in (None, "Immediate") else None
