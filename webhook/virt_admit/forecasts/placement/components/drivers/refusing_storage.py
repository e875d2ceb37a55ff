"""Storage that refuses reads or writes of guests, or is about to: what its own object says.

It declares no fields: where an object is not read, nothing is said of it. Sources:
rook/rook:pkg/apis/ceph.rook.io/v1/types.go#CephStatus;
ceph/ceph:doc/rados/operations/health-checks.rst (the checks that say that reads or writes stop;
many others are HEALTH_ERR too), :doc/cephfs/health-messages.rst (MDS_ALL_DOWN);
longhorn/longhorn-manager:controller/volume_controller.go (robustness);
rook/rook:Documentation/CRDs/Cluster/ceph-cluster-crd.md (fullRatio, 0.95 unless it is set).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.model.commands import about, typed
from virt_admit.model.evidence import writers
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry, unlisted
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, LONGHORN_VOLUME, POD, PVC
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.lookups import csi_of, find, find_named, grouped
from virt_admit.model.messages import command_of, cut, names
from virt_admit.model.problems import Problem

_BLOCK: Final = ".rbd.csi.ceph.com"
_FILES: Final = ".cephfs.csi.ceph.com"
"""Ends of the names of Rook's drivers; the namespace of its operator is before them."""
LONGHORN: Final = "driver.longhorn.io"
_FULL: Final = frozenset(("OSD_FULL", "POOL_FULL"))
_STOPS: Final = _FULL | {"PG_AVAILABILITY", "OBJECT_UNFOUND"}
"""Reads or writes of some objects wait, also where a check is a warning."""
_PAUSED: Final = re.compile(r"\b(?:pauserd|pausewr|full)\b")
"""Flags of OSDMAP_FLAGS that stop reads or writes; ``noout`` and others do not."""
_FILLS: Final = frozenset(
    (
        *("OSD_BACKFILLFULL", "OSD_NEARFULL"),
        *("POOL_BACKFILLFULL", "POOL_NEARFULL", "POOL_NEAR_FULL"),
    )
)
"""Checks that come before those that Ceph is full. They stop no write."""
_STATES: Final = re.compile(r"\b\d+ pgs? (\w+)")
"""Placement groups peer for seconds when an OSD starts or stops; after a minute they are "inactive"
too (ceph/ceph:src/mon/PGMap.cc#get_health_checks, mon_pg_stuck_threshold)."""
_LONGEST: Final = 60
_FEW: Final = 2
_UNAVAILABLE: Final = frozenset(("PG_AVAILABILITY", "OBJECT_UNFOUND"))
_NO_ROOM: Final = ("PG_BACKFILL_FULL", "PG_RECOVERY_FULL")
"""Ceph does not copy data to where it belongs, as an OSD there lacks the room."""
_FOLLOWS: Final = re.compile(r"OSD_(?:\w+_)?DOWN|SLOW_OPS|MDS_SLOW_\w+")
"""Checks that fail along with data that is unavailable. Those of fewer copies, or of a monitor,
also stand for weeks without it.
"""
_BLOCKED: Final = re.compile(r"\boldest one blocked for (\d{1,9}) sec\b(?!.*\bmon\b)")
"""Of SLOW_OPS (ceph/ceph:src/mgr/DaemonHealthMetricCollector.cc), of OSDs alone."""
ERROR: Final = "HEALTH_ERR"
PATIENCE: Final = timedelta(minutes=10)
"""Parts of the data are unavailable for a moment when an OSD starts again."""
RUNS: Final = re.compile(r"operation with the given Volume ID \S+ already exists", re.IGNORECASE)
"""An earlier call still runs: ceph/ceph-csi:internal/util/idlocker.go
#VolumeOperationAlreadyExistsFmt, and other drivers."""
HANGS: Final = re.compile(f"{RUNS.pattern}|DeadlineExceeded|deadline exceeded", re.IGNORECASE)
"""A call to a driver gets no answer from its storage."""


def problem(namespace: str, claim: str, cluster: Cluster) -> Problem | None:
    """Return why the storage of a claim refuses reads or writes; None: its object does not say so,
    or is not known.
    """
    csi = csi_of(find(cluster, PVC, namespace, claim), cluster)
    driver, ceph = csi["driver"].text or "", _behind(csi, cluster)
    if ceph is not None:
        return of_ceph(ceph, cluster, files=driver.endswith(_FILES))
    return _of_longhorn(csi["volumeHandle"].text, claim, cluster) if driver == LONGHORN else None


def of_class(storage_class: Object, cluster: Cluster) -> Problem | None:
    """Return why the storage of a class refuses reads or writes; None: nothing says so."""
    driver = storage_class["provisioner"].text or ""
    ceph = _ceph(driver, storage_class.at("parameters", "clusterID").text or "", cluster)
    return of_ceph(ceph, cluster, files=driver.endswith(_FILES)) if ceph is not None else None


def namespace_of(driver: str, where: str) -> str:
    """Return the namespace of the Ceph cluster of a volume; empty: it is not of Ceph.

    ``where``: its cluster as the volume or the class names it, which Rook does by the namespace.
    """
    of_ceph = driver.endswith((_BLOCK, _FILES))
    return (where or driver.partition(".")[0]) if of_ceph else ""


def _ceph(driver: str, where: str, cluster: Cluster) -> Object | None:
    """Return the Ceph cluster of a volume of a driver; ``where``: as for ``namespace_of``."""
    namespace = namespace_of(driver, where)
    known = cluster.known(CEPH_CLUSTER) if namespace else ()
    return next((each for each in known if each.namespace == namespace), None)


def ceph_of(namespace: str, claim: str, cluster: Cluster) -> Object | None:
    """Return the Ceph cluster in which a claim has its volume; None: none, or it is not known."""
    return _behind(csi_of(find(cluster, PVC, namespace, claim), cluster), cluster)


def _behind(csi: Field, cluster: Cluster) -> Object | None:
    """Return the Ceph cluster of a volume."""
    where = csi["volumeAttributes"]["clusterID"].text or ""
    return _ceph(csi["driver"].text or "", where, cluster)


def has_stopped(ceph: Object, cluster: Cluster) -> bool | None:
    """Return whether a Ceph cluster takes no reads or writes, and not for a moment only; None:
    it is not known since when.

    Rook says when the health as a whole has changed, not since when a check fails.
    """
    failing = refusals(ceph, files=False)
    if not failing or "OSD_FULL" in failing or is_of_pool(ceph):
        return bool(failing)
    age = clock.since(ceph.at("status", "ceph", "lastChanged").text, cluster)
    if age is not None and age < PATIENCE:
        return False
    dated = age is not None and _is_dated(ceph, failing.keys() - _FULL)
    return True if dated or _waited(ceph) >= PATIENCE else None


def _waited(ceph: Object) -> timedelta:
    """Return for how long the oldest request to OSDs waits, as Ceph says."""
    slow = ceph.at("status", "ceph", "details", "SLOW_OPS", "message")
    found = _BLOCKED.search(slow.text or "")
    return timedelta(seconds=int(found[1])) if found else timedelta()


def _is_dated(ceph: Object, codes: Set[str]) -> bool:
    """Return whether the health of a Ceph cluster is what it is because of these checks, so that
    its time is theirs. A flag like noscrub keeps a warning for weeks.
    """
    health = ceph.at("status", "ceph", "health").text
    said = ceph.at("status", "ceph", "details").map
    others = {code: each for code, each in said.items() if code not in codes}
    return all(
        _FOLLOWS.fullmatch(code)
        or (health == ERROR and isinstance(each, Mapping) and each.get("severity") != ERROR)
        for code, each in others.items()
    )


def lacks_data(ceph: Object) -> bool:
    """Return whether data of a Ceph cluster is unavailable, so that no OSD may be given up."""
    return not _UNAVAILABLE.isdisjoint(refusals(ceph, files=False))


def is_of_pool(ceph: Object) -> bool:
    """Return whether only a pool is full, which may have no disk: for objects, or another class."""
    return refusals(ceph, files=False).keys() == {"POOL_FULL"}


def doubt(namespace: str, claims: Iterable[str], cluster: Cluster) -> Problem | None:
    """Return why a guest with these claims may not end its migration: its reads or writes wait in
    a Ceph cluster. QEMU hands a guest over when its requests to disks have ended, and the new pod
    opens the same images; None: nothing says so.

    Raises:
        Unseen: the Ceph cluster of a claim cannot be read.
    """
    for claim in claims:
        csi = csi_of(find(cluster, PVC, namespace, claim), cluster)
        if csi["driver"].text == LONGHORN and (
            faulted := _of_longhorn(csi["volumeHandle"].text, claim, cluster)
        ):
            return faulted._replace(reason=f"no migration attaches its volume: {faulted.reason}")
        ceph, of_rook = _behind(csi, cluster), (csi["driver"].text or "").endswith((_BLOCK, _FILES))
        if ceph is None and of_rook and (missing := unlisted(cluster, CEPH_CLUSTER)):
            raise Unseen(missing)
        if ceph is None or is_of_pool(ceph) or (stops := has_stopped(ceph, cluster)) is False:
            continue
        if fault := of_ceph(ceph, cluster, files=False):
            waits = "its reads or writes may wait, and then no migration ends"
            if stops:
                return fault._replace(reason=f"{waits}: {fault.reason}")
            return Problem(f"{waits} as long as this lasts: {fault.reason}", once_it_lasts(ceph))
    return None


def once_it_lasts(ceph: Object) -> str:
    """Return what to do about a Ceph cluster that may take reads and writes again in a moment."""
    words = f"see whether that lasts {duration(PATIENCE)}, and repair the Ceph cluster then"
    return typed(words, about("get", ceph, CEPH_CLUSTER))


def of_ceph(ceph: Object, cluster: Cluster, *, files: bool) -> Problem | None:
    """Return why a Ceph cluster refuses reads or writes; None: it does not say so."""
    failing = refusals(ceph, files=files)
    if not failing:
        return None
    words = _listed(failing)
    full = not _FULL.isdisjoint(failing)
    health = ceph.at("status", "ceph", "health").text or "?"
    used = _used(ceph) if "OSD_FULL" in failing else ""  # a pool has a quota of its own
    how = "is full" if "OSD_FULL" in failing else "has a full pool" if full else "is not healthy"
    down = list(_down(ceph, cluster)) if lacks_data(ceph) else []
    no_room = [code for code in _NO_ROOM if ceph.at("status", "ceph", "details", code).present]
    said = [words + used, *(f"OSD {osd} is down" for osd in _osds(down)[:_FEW])]
    said += [f"{code}: it lacks the room to recover by itself" for code in no_room[:1]]
    reason = f"CephCluster {ceph.full_name} {how} ({health}: {'; '.join(said)})"
    brief = f"CephCluster {ceph.full_name} {how} ({names(failing)})"
    described = about("describe", ceph, CEPH_CLUSTER)
    if not full:
        return Problem(reason, _repair(down, no_room, described, cluster), brief=brief)
    if "OSD_FULL" not in failing:
        raised = (
            "raise the quota of the pool (ceph osd pool set-quota), or delete images and snapshots "
            "in it"
        )
        return Problem(reason, typed(raised, described))
    owner = writers.owner_above(ceph)
    add = f"add OSDs{f' in {owner.title}' if owner is not None else ''}"
    room = f"make room in Ceph: {add}, or delete images, snapshots and claims that are not needed"
    step = owner.command("edit") if owner is not None else described
    return Problem(reason, typed(f"{room}; {_ratio(ceph)}", step))


def _down(ceph: Object, cluster: Cluster) -> Iterator[Object]:
    """Yield the pods of OSDs that are down: of those that Rook still counts in."""
    if not ceph.at("status", "ceph", "details", "OSD_DOWN").present:
        return
    for pod in entry(cluster, _osd_pods, ceph.namespace) or ():
        if not pod.ended and not pod.is_true("Ready"):
            yield pod


def _osd_pods(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the pods of OSDs by namespace. Each VM with a disk in Ceph asks for them."""
    of_osds = (pod for pod in cluster.known(POD) if OSD_ID in pod.labels)
    return grouped(of_osds, lambda pod: pod.namespace)


def _osds(pods: Iterable[Object]) -> list[str]:
    """Return the OSDs of these pods, each with its node."""
    on = {(pod.labels[OSD_ID], pod.at("spec", "nodeName").text or "") for pod in pods}
    return [f"{osd} on {node}" if node else osd for osd, node in sorted(on)]


def _repair(
    down: Sequence[Object], no_room: Sequence[str], described: str, cluster: Cluster
) -> str:
    """Return what makes data available again. An OSD that is down may have the only copy."""
    broken = broken_pods.first(down, cluster)
    back = (
        f"bring OSD {names(_osds(down), 60)} back, and do not remove it from Ceph before the data "
        "is available"
    )
    room = (
        "add OSDs, or delete images and snapshots that are not needed, so that Ceph has the room "
        "to recover"
    )
    steps = [*([back] if down else []), *([room] if no_room else [])]
    command = command_of(broken.remedy) if broken is not None else ""
    return typed("; ".join(steps) or "repair the Ceph cluster", command or described)


OSD_ID: Final = "ceph-osd-id"
"""Label of the pod of an OSD (rook/rook:pkg/operator/ceph/cluster/osd/labels.go)."""


def refusals(ceph: Object, *, files: bool) -> Mapping[str, Mapping[str, object]]:
    """Return the health checks of a Ceph cluster that stop reads or writes, by code."""
    said = ceph.at("status", "ceph", "details").map
    return {code: each for code, each in sorted(said.items()) if _refuses(code, each, files=files)}


def is_alone(ceph: Object, codes: Iterable[str]) -> bool:
    """Return whether a Ceph cluster has no other checks than these and those that come before
    them, so that the time of its health is theirs."""
    return _FILLS.issuperset(ceph.at("status", "ceph", "details").map.keys() - set(codes))


def _ratio(ceph: Object) -> str:
    """Return how Ceph accepts writes until there is room. Rook sets a ratio that it was given.

    The default is 0.95, and at 0.97 OSDs refuse every write (ceph/ceph:src/common/options,
    osd_failsafe_full_ratio).
    """
    given = ceph.at("spec", "storage", "fullRatio").value
    words = "as a decision, raise the full ratio until then"
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        field = writers.field_above(ceph, "storage", "fullRatio")
        where = field or "spec.storage.fullRatio of that CephCluster"
        return f"{words} by a little ({where}, now {given}), and set it back"
    return (
        f"{words} by a little, below 0.97 (now: ceph osd dump | grep full_ratio; then ceph osd "
        "set-full-ratio)"
    )


def filling(ceph: Object) -> str:
    """Return which checks say that a Ceph cluster fills up, and how much is used; empty: none."""
    said = ceph.at("status", "ceph", "details").map
    found = {code: each for code, each in said.items() if isinstance(each, Mapping)}
    failing = {code: each for code, each in sorted(found.items()) if code in _FILLS}
    return f"{_listed(failing)}{_used(ceph)}" if failing else ""


def _listed(failing: Mapping[str, Mapping[str, object]]) -> str:
    said = {code: cut(str(each.get("message") or ""), _LONGEST) for code, each in failing.items()}
    return names(f"{code} {message}".strip() for code, message in said.items())


def is_full(ceph: Object) -> bool:
    """Whether a Ceph cluster says that an OSD or a pool is full."""
    return not _FULL.isdisjoint(ceph.at("status", "ceph", "details").map)


def _refuses(code: str, said: object, *, files: bool) -> bool:
    """Return whether a health check stops reads or writes.

    ``files``: of CephFS, which needs an MDS.
    """
    if not isinstance(said, Mapping) or not said.get("severity"):
        return False
    message = str(said.get("message") or "")
    if code == "OSDMAP_FLAGS":
        return bool(_PAUSED.search(message))
    if code == "PG_AVAILABILITY" and set(_STATES.findall(message)) == {"peering"}:
        return False
    return code in _STOPS or (files and code == "MDS_ALL_DOWN")


def _used(ceph: Object) -> str:
    capacity = ceph.at("status", "ceph", "capacity")
    used, total = capacity["bytesUsed"].integer, capacity["bytesTotal"].integer
    return f"; {round(100 * used / total)} % used" if used and total else ""


def _of_longhorn(handle: str | None, claim: str, cluster: Cluster) -> Problem | None:
    volume = find_named(cluster, LONGHORN_VOLUME, handle)
    robustness = volume.at("status", "robustness").text if volume is not None else None
    if volume is None or robustness != "faulted":
        return None
    remedy = typed("repair a copy of it in Longhorn", about("describe", volume, LONGHORN_VOLUME))
    return Problem(
        f"Longhorn volume {volume.name} of claim {claim} is faulted: all its copies have failed",
        remedy,
    )


def first(namespace: str, claims: Sequence[str], cluster: Cluster) -> Problem | None:
    """Return the first fault of the storage of these claims; None: nothing says so."""
    return next(filter(None, (problem(namespace, claim, cluster) for claim in claims)), None)
