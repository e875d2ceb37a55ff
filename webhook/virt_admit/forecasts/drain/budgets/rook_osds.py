"""PodDisruptionBudgets that Rook writes for OSDs: one for all of them,
and one of 0 for each domain while one is down.

The first are made before the last one is removed, so that a policy which denies budgets of 0 keeps
the other OSDs of a node that is drained. Source:
rook/rook:pkg/operator/ceph/disruption/clusterdisruption/osd.go#reconcilePDBsForOSDs
#handleActiveDrains; for such a policy elastisys/compliantkubernetes-apps#2610.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Final

from virt_admit.forecasts.drain.budgets.operator_eviction import (
    GOES,
    OperatorAnswer,
    PodEviction,
    Way,
    is_schedulable,
    node_of,
    selected_labels,
)
from virt_admit.forecasts.placement.components.drivers import refusing_storage
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.evidence.writes import admission_policies
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, NODE, PDB, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, union
from virt_admit.model.messages import capital, names

READS: Final = union(
    clock.READS,
    admission_policies.READS,
    {
        CEPH_CLUSTER: ("status.ceph.health",),
        NODE: ("spec.unschedulable", *CONDITIONS),
        POD: ("metadata.labels", "metadata.creationTimestamp", "spec.nodeName", *CONDITIONS),
    },
)

_HOST: Final = "topology-location-host"
"""Label of OSD pods: the name of their host in the CRUSH map."""
_ID: Final = refusing_storage.OSD_ID
_SWITCHED: Final = datetime.timedelta(minutes=5)
"""Rook looks every 30 s. An OSD that is down for longer has not made it let the others of its node
go.
"""


def another_domain(eviction: PodEviction, label: str) -> OperatorAnswer:
    """Return what a budget of 0 waits for: Rook writes one for each failure domain but the one that
    is down.
    """
    budgets = eviction.cluster.list(PDB, eviction.budget.namespace)
    if (own := _own_domain(eviction, label)) is not None:
        return own
    blocked = {value for budget in budgets if (value := selected_labels(budget).get(label))}
    elsewhere = [pod for pod in eviction.pods if pod.labels.get(label) not in (None, *blocked)]
    where = names(sorted({pod.labels[label] for pod in elsewhere})) or "another failure domain"
    failed = [pod for pod in elsewhere if _has_failed(pod, eviction)]
    if failed:
        osds = _named(failed)
        reason = (
            f"{osds} on {where} is down although the node is up, and Rook lets no other node go "
            "until it is back"
        )
        lost = any(map(refusing_storage.lacks_data, eviction.cluster.known(CEPH_CLUSTER)))
        remove = "" if lost else ", or remove it from Ceph if its disk is lost"
        remedy = f"Repair {osds}{remove}."
        return OperatorAnswer(Way.NOW, reason, remedy)
    reason = f"Ceph waits until {where} is back and its data is clean"
    remedy = f"Wait for that, and repair {where} if it does not come back."
    return OperatorAnswer(Way.NOW, reason, remedy, _away(elsewhere, eviction.cluster))


def _away(osds: Iterable[Object], cluster: Cluster) -> tuple[str, ...]:
    """Return the nodes of these OSDs that are cordoned: their return brings the OSDs back."""
    hosts = {node_of(osd) or osd.labels.get(_HOST, "") for osd in osds}
    return tuple(sorted(host for host in hosts if host and not is_schedulable(host, cluster)))


def _own_domain(eviction: PodEviction, label: str) -> OperatorAnswer | None:
    """Return what holds a budget of 0 up in its own failure domain; None: OSDs elsewhere are down,
    or none is.

    Rook can take two drains after each other for one of another domain (rook/rook#14730). The OSD
    that is evicted already then cannot start on the cordoned node, and the next one may not leave.
    """
    domain = selected_labels(eviction.budget)[label]
    down = [
        pod
        for pod in eviction.pods
        if label in pod.labels and _ID in pod.labels and not pod.is_true("Ready")
    ]
    if not down or any(pod.labels[label] != domain for pod in down):
        return None
    hosts = sorted({node_of(pod) or pod.labels.get(_HOST, "") or domain for pod in down})
    osds = _named(down)
    reason = (
        f"{osds} of {names(hosts)} itself is down, and Rook lets no further OSD of it go until "
        "Ceph's data is clean"
    )
    cordoned = [host for host in hosts if _is_cordoned(host, eviction.cluster)]
    first = (
        f"Let {osds} start: {shell('kubectl', 'uncordon', *map(argument, cordoned))}; then"
        if cordoned
        else f"Repair {osds}, then"
    )
    return OperatorAnswer(
        Way.NOW, reason, f"{first} wait until Ceph's data is clean, and drain again."
    )


def _is_cordoned(host: str, cluster: Cluster) -> bool:
    found = cluster.get(NODE, "", host)
    return found is not None and found.at("spec", "unschedulable").boolean is True


def _has_failed(pod: Object, eviction: PodEviction) -> bool:
    """Return whether an OSD is down on a node that is Ready and not cordoned,
    so that no drain explains it.
    """
    name = node_of(pod) or pod.labels.get(_HOST, "")
    is_down = _ID in pod.labels and not pod.is_true("Ready")
    node = eviction.cluster.get(NODE, "", name) if is_down else None
    return node is not None and node.is_true("Ready") and is_schedulable(name, eviction.cluster)


def _named(osds: Iterable[Object]) -> str:
    return f"OSD {names(sorted({osd.labels[_ID] for osd in osds}), 40)}"


def of_node(eviction: PodEviction) -> OperatorAnswer:
    """Return what the budget of all OSDs does: the first OSD of a node goes,
    and Rook then lets the others go.
    """
    osds = list(eviction.selected)
    if eviction.allowed >= sum(node_of(osd) == eviction.node for osd in osds):
        return GOES
    owner = (
        next(
            (each["name"].text for each in eviction.budget.metadata["ownerReferences"].items()),
            None,
        )
        or ""
    )
    ceph = eviction.cluster.get(CEPH_CLUSTER, eviction.budget.namespace, owner)
    health = ceph.at("status", "ceph", "health").text if ceph is not None else None
    if health not in ("HEALTH_OK", "HEALTH_WARN"):
        raise Unseen(f"the health of CephCluster {owner} is {health or 'not known'}")
    down = [osd for osd in osds if not osd.is_true("Ready")]
    here = [osd for osd in down if _is_beside(osd, eviction)]
    elsewhere = sorted({node_of(osd) or osd.name for osd in down if osd not in here})
    if not eviction.allowed and elsewhere and health != "HEALTH_OK":
        reason = f"an OSD of {names(elsewhere)} is down, and Ceph waits until its data is clean"
        remedy = "Wait for that, and repair the OSD if it does not come back."
        away = _away([osd for osd in down if osd not in here], eviction.cluster)
        return OperatorAnswer(Way.NOW, reason, remedy, away)
    late = [osd for osd in here if _ID in osd.labels and _is_long_down(osd, eviction)]
    if not eviction.allowed and late:
        reason = (
            f"it allows one OSD to be down, {_named(late)} of {eviction.node} is, and Rook has not "
            "let the other OSDs of the node go"
        )
        if (denied := _denied(late, reason, eviction)) is not None:
            return denied
        remedy = (
            "See in the log of rook-ceph-operator what keeps it from that. A Rook before 1.13 does "
            "so only once placement groups are degraded, which an OSD without data does not cause: "
            "update that one."
        )
        return OperatorAnswer(Way.NOW, reason, remedy)
    return OperatorAnswer(
        Way.WAITS,
        f"Rook lets all OSDs of node {eviction.node} go about 1 minute after the first one is down",
    )


def _denied(late: Iterable[Object], reason: str, eviction: PodEviction) -> OperatorAnswer | None:
    """Return which policy may deny the budgets that Rook makes before it lets OSDs go; None: none
    is known to, and older than the drain.
    """
    since = min(filter(None, map(clock.instant, map(_changed, late))), default=None)
    field, namespace = "maxUnavailable", eviction.budget.namespace
    policy = admission_policies.denying(PDB, namespace, field, since, eviction.cluster)
    if policy is None:
        return None
    reads = f" and reads {field}" if policy.reads else ""
    why = (
        f"{reason}: {policy.title} covers budgets in {namespace}{reads}, so it may deny those of "
        "0 that Rook makes first for the other failure domains"
    )
    then = (
        "Rook then makes these budgets and removes this one itself. If it does not, see the log of "
        "rook-ceph-operator"
    )
    return OperatorAnswer(Way.NOW, why, typed(capital(policy.order), policy.command, f"{then}."))


def _is_beside(osd: Object, eviction: PodEviction) -> bool:
    """Return whether an OSD is of the node that is drained;
    the pod of an evicted one is Pending without a node.
    """
    host = eviction.pod.labels.get(_HOST)
    return node_of(osd) == eviction.node or (host is not None and osd.labels.get(_HOST) == host)


def _is_long_down(osd: Object, eviction: PodEviction) -> bool:
    age = clock.since(_changed(osd), eviction.cluster)
    return age is not None and age > _SWITCHED


def _changed(osd: Object) -> str | None:
    return osd.condition("Ready")["lastTransitionTime"].text or osd.created
