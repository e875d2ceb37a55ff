"""How far the Plans of the system-upgrade-controller are: which nodes are done, which has its turn,
which Job has failed.

A Plan labels each node that is done with its hash, and lists those that have their turn. It makes a
Job that has failed again only when the Plan itself changes, and uncordons a node only after a Job
that has completed. ``prepare`` of the Plan of the agents waits until that of the servers has done
all its nodes; its pods run from the begin. Sources:
rancher/system-upgrade-controller:pkg/upgrade/plan/plan.go#SelectConcurrentNodes,
:pkg/upgrade/handle_batch.go#handleJobs, :pkg/upgrade/handle_upgrade.go#handlePlans
(UniqueApplyForResourceVersion), :doc/plan.md (jobActiveDeadlineSecs);
rancher/rke2-upgrade:scripts/upgrade.sh#prepare;
rancher/wrangler:pkg/condition/condition.go#setValue (lastUpdateTime is that of the last other
status or message).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from virt_admit.model.commands import about, argument, merge_patch, shell, typed
from virt_admit.model.kubernetes import clock, events, selectors
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import JOB, NODE, PLAN, POD
from virt_admit.model.kubernetes.nodes import HOSTNAME
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import WHOLE_CONDITIONS, Reads, union
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase, PoolUpdate
from virt_admit.model.node_updates.rancher import plan_pods
from virt_admit.model.node_updates.update_orders import StandingOrder, title

OF_PLAN: Final = "upgrade.cattle.io/plan"
ON_NODE: Final = "upgrade.cattle.io/node"
"""Labels of the pods of a Plan: its name, and that of the node."""
_HASH_OF: Final = "plan.upgrade.cattle.io/"
"""The label of nodes and Jobs with the hash of the version that a Plan gave them."""

READS: Final[Reads] = union(
    clock.READS,
    plan_pods.READS,
    {
        PLAN: (),
        JOB: ("metadata.labels", "status.completionTime", *WHOLE_CONDITIONS),
        NODE: ("metadata.labels", "spec.unschedulable", "status.nodeInfo.kubeletVersion"),
        POD: ("metadata.labels", "metadata.ownerReferences", "status.phase"),
    },
)


class FailedJob(NamedTuple):
    """A Job of a Plan that has failed and is not made again by itself."""

    plan: Object
    name: str
    """The full name of the Job; empty: the Plan does not say."""
    node: str
    why: str
    since: str
    """When, as a time stamp."""


@cached
def unfinished(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    """Return the pods of Jobs that have not ended, by namespace and name of the Plan."""
    own = (pod for pod in cluster.known(POD) if pod.labels.get(OF_PLAN))
    left = (pod for pod in own if not pod.deleted and not pod.ended)
    return grouped(left, lambda pod: (pod.namespace, pod.labels.get(OF_PLAN, "")))


# --- a Job that has failed ------------------------------------------------------------------------

_FAILED: Final = re.compile(
    r"Job (?:(\S{1,320}) )?failed on Node ([\w.-]{1,253})(?:: (.*))?", re.DOTALL
)
_DEADLINE: Final = "DeadlineExceeded"


def failed(plan: Object, cluster: Cluster) -> FailedJob | None:
    """Return the Job that a Plan says has failed; None: none has, it runs again,
    or its node is done or gone.
    """
    return next(_all_failed(plan, cluster), None)


def _all_failed(plan: Object, cluster: Cluster) -> Iterator[FailedJob]:
    """Yield the failed Jobs of a Plan, one for each node."""
    done = set()
    for message, since in _reports(plan, cluster):
        found = _FAILED.match(message)
        node = cluster.cached(_by_name).get(found[2]) if found is not None else None
        if found is None or node is None or node.name in done:
            continue
        done.add(node.name)
        runs = unfinished(cluster).get((plan.namespace, plan.name), ())
        if not _is_done(plan, node) and not any(
            pod.labels.get(ON_NODE) == found[2] for pod in runs
        ):
            yield FailedJob(
                plan, found[1] or "", node.name, " ".join((found[3] or "").split()), since
            )


def _reports(plan: Object, cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield the message and the time of each failure, by the condition of a Plan and by its Events,
    the newest first.

    The releases 0.15 write Events alone. Those before the last change of the condition, or before
    the Plan's present version was found, are about another version. A node whose Job has failed
    keeps its place in ``applying``.
    """
    said = plan.condition("Complete")
    if said["status"].text != "False":
        return
    since = said["lastUpdateTime"].text or said["lastTransitionTime"].text or ""
    if said["reason"].text == "JobFailed":
        yield said["message"].text or "", since
    begun = [clock.instant(since), *(time for _, time in _events("Resolved", plan, cluster))]
    begin = max((time for time in begun if time is not None), default=None)
    turn = {each.text for each in plan.at("status", "applying").items()}
    for message, time in sorted(
        _events("JobFailed", plan, cluster), key=lambda each: each[1], reverse=True
    ):
        found = _FAILED.match(message)
        node = cluster.cached(_by_name).get(found[2]) if found is not None else None
        if begin is not None and time >= begin and node is not None and _host(node) in turn:
            yield message, clock.stamp(time) or ""


def _events(reason: str, plan: Object, cluster: Cluster) -> Iterator[tuple[str, datetime]]:
    """Yield the message and the time of the known Events of a Plan with a reason."""
    for event in events.known(PLAN.kind, reason, cluster):
        about, time = event["involvedObject"], events.time_of(event)
        if (
            about["name"].text == plan.name
            and about["namespace"].text == plan.namespace
            and time is not None
        ):
            yield event["message"].text or "", time


def _by_name(cluster: Cluster) -> Mapping[str, Object]:
    """Return the nodes by their names and host names."""
    found: dict[str, Object] = {}
    for node in cluster.known(NODE):
        for name in filter(None, (node.name, _host(node))):
            found.setdefault(name, node)
    return found


def _failed_jobs(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[FailedJob]]:
    """Return the failed Jobs by namespace and name of their Plans."""
    return {
        (plan.namespace, plan.name): tuple(_all_failed(plan, cluster))
        for plan in cluster.known(PLAN)
    }


def standing(job: FailedJob, cluster: Cluster) -> StandingOrder:
    """Return that a Plan has stopped, with what it leaves behind."""
    node = next(each for each in cluster.known(NODE) if each.name == job.node)
    cordoned = bool(node.at("spec", "unschedulable").boolean)
    behind = [each.name for each in _left(job.plan, cluster) if each.name != job.node]
    stays = f". {job.node} stays {'cordoned' if cordoned else 'as it is'}{_version(job.plan, node)}"
    rest = (
        f", and {names(behind, 60)} {'is' if len(behind) == 1 else 'are'} not begun"
        if behind
        else ""
    )
    begin = f"{title(job.plan)} has stopped: "
    again = ", and the Plan makes it again only when the Plan is changed"
    return StandingOrder(
        job.plan,
        f"{begin}{words(job, cluster)}{again}{stays}{rest}",
        remedy(job, cluster),
        certain=not unlisted(cluster, POD),  # the Job may run again
        brief=(
            f"{begin}{words(job._replace(why=job.why.partition(':')[0]), cluster)}, for "
            f"good{stays}{rest}"
        ),
    )


_MOST: Final = 160
"""Characters of the reason of a Job."""


def words(job: FailedJob, cluster: Cluster) -> str:
    """Return which Job has failed on which node, when and why."""
    ago = clock.past(job.since, cluster)
    why = f" ({cut_middle(job.why, _MOST)})" if job.why else ""
    name = f" {job.name}" if job.name else ""
    return f"its Job{name} on {job.node} failed{ago}{why}"


def _version(plan: Object, node: Object) -> str:
    """Return which version a node still has, where the Plan updates Kubernetes."""
    has = node.at("status", "nodeInfo", "kubeletVersion").text
    wanted = plan.at("status", "latestVersion").text or ""
    is_release = re.match(r"v\d+\.\d+", wanted)
    return f" at {has}" if has and is_release and has.replace("+", "-") != wanted else ""


_LONG_ENOUGH: Final = 7200
"""Seconds that are proposed for a Job; the default is 900
(manifests/system-upgrade-controller.yaml).
"""


def remedy(job: FailedJob, cluster: Cluster) -> str:
    """Return what makes the Job again, with what kept it from completing."""
    plan, own = job.plan, title(job.plan)
    if job.why.startswith(_DEADLINE):
        given = plan.at("spec", "jobActiveDeadlineSecs").integer or 0
        data = {"spec": {"jobActiveDeadlineSecs": max(_LONG_ENOUGH, 2 * given)}}
        longer = (
            f"Set spec.jobActiveDeadlineSecs of {own} to more seconds than the drain of {job.node} "
            "takes"
        )
        effect = f"which makes the Job again; it uncordons {job.node} at its end"
        return typed(f"{longer}, {effect}", merge_patch(PLAN, plan.name, plan.namespace, data))
    logs = shell(
        "kubectl",
        "logs",
        "-n",
        plan.namespace,
        "-l",
        f"{OF_PLAN}={plan.name}",
        "--all-containers",
        "--tail=50",
    )
    own_pods = (pod for pod in cluster.known(POD) if pod.namespace == plan.namespace)
    kept = any(pod.labels.get(OF_PLAN) == plan.name for pod in own_pods)
    see = logs if kept else about("describe", plan, PLAN)
    where = "in the log of its pods " if kept else ""
    cause = (
        f"See {where}why the Job failed, correct that, then change {own} (an annotation is enough)"
    )
    return typed(f"{cause}, which makes the Job again; it uncordons {job.node} at its end", see)


def left_cordoned(node: Object, cluster: Cluster) -> FailedJob | None:
    """Return the failed Job that has left a node cordoned; None: none has."""
    found = (job for jobs in cluster.cached(_failed_jobs).values() for job in jobs)
    return next((job for job in found if job.node == node.name and _cordons(job.plan)), None)


def _cordons(plan: Object) -> bool:
    return plan.at("spec", "cordon").boolean is True or plan.at("spec", "drain").is_map


# --- the nodes of a Plan --------------------------------------------------------------------------


def _host(node: Object) -> str:
    return node.labels.get(HOSTNAME, "")


def _is_done(plan: Object, node: Object) -> bool:
    latest = plan.at("status", "latestHash").text
    return bool(latest) and node.labels.get(f"{_HASH_OF}{plan.name}") in (latest, "disabled")


def _selected(plan: Object, cluster: Cluster) -> list[Object]:
    selector = selectors.parse_custom(plan.at("spec", "nodeSelector").value)
    has_any = plan.at("spec", "nodeSelector").is_map  # without one a Plan selects nothing
    return [
        node
        for node in cluster.known(NODE)
        if has_any and _host(node) and selector.matches(node.labels)
    ]


def _left(plan: Object, cluster: Cluster) -> list[Object]:
    return [node for node in _selected(plan, cluster) if not _is_done(plan, node)]


@cached
def active(cluster: Cluster) -> Sequence[Object]:
    """Return the Plans that are under way: their version is known,
    and some node does not have it.
    """
    known = (plan for plan in cluster.known(PLAN) if not plan.is_true("Complete"))
    return tuple(
        plan for plan in known if plan.at("status", "latestHash").text and _left(plan, cluster)
    )


class AtOnce(NamedTuple):
    """How many nodes are updated at the same time."""

    nodes: int
    plan: str
    """``namespace/name`` of the Plan that is under way with the highest concurrency; empty: none
    is."""


def at_once(cluster: Cluster) -> AtOnce:
    """Return how many nodes the Plans that are under way update at the same time."""
    limits = (
        AtOnce(max(1, plan.at("spec", "concurrency").integer or 1), plan.full_name)
        for plan in active(cluster)
    )
    return max(limits, default=AtOnce(1, ""), key=lambda limit: limit.nodes)


def progress(cluster: Cluster) -> Iterator[PoolUpdate]:
    """Yield how far the Plans are, if one is under way.

    A node that none selects is not part of it.
    """
    under_way = {plan.full_name for plan in active(cluster)}  # a live cluster makes new views
    if not under_way:
        return
    found = {node.name: NodeUpdate(PLAN.kind, "", Phase.NOT_PART) for node in cluster.known(NODE)}
    for plan in cluster.known(PLAN):
        for node in _selected(plan, cluster):
            update = _of_node(plan, node, cluster) if plan.full_name in under_way else _done(plan)
            if _RANK.index(update.phase) < _RANK.index(found[node.name].phase):
                found[node.name] = update
    yield PoolUpdate(PLAN.kind, "nodes", found)


_RANK: Final = (
    Phase.UPDATING,
    Phase.RETURNING,
    Phase.DRAINING,
    Phase.FAILING,
    Phase.NEXT,
    Phase.WAITING,
    Phase.DONE,
    Phase.NOT_PART,
)
"""What counts of a node with several Plans."""


def _done(plan: Object) -> NodeUpdate:
    return NodeUpdate(PLAN.kind, plan.name, Phase.DONE)


def _of_node(plan: Object, node: Object, cluster: Cluster) -> NodeUpdate:
    if _is_done(plan, node):
        return _done(plan)
    jobs = cluster.cached(_failed_jobs).get((plan.namespace, plan.name), ())
    if job := next((job for job in jobs if job.node == node.name), None):
        return NodeUpdate(
            PLAN.kind, plan.name, Phase.FAILING, clock.instant(job.since), True, words(job, cluster)
        )
    pods = unfinished(cluster).get((plan.namespace, plan.name), ())
    own = next((pod for pod in pods if pod.labels.get(ON_NODE) in (node.name, _host(node))), None)
    after = _awaited(plan, cluster)
    later = NodeUpdate(PLAN.kind, plan.name, Phase.WAITING, waits_for=after)
    if own is None:
        turn = any(_host(node) == each.text for each in plan.at("status", "applying").items())
        if turn and after:
            return later
        completed = _completed(plan, node, cluster) if turn else None
        if completed is not None:
            return _unrecorded(plan, node, completed)
        return NodeUpdate(PLAN.kind, plan.name, Phase.NEXT if turn else Phase.WAITING)
    step, since = plan_pods.step(own)
    if step == "prepare" and after:
        return later
    if step == "prepare" or not (step or node.at("spec", "unschedulable").boolean):
        return NodeUpdate(PLAN.kind, plan.name, Phase.NEXT)
    phase = Phase.UPDATING if step == "upgrade" else Phase.DRAINING
    return NodeUpdate(PLAN.kind, plan.name, phase, clock.instant(since), exact=bool(since))


def _awaited(plan: Object, cluster: Cluster) -> str:
    """Return the Plan for whose nodes ``prepare`` of a Plan waits; empty: for none."""
    args = [each.text for each in plan.at("spec", "prepare", "args").items()]
    before = (
        each
        for each in cluster.known(PLAN, plan.namespace)
        if args[:2] == ["prepare", each.name] and each.name != plan.name
    )
    return next((title(each) for each in before if _left(each, cluster)), "")


def _completed(plan: Object, node: Object, cluster: Cluster) -> Object | None:
    """Return the Job of the present version that has completed on a node; None: none is known, or
    the kubelet does not have that version yet.
    """
    if _version(plan, node):
        return None
    for job in cluster.known(JOB, plan.namespace):
        own = job.labels.get(OF_PLAN) == plan.name
        here = job.labels.get(ON_NODE) in (node.name, _host(node))
        marked = job.labels.get(f"{_HASH_OF}{plan.name}") == plan.at("status", "latestHash").text
        if own and here and marked and job.is_true("Complete"):
            return job
    return None


def _unrecorded(plan: Object, node: Object, job: Object) -> NodeUpdate:
    """Return that a node is updated, which its controller has not written down (handle_batch.go
    #handleJobs: it labels the node, and uncordons it if the Plan cordons or drains).
    """
    if not (_cordons(plan) and node.at("spec", "unschedulable").boolean):
        return _done(plan)
    since = clock.instant(job.at("status", "completionTime").text)
    return NodeUpdate(PLAN.kind, plan.name, Phase.RETURNING, since, bool(since), _RECORDS)


def unrecorded_remedy(name: str, cluster: Cluster) -> str:
    """Return what to do about a node that stays cordoned although its Job has completed; empty: it
    is in another state. The controller itself may have no other node to run on.

    A Plan that does not cordon leaves a node cordoned by something else, which is not over then.
    """
    for plan in filter(_cordons, active(cluster)):
        node = next((each for each in _left(plan, cluster) if each.name == name), None)
        turn = {each.text for each in plan.at("status", "applying").items()}
        if node is None or _host(node) not in turn or not node.at("spec", "unschedulable").boolean:
            continue
        if _completed(plan, node, cluster) is None:
            continue
        see = shell("kubectl", "get", "pods", "-n", plan.namespace, "-o", "wide")
        why = f"see why the system-upgrade-controller does not go on ({see})"
        back = shell("kubectl", "uncordon", argument(name))
        return typed(f"Uncordon {name}, whose update is done", back, why)
    return ""


_RECORDS: Final = "the system-upgrade-controller, which uncordons it: its Job has completed"
