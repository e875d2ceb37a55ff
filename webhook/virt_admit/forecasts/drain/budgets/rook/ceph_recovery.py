"""Whether Ceph goes on to recover, after OSDs that were down are up again: Rook removes its budgets
of 0 once each placement group is clean, and looks every 15 s.

A CephCluster has no rate and no list of placement groups. What stops a recovery is a check of its
own, so that without one, in the usual time, the recovery goes on. Sources:
rook/rook:pkg/daemon/ceph/client/status.go#IsClusterClean, :pkg/operator/ceph/cluster/cephstatus.go
#toCustomResourceStatus (each minute); ceph/ceph:doc/rados/operations/health-checks.rst,
:src/osd/OSDMap.cc#check_health.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.budgets import unhealthy_pods
from virt_admit.forecasts.drain.budgets.operator_eviction import OperatorAnswer, PodEviction, Way
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import cut_middle

READS: Final[Reads] = union(
    clock.READS,
    {
        CEPH_CLUSTER: ("status.ceph.health", "status.ceph.details", "status.ceph.lastChecked"),
        POD: ("status.conditions.lastTransitionTime",),
    },
)
_USUAL: Final = timedelta(hours=2)
"""Ceph copies what was written while a node was drained and rebooted."""
_CHECKED: Final = timedelta(minutes=10)
"""An older state says nothing about now."""
_HEALTHY: Final = ("HEALTH_OK", "HEALTH_WARN")
_ROOM: Final = ("PG_RECOVERY_FULL", "PG_BACKFILL_FULL", "OSD_FULL")
_BROKEN: Final = ("OBJECT_UNFOUND", "PG_DAMAGED", "OSD_SCRUB_ERRORS")
_FOR_A_MOMENT: Final = ("OSD_DOWN", "OSD_HOST_DOWN", "PG_AVAILABILITY")
"""What also stands for a moment after an OSD has started."""
_FLAGS: Final = re.compile(r"\b(?:norecover|nobackfill|norebalance|pauserd|pausewr)\b")
"""Flags of OSDMAP_FLAGS with which nothing is copied."""
_SHARE: Final = re.compile(r"\((\d{1,3}(?:\.\d{1,6})?%)\)")
_COUNTED: Final = {"PG_DEGRADED": "degraded", "OBJECT_MISPLACED": "misplaced"}
_SHOWN: Final = 160


class _Obstacle(NamedTuple):
    words: str
    remedy: str


def judge(reason: str, back: Sequence[Object], eviction: PodEviction) -> OperatorAnswer:
    """Return whether a budget that Rook removes once Ceph's data is clean is a wait.

    Args:
        reason: that it removes it then.
        back: the pods of the OSDs that are up again.
        eviction: of a pod of the budget.

    Raises:
        Unseen: the health of Ceph cannot be read.
    """
    cluster = eviction.cluster
    since = max(each.condition("Ready")["lastTransitionTime"].text or "" for each in back)
    lasts = clock.since(since, cluster)
    known = list(cluster.known(CEPH_CLUSTER, eviction.budget.namespace))
    found = next(filter(None, (_obstacle(each, lasts) for each in known)), None)
    if found is not None:
        return OperatorAnswer(Way.NOW, f"{reason}, but {found.words}", found.remedy)
    if not known and (unread := unlisted(cluster, CEPH_CLUSTER)):
        raise Unseen(unread)
    is_seen = bool(known) and all(_is_seen(each, cluster) for each in known)
    if clock.exact(cluster) is None or not is_seen:
        return OperatorAnswer(Way.NOW, reason, _SEE)
    age = clock.age(eviction.budget, cluster)
    if age is not None and age <= unhealthy_pods.USUAL:
        return OperatorAnswer(Way.WAITS, reason, passes=True)
    if lasts is None or lasts > _USUAL:
        return OperatorAnswer(Way.NOW, reason, _SEE)
    share = next(filter(None, map(_share, known)), "")
    words = f"it has been recovering for {clock.duration(lasts)}{share}, and nothing stops that"
    return OperatorAnswer(Way.WAITS, f"{reason}: {words}", passes=True)


_SEE: Final = "Wait for that, and see in Ceph what prevents it."


def _is_seen(ceph: Object, cluster: Cluster) -> bool:
    status = ceph.at("status", "ceph")
    age = clock.since(status["lastChecked"].text, cluster)
    return status["health"].text in _HEALTHY and age is not None and age <= _CHECKED


def _obstacle(ceph: Object, lasts: timedelta | None) -> _Obstacle | None:
    """Return what stops Ceph from recovering, as it says; None: it does not say so.

    ``lasts``: for how long the OSDs have been up again.
    """
    details = ceph.at("status", "ceph", "details")
    said = {code: each["message"].text or "" for code, each in details.entries()}
    if flag := _stopping(said):
        remedy = (
            f"Let Ceph recover again once the work for which {flag} was set has ended: ceph osd "
            f"unset {flag} in the pod of its tools."
        )
        return _Obstacle(f"its flag {flag} stops the recovery", remedy)
    settled = lasts is not None and lasts > unhealthy_pods.USUAL
    for codes, remedy in (
        (_ROOM, "Give Ceph the room to recover: add OSDs, or delete images that are not needed."),
        (_BROKEN, _REPAIR),
        (_FOR_A_MOMENT if settled else (), _REPAIR),
    ):
        if code := next((each for each in codes if each in said), ""):
            return _Obstacle(f"Ceph reports {cut_middle(f'{code}: {said[code]}', _SHOWN)}", remedy)
    if ceph.at("status", "ceph", "health").text == "HEALTH_ERR":
        return _Obstacle("the health of Ceph is HEALTH_ERR", _REPAIR)
    return None


def _stopping(said: Mapping[str, str]) -> str:
    """Return the flag that stops the recovery; empty: none of them is set.

    With norebalance Ceph only leaves data where they are that lack no copy
    (ceph/ceph:src/osd/PrimaryLogPG.cc#start_recovery_ops).
    """
    degraded = "PG_DEGRADED" in said and "OBJECT_MISPLACED" not in said
    found = _FLAGS.findall(said.get("OSDMAP_FLAGS", ""))
    return next((each for each in found if each != _NO_REBALANCE or not degraded), "")


_NO_REBALANCE: Final = "norebalance"
_REPAIR: Final = "Repair that in Ceph, then wait until its data is clean."


def _share(ceph: Object) -> str:
    """Return how much of the data is not where it belongs, in brackets; empty: not known."""
    details = ceph.at("status", "ceph", "details")
    for code, word in _COUNTED.items():
        if found := _SHARE.search(details[code]["message"].text or ""):
            return f" ({found[1]} of its objects {word})"
    return ""
