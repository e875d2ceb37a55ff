"""Volumes that a second node cannot open because another one has them open, perhaps a lost one.

A claim with ReadWriteMany promises more than its storage may be set up for. LINSTOR needs a
property for it, which its driver sets for a migration since 0.22.0. Sources:
piraeusdatastore/linstor-csi:CHANGELOG.md (0.22.0), pkg/linstor/const.go #PropertyAllowTwoPrimaries,
issues piraeusdatastore/linstor-csi#159, piraeusdatastore/piraeus-operator#1031.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import node_pods
from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.evidence import network_fences
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import NODE, PV, STORAGE_CLASS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.launcher import claim_holders
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.remediation import fence_taints
from virt_admit.model.remediation.by_hand import hand_fences

READS: Final[Reads] = union(
    node_health.READS,
    claim_holders.READS,
    network_fences.READS,
    hand_fences.READS,
    {
        NODE: ("spec.taints", "status.volumesInUse", "status.conditions.lastTransitionTime"),
        STORAGE_CLASS: (),
        PV: ("spec.csi.driver", "spec.csi.volumeHandle", "spec.storageClassName"),
    },
)
_BUSY: Final = re.compile(
    r"(?i)resource busy|already (?:open|in use|exclusive)|being used|in use by|multiple "
    r"primaries|reservation conflict|failed to set source device readwrite"
)
"""The last one is of linstor-csi, whose device gets no second primary (piraeusdatastore/
linstor-csi:pkg/client/linstor.go#Mount, issue piraeusdatastore/piraeus-operator#1031).
"""
_LINSTOR: Final = "linstor.csi.linbit.com"
_TWO: Final = "DrbdOptions/Net/allow-two-primaries"
_SETS_TWO: Final = Version(0, 22)
_IMAGE: Final = re.compile(r"csi[^/]*:v?(\d{1,3}\.\d{1,3}\.\d{1,3})")


class HeldVolume(NamedTuple):
    """Why a volume is not attached to a node, or cannot be opened there."""

    words: str
    """A statement about the volume as ``it``: ``it waits for backing image i, of which …``; or
    about what it waits for: ``Longhorn waits for replica …-r-1 on w2 (stopped): engine image ei-1
    is not deployed there``.
    """
    remedy: str
    lasts: bool = False
    """Whether each further attempt certainly meets the same cause."""
    of_node: bool = False
    """Whether the node of the engine is to blame, so that another may attach the volume."""
    refused: bool = False
    """Whether the kubelet of the node refuses what should run there."""
    by_other: bool = False
    """Whether another VM has it open, so that the error says nothing more."""


def of(
    volume: str,
    on: str,
    error: str,
    users: Sequence[Object],
    cluster: Cluster,
    waiting: Object | None = None,
) -> HeldVolume | None:
    """Return why a volume that is attached to a node cannot be opened there; None: nothing says so.

    Args:
        volume: the PersistentVolume.
        on: the node.
        error: what the kubelet says.
        users: the other pods that use its claim.
        cluster: the cluster.
        waiting: the pod that cannot start.
    """
    own = find(cluster, PV, "", volume)
    holder = next(
        (pod for pod in users if pod.at("spec", "nodeName").text not in (None, "", on)), None
    )
    if own is None or not _BUSY.search(error):
        return None
    if holder is None:
        lost = next(_lost_users(own, on, cluster), "")
        return _not_fenced(lost, cluster) if lost else _watched(own, on, error, waiting, cluster)
    other = claim_holders.of_pods(users, waiting, cluster) if waiting is not None else None
    if other is not None:
        return HeldVolume(other.words, other.remedy, lasts=not other.is_ending, by_other=True)
    there = holder.at("spec", "nodeName").text or ""
    opened = f"the volume is open on {there}, where pod {holder.name} uses it"
    driver = own.at("spec", "csi", "driver").text or ""
    if driver == _LINSTOR and (linstor := _one_primary(own, there, on, opened, cluster)):
        return linstor
    words = f"{opened}, and its storage does not let {on} open it as well"
    pod = node_pods.of_driver(driver, node_pods.of_node(on, cluster))
    logs = node_pods.logs(pod) if pod is not None else kubectl("describe", PV, volume)
    remedy = (
        f"see what the driver logs about it on {on}, and whether its storage lets two nodes open a "
        "volume"
    )
    return HeldVolume(words, typed(remedy, logs))


MAY_RUN: Final = "a guest may still run there"
"""Of a node that has no pod of the guest any more, and has not been seen to end it."""


def used_by_lost(node: str, cluster: Cluster) -> Iterator[str]:
    """Yield the PersistentVolumes that a node which does not report had in use at last,
    unless it is fenced.
    """
    for volume in cluster.known(PV):
        if node in _lost_users(volume, "", cluster):
            yield volume.name


def _lost_users(volume: Object, on: str, cluster: Cluster) -> Iterator[str]:
    """Yield the nodes that do not report, are not fenced, and had a volume in use at last,
    by their kubelets.

    A node without kubelet goes on with its guests, whose pods may be deleted by force meanwhile.
    """
    for node in entry(cluster, _in_use, _unique_name(volume)) or ():
        silent = node.name != on and node_health.silence_now(node.name, cluster)
        if silent and not fence_taints.ends_pods(node):
            yield node.name


def is_in_use(volume: Object, node: Object) -> bool:
    """Return whether the kubelet of a node says that it has a volume in use."""
    return any(
        each.text == _unique_name(volume) for each in node.at("status", "volumesInUse").items()
    )


def _unique_name(volume: Object) -> str:
    """Return how the kubelet calls a volume
    (kubernetes/kubernetes:pkg/volume/util/util.go#GetUniqueVolumeName).
    """
    csi = volume.at("spec", "csi")
    return f"kubernetes.io/csi/{csi['driver'].text}^{csi['volumeHandle'].text}"


def _in_use(cluster: Cluster) -> Mapping[str, list[Object]]:
    found: dict[str, list[Object]] = {}
    for node in cluster.known(NODE):
        for volume in node.at("status", "volumesInUse").items():
            found.setdefault(volume.text or "", []).append(node)
    return found


def _not_fenced(node: str, cluster: Cluster) -> HeldVolume:
    """Return that a lost node may still have a volume open: only its end,
    or a fence in the storage, frees it.

    The taint ends the pods of guests on other storage too, which may go on there.
    """
    silent = node_health.silent_for(node, cluster)
    words = f"node {node}, which {silent} and is not fenced, had it in use at last: {MAY_RUN}"
    taint = (
        "; a taint out-of-service, as a decision once that is confirmed, ends all its pods"
        f"{hand_fences.unsure(cluster)}"
        if hand_fences.taint_works(cluster)
        else ""
    )
    way = (
        f"make sure that {node} is off{taint}. A fence in the storage (Ceph: a NetworkFence) cuts "
        "the node off from that storage alone, and does not justify the taint"
    )
    return HeldVolume(
        words, typed(way, shell("virt-admit", "explain", argument(f"node/{node}"))), lasts=True
    )


def _watched(
    volume: Object, on: str, error: str, waiting: Object | None, cluster: Cluster
) -> HeldVolume | None:
    """Return which lost node most likely keeps an image of Ceph open; None: none does, or not all
    nodes were read.

    The driver maps an image of one node only while no other client watches it. A client watches it
    until its host is off or on Ceph's blocklist, whatever Kubernetes has detached by force.
    """
    driver = volume.at("spec", "csi", "driver").text or ""
    created = clock.instant(waiting.created) if waiting is not None else None
    watched = driver.endswith(_RBD) and _WATCHED in error
    if not watched or created is None or unlisted(cluster, NODE):
        return None
    found = [each for each in _lost(driver, created, cluster) if each.name != on]
    if not found:
        return None
    first, silent = found[0].name, node_health.silent_for(found[0].name, cluster)
    which = f"node {first}, which {silent} and is not fenced, most likely still has it open"
    if len(found) > 1:
        lost = names((each.name for each in found), 80)
        which = f"one of the nodes {lost}, which do not report and are not fenced, most likely has"
        which += " it open"
    each = "each of them" if len(found) > 1 else first
    way = (
        f"make sure that {each} is off, after which Ceph lets the image go in some minutes and the "
        f"pod starts by itself; only if {each} cannot be powered off, put its client on Ceph's "
        "blocklist (a NetworkFence, or ceph osd blocklist add)"
    )
    if hand_fences.taint_works(cluster):
        way += (
            ". A taint out-of-service, as a decision once it is confirmed to be off, ends all its "
            f"pods{hand_fences.unsure(cluster)}"
        )
    explain = shell("virt-admit", "explain", argument(f"node/{first}"))
    return HeldVolume(f"{which}: {MAY_RUN}", typed(way, explain))


_RBD: Final = ".rbd.csi.ceph.com"
_WATCHED: Final = "is still being used"
"""ceph/ceph-csi:internal/rbd/rbd_attach.go#waitForrbdImage, :internal/rbd/rbd_util.go#isInUse."""


def _lost(driver: str, before: datetime, cluster: Cluster) -> Iterator[Object]:
    """Yield the nodes with a pod of a driver that went silent before a time and are not fenced."""
    for node in sorted(cluster.known(NODE), key=lambda each: each.name):
        since = clock.instant(node.condition("Ready")["lastTransitionTime"].text)
        runs = node_pods.of_driver(driver, node_pods.of_node(node.name, cluster)) is not None
        silent = runs and node_health.silence_now(node.name, cluster)
        fenced = fence_taints.ends_pods(node) or network_fences.is_cut_off(node, cluster)
        if silent and not fenced and since is not None and since < before:
            yield node


def _one_primary(
    volume: Object, there: str, on: str, opened: str, cluster: Cluster
) -> HeldVolume | None:
    """Return that LINSTOR lets one node write; None: two may, or its driver sees to that."""
    name = volume.at("spec", "storageClassName").text or ""
    found = find(cluster, STORAGE_CLASS, "", name)
    release = _release(on, cluster) or _release(there, cluster)
    if found is None or release is None or release >= _SETS_TWO or _allows(found):
        return None
    words = (
        f"{opened}, and DRBD has one primary, because class {name} does not set {_TWO} and "
        f"linstor-csi {release} does not set it for a migration, as {_SETS_TWO} and later do"
    )
    handle = volume.at("spec", "csi", "volumeHandle").text or volume.name
    remedy = (
        f"run linstor-csi {_SETS_TWO} or later, or set the property of the volume (linstor "
        f"resource-definition set-property {handle} {_TWO} yes) and for new ones in a class; "
        "then migrate again"
    )
    return HeldVolume(words, typed(remedy, kubectl("describe", STORAGE_CLASS, name)), lasts=True)


def _allows(found: Object) -> bool:
    """Return whether a class lets two nodes write, by whichever prefix the driver accepts."""
    parameters = found["parameters"].entries()
    return any(
        key.endswith("allow-two-primaries") and value.text in ("yes", "true")
        for key, value in parameters
    )


def _release(node: str, cluster: Cluster) -> Version | None:
    """Return the release of the driver on a node, by the image of its pod."""
    pod = node_pods.of_driver(_LINSTOR, node_pods.of_node(node, cluster))
    images = (
        (each["image"].text or "" for each in pod.at("spec", "containers").items())
        if pod is not None
        else ()
    )
    found = next(filter(None, map(_IMAGE.search, images)), None)
    return versions.parse_version(found[1]) if found is not None else None
