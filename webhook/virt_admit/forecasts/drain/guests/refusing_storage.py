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
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, LONGHORN_VOLUME, PV, PVC
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.messages import cut, names
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


def problem(namespace: str, claim: str, cluster: Cluster) -> Problem | None:
    """Return why the storage of a claim refuses reads or writes; None: its object does not say so,
    or is not known.
    """
    csi = csi_of(namespace, claim, cluster)
    driver = csi["driver"].text or ""
    if driver.endswith((_BLOCK, _FILES)):
        where = namespace_of(driver, csi["volumeAttributes"]["clusterID"].text or "")
        return _of_volume(where, files=driver.endswith(_FILES), cluster=cluster)
    return (
        _of_longhorn(csi["volumeHandle"].text or "-", claim, cluster)
        if driver == LONGHORN
        else None
    )


def csi_of(namespace: str, claim: str, cluster: Cluster) -> Field:
    """Return the driver and the handle of the volume behind a claim; absent: it has none,
    or that could not be read.
    """
    try:
        found = cluster.get(PVC, namespace, claim) if claim else None
        volume = (
            cluster.get(PV, "", found.at("spec", "volumeName").text or "")
            if found is not None
            else None
        )
    except Unseen:
        return Field(None)
    return volume.at("spec", "csi") if volume is not None else Field(None)


def of_class(storage_class: Object, cluster: Cluster) -> Problem | None:
    """Return why the storage of a class refuses reads or writes; None: nothing says so."""
    driver = storage_class["provisioner"].text or ""
    if not driver.endswith((_BLOCK, _FILES)):
        return None
    where = namespace_of(driver, storage_class.at("parameters", "clusterID").text or "")
    return _of_volume(where, files=driver.endswith(_FILES), cluster=cluster)


def namespace_of(driver: str, where: str) -> str:
    """Return the namespace of the Ceph cluster of a volume; empty: it is not of Ceph.

    ``where``: its cluster as the volume or the class names it, which Rook does by the namespace.
    """
    of_ceph = driver.endswith((_BLOCK, _FILES))
    return (where or driver.partition(".")[0]) if of_ceph else ""


def _of_volume(where: str, *, files: bool, cluster: Cluster) -> Problem | None:
    """Return what the Ceph cluster of a volume says.

    ``where``: its namespace, as Rook writes it.
    """
    ceph = next((each for each in cluster.known(CEPH_CLUSTER) if each.namespace == where), None)
    return of_ceph(ceph, files=files) if ceph is not None else None


def of_ceph(ceph: Object, *, files: bool) -> Problem | None:
    """Return why a Ceph cluster refuses reads or writes; None: it does not say so."""
    failing = refusals(ceph, files=files)
    if not failing:
        return None
    words = _listed(failing)
    full = not _FULL.isdisjoint(failing)
    health = ceph.at("status", "ceph", "health").text or "?"
    used = _used(ceph) if "OSD_FULL" in failing else ""  # a pool has a quota of its own
    how = "is full" if "OSD_FULL" in failing else "has a full pool" if full else "is not healthy"
    reason = f"CephCluster {ceph.full_name} {how} ({health}: {words}{used})"
    described = about("describe", ceph, CEPH_CLUSTER)
    if not full:
        return Problem(reason, typed("repair the Ceph cluster", described))
    if "OSD_FULL" not in failing:
        raised = (
            "raise the quota of the pool (ceph osd pool set-quota), or delete images and snapshots "
            "in it"
        )
        return Problem(reason, typed(raised, described))
    room = "make room in Ceph: add OSDs, or delete images, snapshots and claims that are not needed"
    return Problem(reason, typed(f"{room}; {_ratio(ceph)}", described))


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
        return f"{words} by a little (spec.storage.fullRatio of that CephCluster, now {given})"
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


def _of_longhorn(handle: str, claim: str, cluster: Cluster) -> Problem | None:
    volume = next((each for each in cluster.known(LONGHORN_VOLUME) if each.name == handle), None)
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
