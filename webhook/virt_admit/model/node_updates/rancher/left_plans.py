"""Cordons of Jobs whose Plan was deleted: nothing uncordons such a node.

The system-upgrade-controller uncordons a node when the Job of a Plan has completed, and only if the
Plan exists; it deletes a Job whose Plan is gone. What is left are the cordon and, for an hour, the
Events of the Plan. A Plan labels each node that is done. Sources:
rancher/system-upgrade-controller:pkg/upgrade/handle_batch.go#handleJobs,
:pkg/upgrade/handle_upgrade.go#handlePlans (events SyncJob, with the nodes that have their turn).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster, cached, entry, unlisted
from virt_admit.model.kubernetes.kinds import NODE, PLAN, POD
from virt_admit.model.kubernetes.nodes import HOSTNAME, is_control_plane
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import is_absent, next_unlike
from virt_admit.model.messages import cut, cut_middle
from virt_admit.model.node_updates import node_phases
from virt_admit.model.node_updates.operators.cordons import Cordon

_OF_PLAN: Final = "upgrade.cattle.io/plan"
_ON_NODE: Final = "upgrade.cattle.io/node"
_HASH_OF: Final = "plan.upgrade.cattle.io/"
READS: Final[Reads] = union(
    clock.READS,
    {
        PLAN: (),
        POD: ("metadata.labels", "status.phase"),
        NODE: (
            *("metadata.labels", "metadata.managedFields", "spec.taints"),
            "status.nodeInfo.kubeletVersion",
        ),
    },
)
_TURN: Final = "SyncJob"
_DONE: Final = ("JobComplete", "JobCompleteWaiting")
"""Both uncordon the node, the latter at the begin of postCompleteDelay."""
_CLIENT: Final = "kubectl"
"""The manager of what the container of a Job writes (kubectl drain, kubectl cordon)."""
_SOON: Final = timedelta(minutes=30)
"""After its turn a Job pulls its images, prepares, and cordons."""
_NAME: Final = 80
_SYNCED: Final = re.compile(
    r"Jobs synced for version (\S{1,128}) on Nodes ([\w.,-]{1,20000}?)\.(?: |$)"
)
_COMPLETED: Final = re.compile(r"Job completed on Node ([\w.-]{1,253})")
_SAID: Final = 160
_LONG: Final = timedelta(hours=6)
"""A maintenance by hand has usually ended by then."""


class _Turn(NamedTuple):
    """That a Plan gave a node its turn."""

    namespace: str
    name: str
    version: str
    time: datetime

    @property
    def plan(self) -> str:
        return cut(f"{PLAN.kind} {self.namespace}/{self.name}", _NAME)


def of_node(node: Object, cluster: Cluster) -> Cordon | None:
    """Return that a deleted Plan has left a node cordoned; None: that is not known, its Job has
    completed, or a pod of it may still run."""
    since = node_phases.cordoned_since(node)
    if since is None or unlisted(cluster, PLAN) or unlisted(cluster, POD):
        return None
    if (by := node_phases.cordoned_by(node)) and not by.startswith(_CLIENT):
        return None
    turns = entry(cluster, _turns, _host(node)) or ()
    turn = max(
        (each for each in turns if each.time <= since), key=lambda each: each.time, default=None
    )
    if turn is None:
        return _by_labels(node, since, cluster)
    if not is_absent(cluster, PLAN, turn.namespace, turn.name):
        return None
    if _has_completed(turn, node, cluster) or _runs(turn, node, cluster):
        return None
    soon = since - turn.time <= _SOON
    return Cordon(
        f"{'' if soon else 'kubectl, perhaps in '}a Job of {turn.plan}, which does not exist any "
        "more",
        " ".join(_facts(turn, node, since, cluster)),
        False if soon else None,
        _uncordon(node),
        by_hand=True,
    )


def _uncordon(node: Object) -> str:
    return typed(
        f"uncordon {node.name} if no other work on it goes on",
        shell("kubectl", "uncordon", argument(node.name)),
        "then apply a corrected Plan for the nodes that are left",
    )


def _by_labels(node: Object, since: datetime, cluster: Cluster) -> Cordon | None:
    """Return that a node was cordoned for hours, and that a Plan which has labelled other nodes is
    gone and has not reached this one; None: it has, or a Plan of that name exists."""
    if not clock.has_lasted(clock.stamp(since), _LONG, cluster):
        return None
    own = _version(node)
    # a control plane has Plans of its own
    gone = entry(cluster, _gone, is_control_plane(node))
    found = _beyond(gone, node) if gone is not None and own else None
    if found is None:
        return None
    version, other = next(each for each in found.nodes.items() if each[0] != own)
    facts = (
        f"Plan {cut(found.plan, _NAME)}, which has labelled {other} (now at {version}), does not "
        f"exist any more, and has not labelled {node.name} ({own}). A Job of it may have left the "
        "cordon."
    )
    by = node_phases.cordoned_by(node) or "an unknown client"
    who = f"{by}{clock.past(clock.stamp(since), cluster)}"
    return Cordon(who, facts, None, _uncordon(node), by_hand=True, failed=True)


class _GonePlan(NamedTuple):
    """A Plan that has labelled nodes and does not exist."""

    plan: str
    nodes: Mapping[str, str]
    """A node of each version."""
    following: int
    """The place of the next one that has not labelled nodes of the same one version alone."""


def _beyond(gone: Sequence[_GonePlan], node: Object) -> _GonePlan | None:
    """Return the first Plan that has not labelled a node, and has labelled one of another version;
    None: there is none.
    """
    own, at = _version(node), 0
    while at < len(gone):
        if gone[at].nodes.keys() == {own}:
            at = gone[at].following
        elif f"{_HASH_OF}{gone[at].plan}" in node.labels:
            at += 1
        else:
            return gone[at]
    return None


@cached
def _gone(cluster: Cluster) -> Mapping[bool, Sequence[_GonePlan]]:
    """Return the Plans that have labelled nodes and do not exist, of the control plane and of other
    nodes.
    """
    plans = {plan.name for plan in cluster.known(PLAN)}
    found: dict[bool, dict[str, dict[str, str]]] = {}
    for node in sorted(cluster.known(NODE), key=lambda each: each.name):
        for key in sorted(node.labels):
            name, version = key.removeprefix(_HASH_OF), _version(node)
            if name != key and name not in plans and version:
                of_role = found.setdefault(is_control_plane(node), {})
                of_role.setdefault(name, {}).setdefault(version, node.name)
    return {role: _in_order(each) for role, each in found.items()}


def _in_order(found: Mapping[str, Mapping[str, str]]) -> Sequence[_GonePlan]:
    following = next_unlike([frozenset(each) for each in found.values()])
    return [
        _GonePlan(name, nodes, after)
        for (name, nodes), after in zip(found.items(), following, strict=True)
    ]


def _version(node: Object) -> str:
    return node.at("status", "nodeInfo", "kubeletVersion").text or ""


@cached
def _turns(cluster: Cluster) -> Mapping[str, Sequence[_Turn]]:
    """Return which Plans gave nodes their turn, by their host name, as far as their Events are
    known.
    """
    turns: dict[str, list[_Turn]] = {}
    for event in events.known(PLAN.kind, _TURN, cluster):
        found = _SYNCED.match(event["message"].words)
        about, time = event["involvedObject"], events.time_of(event)
        if found is not None and time is not None:
            turn = _Turn(about["namespace"].text or "", about["name"].text or "", found[1], time)
            for host in found[2].split(","):
                turns.setdefault(host, []).append(turn)
    return turns


def _host(node: Object) -> str:
    return node.labels.get(HOSTNAME) or node.name


def _has_completed(turn: _Turn, node: Object, cluster: Cluster) -> bool:
    """Return whether the Job of a Plan has completed on a node since, which uncordoned it: what
    cordons it now came later."""
    last = entry(cluster, _completed, (turn.namespace, turn.name, node.name))
    return last is not None and last >= turn.time


@cached
def _completed(cluster: Cluster) -> Mapping[tuple[str, str, str], datetime]:
    """Return when the Jobs of Plans completed last, by namespace and name of the Plan and node."""
    times: dict[tuple[str, str, str], datetime] = {}
    for event in (each for reason in _DONE for each in events.known(PLAN.kind, reason, cluster)):
        about, found = event["involvedObject"], _COMPLETED.match(event["message"].words)
        if found is not None:
            on = found[1].rstrip(".")
            key = about["namespace"].text or "", about["name"].text or "", on
            time = events.time_of(event) or _UNKNOWN
            times[key] = max(time, times.get(key, time))
    return times


_UNKNOWN: Final = datetime.max.replace(tzinfo=UTC)
"""An event without a time may be the last one."""


def _runs(turn: _Turn, node: Object, cluster: Cluster) -> bool:
    """Return whether a pod of a Plan may still run for a node."""
    names = {node.name, _host(node)}
    return any(entry(cluster, _running, (turn.namespace, turn.name, each)) for each in names)


@cached
def _running(cluster: Cluster) -> Mapping[tuple[str, str, str], bool]:
    """Return for which nodes pods of Plans may still run, by namespace and name of the Plan."""
    return {
        (pod.namespace, plan, pod.labels.get(_ON_NODE, "")): True
        for pod in cluster.known(POD)
        if (plan := pod.labels.get(_OF_PLAN)) and not pod.ended
    }


def _facts(turn: _Turn, node: Object, since: datetime, cluster: Cluster) -> Iterator[str]:
    lasts = clock.lasting(clock.stamp(since), cluster)
    yield (
        f"No Plan and no Job uncordons it{lasts}: the Plan gave it its turn at "
        f"{clock.stamp(turn.time)} (event SyncJob), and the cordon is of {clock.stamp(since)}."
    )
    if said := _failure(turn, node, cluster):
        yield f"The kubelet said of its pod: {said}."
    has = _version(node)
    if has and turn.version.startswith("v") and has.replace("+", "-") != turn.version:
        yield f"The node has {has}, that Plan brought {turn.version}."


def _failure(turn: _Turn, node: Object, cluster: Cluster) -> str:
    """Return what the kubelet last said of the pod of a Plan for a node; empty: nothing."""
    begin = turn.namespace, f"apply-{turn.name}-on-{node.name.partition('.')[0]}-"
    every = _failed(cluster)
    after = (every[at] for at in range(bisect_left(every, begin, key=_pod_of), len(every)))
    own = takewhile(
        lambda each: each.pod[0] == begin[0] and each.pod[1].startswith(begin[1]), after
    )
    late = (each for each in own if (events.time_of(each.event) or turn.time) >= turn.time)
    found = min(late, key=lambda each: each.place, default=None)
    return cut_middle(found.event["message"].words.rstrip("."), _SAID) if found else ""


class _FailedPod(NamedTuple):
    pod: tuple[str, str]
    """Its namespace and name."""
    place: int
    """Of the event among all."""
    event: Object


def _pod_of(failed: _FailedPod) -> tuple[str, str]:
    return failed.pod


@cached
def _failed(cluster: Cluster) -> Sequence[_FailedPod]:
    """Return the events of pods that failed, by their pods."""
    abouts = ((each["involvedObject"], each) for each in events.known(POD.kind, "Failed", cluster))
    found = (
        _FailedPod((about["namespace"].text or "", about["name"].text or ""), place, event)
        for place, (about, event) in enumerate(abouts)
    )
    return sorted(found, key=lambda each: each[:2])
