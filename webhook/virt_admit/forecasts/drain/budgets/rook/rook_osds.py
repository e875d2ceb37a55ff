"""PodDisruptionBudgets that Rook writes for OSDs: one for all of them,
and one of 0 for each domain while one is down.

The first are made before the last one is removed, so that a policy which denies budgets of 0 keeps
the other OSDs of a node that is drained. Source:
rook/rook:pkg/operator/ceph/disruption/clusterdisruption/osd.go#reconcilePDBsForOSDs
#handleActiveDrains; for such a policy elastisys/compliantkubernetes-apps#2610.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from virt_admit.forecasts.drain.budgets import pod_budgets, unhealthy_pods
from virt_admit.forecasts.drain.budgets.operator_eviction import (
    GOES,
    OperatorAnswer,
    PodEviction,
    Way,
    is_schedulable,
    node_of,
    selected_labels,
)
from virt_admit.forecasts.drain.budgets.rook import ceph_recovery
from virt_admit.forecasts.placement.components.drivers import refusing_storage
from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.evidence.writes import admission_policies
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, unlisted
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, DEPLOYMENT, NODE, PDB, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, names

READS: Final = union(
    clock.READS,
    admission_policies.READS,
    unhealthy_pods.READS,
    ceph_recovery.READS,
    {
        CEPH_CLUSTER: ("status.ceph.health", "status.ceph.details", "status.phase"),
        DEPLOYMENT: ("metadata.labels", "status.readyReplicas"),
        NODE: ("spec.unschedulable", *CONDITIONS),
        POD: ("metadata.labels", "metadata.creationTimestamp", "spec.nodeName", *CONDITIONS),
    },
)

DOMAIN: Final = "topology-location-"
"""Start of the label of OSD pods that names their failure domain."""
_HOST: Final = "topology-location-host"
"""Label of OSD pods: the name of their host in the CRUSH map."""
_ID: Final = refusing_storage.OSD_ID
_CONFIG_MAP: Final = kinds.guess("v1", "ConfigMap")
_STATE: Final = "rook-ceph-pdbstatemap"
_DRAINING: Final = "draining-failure-domain"
_SWITCHED: Final = datetime.timedelta(minutes=5)
"""Rook looks every 30 s. An OSD that is down for longer has not made it let the others of its node
go.
"""


def another_domain(eviction: PodEviction, label: str) -> OperatorAnswer:
    """Return what a budget of 0 waits for: Rook writes one for each failure domain but the one that
    is down, or that was down when it wrote them.
    """
    budgets = eviction.cluster.list(PDB, eviction.budget.namespace)
    if (own := _own_domain(eviction, label)) is not None:
        return own
    blocked = {value for budget in budgets if (value := selected_labels(budget).get(label))}
    osds = [pod for pod in eviction.pods if label in pod.labels]
    elsewhere = [pod for pod in osds if pod.labels[label] not in blocked]
    where = names(sorted({pod.labels[label] for pod in elsewhere})) or "another failure domain"
    failed = [pod for pod in _down(elsewhere) if _has_failed(pod, eviction)]
    if starting := _starting(failed, osds, label, eviction):
        return starting
    if failed:
        osds_down = _named(failed)
        reason = (
            f"{osds_down} on {where} is down although the node is up, and Rook lets no other node "
            "go until it is back"
        )
        lost = any(map(refusing_storage.lacks_data, eviction.cluster.known(CEPH_CLUSTER)))
        remove = "" if lost else ", or remove it from Ceph if its disk is lost"
        remedy = f"Repair {osds_down}{remove}."
        return OperatorAnswer(Way.NOW, reason, remedy)
    others = [pod for pod in _down(osds) if pod not in elsewhere]
    away = _away(elsewhere, eviction.cluster)
    if not away and _are_up(elsewhere, label, eviction):
        answer = _outdated(where, elsewhere, others, eviction)
        unread = unlisted(eviction.cluster, DEPLOYMENT)
        if not unread:
            return answer
        if answer.way is Way.WAITS:  # an OSD without a pod may be down
            raise Unseen(unread)
    too = f", and {_placed(others, eviction.cluster)} is down too" if others else ""
    reason = f"Ceph waits until {where} is back and its data is clean{too}"
    remedy = f"Wait for that, and repair {where} if it does not come back."
    if others:
        remedy = f"Bring {where} and {_placed(others, eviction.cluster)} back, and wait for that."
    return OperatorAnswer(Way.NOW, reason, remedy, away)


def _starting(
    failed: Sequence[Object], osds: Sequence[Object], label: str, eviction: PodEviction
) -> OperatorAnswer | None:
    """Return that the OSDs which are down only start, as while Rook updates them one after the
    other; None: that may not be all.

    Rook writes budgets of 0 whenever an OSD is down and data is not clean, and removes them itself
    (#reconcilePDBsForOSDs), also after its own restart of an OSD
    (:pkg/operator/ceph/cluster/osd/update.go#updateExistingOSDs).
    """
    cluster, down = eviction.cluster, _down(osds)
    if not failed or len(down) != len(failed) or _lacks_data(eviction):
        return None
    begins = [unhealthy_pods.began(each, cluster) for each in failed]
    if not (_is_updating(eviction) or all(each.waited for each in begins)):
        return None
    if not all(unhealthy_pods.has_just_begun(each, cluster) for each in failed):
        return None
    numbers = set(map(_number, failed))
    domains = {pod.labels[label] for pod in failed}
    without = (each for each in _stopped(domains, label, eviction) if _number(each) not in numbers)
    if any(True for _ in without):
        return None
    if unread := unlisted(cluster, DEPLOYMENT):
        raise Unseen(unread)
    first = max(begins, key=lambda each: each.age or datetime.timedelta())
    age = clock.duration(first.age or datetime.timedelta())
    the_first = "the first pod" if len(failed) > 1 else "its pod"
    reason = (
        f"Rook removes it once {_named(failed)} on {names(_hosts(failed))} is up and data is "
        f"clean: {the_first} {first.words} only {age} ago"
    )
    return OperatorAnswer(Way.WAITS, reason, passes=True)


def _lacks_data(eviction: PodEviction) -> bool:
    """Return whether Ceph lacks data, or may: its state is not known."""
    known = list(eviction.cluster.known(CEPH_CLUSTER, eviction.budget.namespace))
    return not known or any(map(refusing_storage.lacks_data, known))


def _is_updating(eviction: PodEviction) -> bool:
    """Return whether a budget of 0 is young, or Rook goes through its OSDs.

    An older budget is of OSDs that were down before: the start of one then says nothing, unless
    it has waited for its node.
    """
    known = eviction.cluster.known(CEPH_CLUSTER, eviction.budget.namespace)
    updating = any(each.at("status", "phase").text == _PROGRESSING for each in known)
    return updating or _is_young(eviction)


def _is_young(eviction: PodEviction) -> bool:
    age = clock.age(eviction.budget, eviction.cluster)
    is_exact = clock.exact(eviction.cluster) is not None
    return is_exact and age is not None and age <= unhealthy_pods.USUAL


_PROGRESSING: Final = "Progressing"


def _down(osds: Iterable[Object]) -> list[Object]:
    """Return the pods of OSDs that are down: no pod of them is ready. One that its node does not
    end any more says nothing about the OSD.
    """
    known = list(osds)
    up = {_number(pod) for pod in known if pod.is_true("Ready")}
    return [pod for pod in known if _number(pod) not in up]


def _number(osd: Object) -> str:
    return osd.labels.get(_ID, osd.name)


def _are_up(osds: Sequence[Object], label: str, eviction: PodEviction) -> bool:
    """Return whether all known OSDs of the failure domains of these are up, also those without a
    pod.
    """
    stopped = _stopped({pod.labels[label] for pod in osds}, label, eviction)
    return bool(osds) and not _down(osds) and not any(True for _ in stopped)


def _stopped(domains: Collection[str], label: str, eviction: PodEviction) -> Iterator[Object]:
    """Yield the Deployments of OSDs in these failure domains that have no ready pod."""
    for each in eviction.cluster.known(DEPLOYMENT):
        is_ready = bool(each.at("status", "readyReplicas").integer)
        is_here = each.namespace == eviction.budget.namespace
        if is_here and each.labels.get(label) in domains and not is_ready:
            yield each


def _outdated(
    where: str, back: Sequence[Object], down: Sequence[Object], eviction: PodEviction
) -> OperatorAnswer:
    """Return what keeps budgets of a failure domain that is back: Rook removes them once all data
    is clean, and does not let the next domain go instead.

    ``back`` and ``down``: the pods of its OSDs, and those of OSDs that are down elsewhere.

    A Rook before 1.18.3 retains the first domain (rook/rook:pkg/operator/ceph/disruption/
    clusterdisruption/osd.go#setPDBConfig, rook/rook#15840).
    """
    state = find(eviction.cluster, _CONFIG_MAP, eviction.budget.namespace or "", _STATE)
    named = state.at("data", _DRAINING).text if state is not None else None
    kept = f" ({_DRAINING} of ConfigMap {_STATE})" if named == where else ""
    begin = f"Rook has written it while OSDs of {where} were down{kept}, which are up again"
    if not down:
        reason = f"{begin}, and removes it once Ceph's data is clean"
        return ceph_recovery.judge(reason, back, eviction)
    osds = _placed(down, eviction.cluster)
    checks = sorted(
        code
        for ceph in eviction.cluster.known(CEPH_CLUSTER, eviction.budget.namespace)
        for code in ceph.at("status", "ceph", "details").map
        if code.startswith("PG_")
    )
    reason = f"{begin}, and keeps it as {osds} is down{f' ({names(checks)})' if checks else ''}"
    then = (
        "wait until Ceph's data is clean, when Rook removes these budgets. Do not delete them, nor "
        f"drain {where}, whose OSDs no budget protects, before that. Rook 1.18.3 and later moves "
        "them to the failure domain that is down"
    )
    hosts = _hosts(down)
    lost = next((each for each in hosts if _is_lost(each, eviction.cluster)), "")
    shown = kubectl("describe", NODE, lost) if lost else ""
    bring = f"Bring {_named(down)}{f' of {names(hosts)}' if hosts else ''} back"
    remedy = typed(bring, shown, f"{then}.")
    return OperatorAnswer(Way.NOW, reason, remedy)


@cached
def exposed(cluster: Cluster) -> Mapping[str, str]:
    """Return for nodes whose OSDs no budget protects, while OSDs elsewhere are down, that a drain
    would take more of the data away: Rook still lets them go, for an earlier drain.
    """
    if any(unlisted(cluster, kind) for kind in (PDB, POD)):
        return {}
    blocked: dict[tuple[str | None, str], set[str]] = {}
    for budget in cluster.known(PDB):
        for label, domain in selected_labels(budget).items():
            if label.startswith(DOMAIN) and budget.at("spec", "maxUnavailable").integer == 0:
                blocked.setdefault((budget.namespace, label), set()).add(domain)
    found: dict[str, str] = {}
    for (namespace, label), domains in blocked.items():
        pods = (pod for pod in cluster.known(POD) if pod.namespace == namespace)
        osds = [pod for pod in pods if label in pod.labels]
        down = _down(osds)
        lost = [pod for pod in down if pod.labels[label] in domains]
        free = [pod for pod in osds if pod.labels[label] not in domains]
        if not lost or any(pod in down for pod in free):
            continue
        for pod in free:
            if not any(True for _ in pod_budgets.selecting(pod, cluster)):
                found[node_of(pod)] = (
                    f"No budget protects OSD {_number(pod)} of this node, although "
                    f"{_placed(lost, cluster)} is down: a drain would take further copies of data "
                    "away, so wait until Ceph's data is clean."
                )
    return found


def _placed(osds: Sequence[Object], cluster: Cluster) -> str:
    """Return OSDs with their nodes: ``OSD 2 of n3 (which is not Ready)``."""
    hosts = _hosts(osds)
    lost = [host for host in hosts if _is_lost(host, cluster)]
    state = "which is not Ready" if len(hosts) == 1 else f"not Ready: {names(lost)}"
    of = f" of {names(hosts)}" if hosts else ""
    return f"{_named(osds)}{of}{f' ({state})' if lost else ''}"


def _hosts(osds: Iterable[Object]) -> list[str]:
    """Return the nodes of OSDs, as far as they are known."""
    return sorted({host for osd in osds if (host := node_of(osd) or osd.labels.get(_HOST, ""))})


def _is_lost(host: str, cluster: Cluster) -> bool:
    found = find(cluster, NODE, "", host)
    return found is not None and not found.is_true("Ready")


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
    down = _down(pod for pod in eviction.pods if label in pod.labels and _ID in pod.labels)
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
    return f"OSD {names(sorted(set(map(_number, osds))), 40)}"


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
        others = [osd for osd in down if osd not in here]
        begun = all(unhealthy_pods.has_just_begun(each, eviction.cluster) for each in others)
        if begun and not here and not _lacks_data(eviction):
            starts = f"{_named(others)} of {names(elsewhere)}, which has just begun to start"
            reason = f"Rook lets one go once {starts}, is up"
            return OperatorAnswer(Way.WAITS, reason, passes=True)
        remedy = "Wait for that, and repair the OSD if it does not come back."
        away = _away(others, eviction.cluster)
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
