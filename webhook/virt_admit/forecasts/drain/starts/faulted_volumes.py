"""Longhorn volumes that no node can attach, since all their copies have failed, none was ever
placed on a disk, or a migration or a backing image holds them.

Longhorn salvages a copy by itself on a node that is up, where ``auto-salvage`` is on and its disk
is well. Sources: longhorn/longhorn-manager:controller/volume_controller.go#ReconcileVolumeState,
:manager/volume.go#Salvage, :csi/controller_server.go#ControllerPublishVolume,
:k8s/pkg/apis/longhorn/v1beta2/disk.go #ErrorReplicaScheduleInsufficientStorage; issues
harvester/harvester#6279 #5469.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.starts import longhorn_room
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.placement.components.drivers import refusing_storage
from virt_admit.forecasts.placement.components.longhorn import (
    backing_images,
    dangling_migrations,
    longhorn_copies,
)
from virt_admit.model.commands import about, kubectl, merge_patch, typed
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import (
    LONGHORN_NODE,
    LONGHORN_REPLICA,
    LONGHORN_SETTING,
    LONGHORN_VOLUME,
    NODE,
    PV,
    PVC,
    VM,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import csi_of, find, find_named, is_absent
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(
    longhorn_copies.READS,
    longhorn_room.READS,
    node_health.READS,
    backing_images.READS,
    dangling_migrations.READS,
    {
        VM: CONDITIONS,
        LONGHORN_SETTING: ("value",),
        LONGHORN_VOLUME: ("spec.size", "status.robustness", "status.state", "status.conditions"),
        PVC: ("spec.volumeName",),
        PV: ("spec.csi.driver", "spec.csi.volumeHandle"),
    },
)


def problem(vm: Object, cluster: Cluster) -> Problem | None:
    """Return which disk of a VM that does not run can be attached nowhere; None: none,
    or nothing says so.
    """
    spec, known = vms.vmi_spec(vm), cluster.cached(_faulted)
    for claim in launcher_pod.all_claims(spec) if known else ():
        volume = known.get(_handle(vms.namespace_of(vm), claim, cluster))
        if volume is not None:
            return _of(volume, claim, cluster)
    return _held(vm, cluster)


def _held(vm: Object, cluster: Cluster) -> Problem | None:
    """Return which volume of a VM without a pod no node could attach: a pod that waits says it of
    its own volumes. None: the VM has stopped in the last minutes, in which Longhorn tidies up.
    """
    if vm.kind != VM.kind or not cluster.known(LONGHORN_VOLUME):
        return None
    ready = vm.condition("Ready")
    rests = clock.since(ready["lastTransitionTime"].text, cluster)
    if ready["status"].text != "False" or rests is None or rests < _PATIENCE:
        return None
    for claim in launcher_pod.claims(vms.vmi_spec(vm)):
        volume = find_named(cluster, LONGHORN_VOLUME, _handle(vms.namespace_of(vm), claim, cluster))
        held = (
            dangling_migrations.of(volume, cluster) or backing_images.of_stopped(volume, cluster)
            if volume is not None
            else None
        )
        if volume is not None and held is not None:
            reason = f"volume {volume.name} of claim {claim} cannot be attached: {held.words}"
            return Problem(reason, held.remedy, ProblemCause.NOT_REPORTED)
    return None


def _faulted(cluster: Cluster) -> dict[str, Object]:
    return {
        volume.name: volume
        for volume in cluster.known(LONGHORN_VOLUME)
        if volume.at("status", "state").text == "detached"
        and (volume.at("status", "robustness").text == "faulted" or _is_unplaced(volume, cluster))
    }


def _is_unplaced(volume: Object, cluster: Cluster) -> bool:
    """Return whether Longhorn has found no disk for any copy of a volume,
    so that it has no data yet.
    """
    if volume.condition(_SCHEDULED)["status"].text != "False" or unlisted(
        cluster, LONGHORN_REPLICA
    ):
        return False
    copies = cluster.cached(longhorn_copies.by_volume).get(volume.name, ())
    fields = ("nodeID", "healthyAt", "failedAt")
    return bool(copies) and not any(
        each.at("spec", field).text for each in copies for field in fields
    )


_SCHEDULED: Final = "Scheduled"
_MOST: Final = 160
"""Characters of what Longhorn says of a volume."""


def _handle(namespace: str, claim: str, cluster: Cluster) -> str:
    """Return the Longhorn volume behind a claim; empty: it has none, or that could not be read."""
    csi = csi_of(find(cluster, PVC, namespace, claim), cluster)
    return (
        (csi["volumeHandle"].text or "") if csi["driver"].text == refusing_storage.LONGHORN else ""
    )


def _unplaced(volume: Object, claim: str, cluster: Cluster) -> Problem | None:
    """Return that a volume waits for room: its copies were never written, so there is nothing to
    salvage or to restore.

    None: a node that reboots or starts may take them soon.
    """
    said = volume.condition(_SCHEDULED)
    words = said["message"].words or said["reason"].words
    stays = bool(_LASTING.search(words)) and not _PASSING.search(words)
    since = clock.since(said["lastTransitionTime"].text, cluster)
    if not stays and since is not None and since < _PATIENCE:
        return None
    number = len(cluster.cached(longhorn_copies.by_volume)[volume.name])
    copies = f"none of the {number} copies" if number > 1 else "no copy"
    age = clock.lasting(said["lastTransitionTime"].text, cluster)
    number_of_bytes = longhorn_room.size_of(volume)
    size = longhorn_room.gib(number_of_bytes) if number_of_bytes else ""
    of = f"claim {claim}{f', {size}' if size else ''}"
    why = f": {cut_middle(words, _MOST)}" if words else ""
    reason = f"Longhorn has placed {copies} of volume {volume.name} ({of}) on a disk{age}{why}"
    full = _FULL.search(words)
    room = longhorn_room.words(number_of_bytes, volume.namespace, cluster) if full and size else ""
    where = f"{number} nodes" if number > 1 else "a node"
    readers = (longhorn_room.unused, longhorn_room.of_stopped) if full else ()
    unused = ", and ".join(filter(None, (read(cluster) for read in readers)))
    remedy = (_ROOM if full else _OTHERWISE).format(
        size=size or "more room",
        where=where,
        share=longhorn_room.share_setting(volume.namespace, cluster),
        unused=f" ({unused})" if unused else "",
    )
    see = (
        kubectl("describe", LONGHORN_NODE, "", volume.namespace)
        if full
        else about("describe", volume, LONGHORN_VOLUME)
    )
    ends = "This does not end by itself" if stays else "This ends when a node can take it"
    end = f"No node can attach it before that. {ends}"
    reason = f"{reason.rstrip('.')}{f': {room}' if room else ''}. {end}"
    return Problem(reason, typed(remedy, see), ProblemCause.NOT_REPORTED)


_FULL: Final = re.compile(r"insufficient storage|enough storage")
_LASTING: Final = re.compile(rf"{_FULL.pattern}|tags not fulfilled")
_PASSING: Final = re.compile(r"(?:nodes|disks) are unavailable")
_PATIENCE: Final = timedelta(minutes=5)
_ROOM: Final = (
    "give Longhorn {size} on {where}: another disk or node, fewer or smaller volumes{unused} or, "
    "as a decision, a larger {share}"
)
_OTHERWISE: Final = (
    "give Longhorn nodes and disks that may take the copies (ready, schedulable, with the tags of "
    "the volume)"
)


def _of(volume: Object, claim: str, cluster: Cluster) -> Problem | None:
    if _is_unplaced(volume, cluster):
        return _unplaced(volume, claim, cluster)
    every = cluster.cached(longhorn_copies.by_volume).get(volume.name, ())
    # one without a node was never placed
    copies = [each for each in every if each.at("spec", "nodeID").text]
    usable = any(map(longhorn_copies.is_healthy, copies))
    nodes = sorted({each.at("spec", "nodeID").text or "" for each in copies})
    called = f"Longhorn volume {volume.name} of claim {claim} is faulted"
    command = about("describe", volume, LONGHORN_VOLUME)
    if usable or not copies or unlisted(cluster, LONGHORN_REPLICA):
        remedy = typed("see why Longhorn does not attach it", command)
        return Problem(f"{called}, so no node can attach it", remedy, ProblemCause.NOT_REPORTED)
    all_copies = {1: "its only copy", 2: "both its copies"}.get(
        len(copies), f"all its {len(copies)} copies"
    )
    failed = (
        f"{called}: {all_copies} ({names(nodes)}) failed{_since(copies, cluster)}, so no node can "
        "attach it"
    )
    reason, *ways = _outlook(volume, nodes, cluster)
    return Problem(f"{failed}{reason}", typed(*ways), ProblemCause.NOT_REPORTED)


def _outlook(volume: Object, nodes: Sequence[str], cluster: Cluster) -> Sequence[str]:
    """Return what becomes of a volume whose copies on these nodes have failed, to be appended, and
    the remedy for ``typed``.
    """
    command = about("describe", volume, LONGHORN_VOLUME)
    here = [each for each in nodes if not _is_gone(each, volume.namespace, cluster)]
    if not here:
        are = "is" if len(nodes) == 1 else "are"
        reason = f". {names(nodes)} {are} gone from the cluster, so that no copy can be salvaged"
        begin = f"restore a backup, or bring {names(nodes)} back with the former disks and name"
        return f"{reason}. This does not end by itself", begin, command
    lost = [node for node in here if node_health.silence_now(node, cluster)]
    none = _salvages_none(volume, cluster)
    begin, again = f"check the disks of {names(here)}", ""
    if lost:
        begin = f"repair {names(lost)}"
        again = f"once {names(lost)} {'reports' if len(lost) == 1 else 'report'} again"
    if none:
        then = f" even {again}" if lost else ""
        reason = f", and Longhorn salvages none{then}, as its setting {_SETTING} is false"
        on = merge_patch(LONGHORN_SETTING, _SETTING, volume.namespace, {"value": "true"})
        begin = f"{begin}, then let Longhorn salvage volumes by itself"
        return f"{reason}. This does not end by itself", begin, on, f"or {_SALVAGE}"
    if lost:
        return f". Longhorn may salvage it {again}", begin, command
    return ". This does not end by itself", f"{begin}, then {_SALVAGE}", command


def _is_gone(node: str, namespace: str, cluster: Cluster) -> bool:
    """Return whether neither Kubernetes nor Longhorn has a node any more."""
    return is_absent(cluster, NODE, "", node) and is_absent(cluster, LONGHORN_NODE, namespace, node)


_SETTING: Final = "auto-salvage"
_SALVAGE: Final = "salvage the volume in Longhorn with its newest copy, or restore a backup"


def _salvages_none(volume: Object, cluster: Cluster) -> bool:
    """Return whether Longhorn is known to leave each faulted volume as it is. Once it may, it
    salvages those that are detached too."""
    setting = find(cluster, LONGHORN_SETTING, volume.namespace, _SETTING)
    return setting is not None and setting["value"].text == "false"


def _since(copies: Sequence[Object], cluster: Cluster) -> str:
    """Return how long ago the last copy failed."""
    last = max((each.at("spec", "failedAt").text or "" for each in copies), default="")
    return vm_states_times.ago(clock.instant(last), cluster)
