"""Volumes of Longhorn that are copies of another one and are not ready for workloads yet.

Longhorn before 1.10.2 frees a copy only once it is healthy, and holds it by a ticket of its own
until then. Later ones attach it as soon as it has its data. The csi-attacher asks ever less often,
at least every 5 minutes; from 1.12.2 on Longhorn lets it ask every minute. Sources:
longhorn/longhorn-manager:controller/volume_controller.go#checkAndFinishVolumeClone,
:types/volumes.go#IsVolumeReady, :csi/controller_server.go#ControllerPublishVolume;
kubernetes-csi/external-attacher:README.md (retry-interval-max); issues longhorn/longhorn#12206 and
#13335.
"""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.placement.components.busy_volumes import HeldVolume
from virt_admit.forecasts.placement.components.longhorn import (
    longhorn_copies,
    unhealthy_volumes,
    unplaced_replicas,
)
from virt_admit.model.commands import about, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, LONGHORN_ENGINE, LONGHORN_VOLUME, PV
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import NAME, Reads, union
from virt_admit.model.lookups import find, find_named
from virt_admit.model.messages import cut_middle

READS: Final[Reads] = union(
    unplaced_replicas.READS,
    {
        PV: ("spec.csi.volumeHandle",),
        LONGHORN_VOLUME: (
            *("metadata.creationTimestamp", "status.cloneStatus", "status.currentNodeID"),
            "status.kubernetesStatus",
        ),
        LONGHORN_ENGINE: ("spec.volumeName", "status.cloneStatus"),
        DEPLOYMENT: NAME,
    },
    longhorn_copies.OF_RELEASE,
)
_REFUSAL: Final = "is not ready for workloads"
_COPIED: Final = "copy-completed-awaiting-healthy"
_FREED: Final = (1, 10, 2)
"""From this release on such a copy is attached."""
_ATTACHER: Final = "csi-attacher"
_SOURCE: Final = ("status", "cloneStatus", "sourceVolume")
_LONGEST: Final = 120


def of(name: str, error: str, cluster: Cluster) -> HeldVolume | None:
    """Return what keeps a PersistentVolume that is not healthy, or a copy that is not done, from
    being attached, by the error of its attachment; None: the error is another one.
    """
    if (unhealthy := unhealthy_volumes.of(name, error, cluster)) is not None:
        return unhealthy
    found = find(cluster, PV, "", name) if _REFUSAL in error else None
    handle = found.at("spec", "csi", "volumeHandle").text if found is not None else None
    volume = find_named(cluster, LONGHORN_VOLUME, handle or name) if found is not None else None
    if volume is None:
        return None
    what = state(volume, cluster)
    if not what:
        return _asked_again(volume, error, cluster)
    short = unplaced_replicas.of(volume, cluster)
    if short is not None and volume.at("status", "cloneStatus", "state").text == _COPIED:
        return HeldVolume(f"it {what}, and {short.why}", short.remedy, lasts=True)
    engine = next((each for each in cluster.known(LONGHORN_ENGINE) if _is_of(each, volume)), None)
    if engine is None:
        see = about("describe", volume, LONGHORN_VOLUME)
        return HeldVolume(f"it {what}", typed("see why it is not done", see))
    parts = engine.at("status", "cloneStatus")
    failed = (parts[each]["error"].words for each in sorted(parts.map))
    why = cut_middle(next(filter(None, failed), ""), _LONGEST)
    way = typed("see how far its engine has copied", about("describe", engine, LONGHORN_ENGINE))
    source = find_named(cluster, LONGHORN_VOLUME, volume.at(*_SOURCE).text)
    if why and source is not None:  # Longhorn tries again by itself
        way = typed("remove that cause at its source", about("describe", source, LONGHORN_VOLUME))
    return HeldVolume(f"it {what}{f': {why}' if why else ''}", way)


def _asked_again(volume: Object, error: str, cluster: Cluster) -> HeldVolume | None:
    """Return that a copy with all its data is attached at the next attempt; None: it is none, or
    something else is known against that.
    """
    source = volume.at(*_SOURCE).text
    unplaced = volume.condition("Scheduled")["status"].text == "False"
    detached = volume.at("status", "state").text == "detached"
    faulted = volume.at("status", "robustness").text == "faulted"
    said = error.partition(_REFUSAL)[2].strip(": ")  # from 1.12.1 on
    other = said and "copying data" not in said
    if not _is_freed(volume, cluster) or faulted or (detached and unplaced) or other:
        return None
    waits = (
        f"it is a copy of {source} that has all its data now: Longhorn attaches it when the "
        f"{_ATTACHER} asks again, by default at most 5 min after it last did"
    )
    attacher = find(cluster, DEPLOYMENT, volume.namespace, _ATTACHER)
    if attacher is None:
        see = about("describe", volume, LONGHORN_VOLUME)
        return HeldVolume(waits, typed("see whether that is done", see))
    where = ("deployment", attacher.name, "-n", attacher.namespace)
    restart = shell("kubectl", "rollout", "restart", *where)
    return HeldVolume(waits, typed("restart it, then it asks at once", restart))


def _is_freed(volume: Object, cluster: Cluster) -> bool:
    """Return whether a volume is a copy with all its data, which its release attaches."""
    copied = volume.at("status", "cloneStatus", "state").text == _COPIED
    return copied and longhorn_copies.release(volume, cluster) >= _FREED


def state(volume: Object, cluster: Cluster) -> str:
    """Return how far a volume is that copies another one, as a clause; empty: it copies none, or
    has.
    """
    clone = volume.at("status", "cloneStatus")
    phase, source = clone["state"].text, clone["sourceVolume"].text
    if not phase or not source or phase == "completed" or _is_freed(volume, cluster):
        return ""
    of_claim = find_named(cluster, LONGHORN_VOLUME, source)
    claim = of_claim.at("status", "kubernetesStatus", "pvcName").text if of_claim else ""
    origin = f"{source}{f' (claim {claim})' if claim else ''}"
    lasting = clock.lasts(clock.age(volume, cluster))
    attempt = clone["attemptCount"].integer or 0
    again = f", attempt {attempt}" if attempt > 1 else ""
    here = volume.at("status", "currentNodeID").text
    held = f": Longhorn before 1.10.2 holds it{f' on {here}' if here else ''} until it is healthy"
    waits = held if phase == _COPIED else ""
    return f"is a copy of {origin} that is not done{lasting} ({phase}{again}){waits}"


def _is_of(engine: Object, volume: Object) -> bool:
    return engine.at("spec", "volumeName").text == volume.name
