"""How far the Plans of the system-upgrade-controller are: which nodes are done, which has its turn,
which Job has failed.

A Plan labels each node that is done with its hash, and lists those that have their turn. It makes a
Job that has failed again only when the Plan itself changes, and uncordons a node only after a Job
that has completed. Sources:
rancher/system-upgrade-controller:pkg/upgrade/plan/plan.go#SelectConcurrentNodes,
:pkg/upgrade/handle_batch.go#handleJobs, :pkg/upgrade/handle_upgrade.go#handlePlans
(UniqueApplyForResourceVersion), :doc/plan.md (jobActiveDeadlineSecs);
rancher/wrangler:pkg/condition/condition.go#setValue (lastUpdateTime is that of the last other
status or message).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, merge_patch, shell, typed
from virt_admit.model.kubernetes import clock, events, selectors
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import NODE, PLAN, POD
from virt_admit.model.kubernetes.nodes import HOSTNAME
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import WHOLE_CONDITIONS, Reads, union
from virt_admit.model.kubernetes.workloads import container_statuses
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase, PoolUpdate
from virt_admit.model.node_updates.update_orders import StandingOrder, title

OF_PLAN: Final = "upgrade.cattle.io/plan"
ON_NODE: Final = "upgrade.cattle.io/node"
"""Labels of the pods of a Plan: its name, and that of the node."""

READS: Final[Reads] = union(
    clock.READS,
    {
        PLAN: (),
        NODE: ("metadata.labels", "spec.unschedulable", "status.nodeInfo.kubeletVersion"),
        POD: (
            "metadata.labels",
            "metadata.creationTimestamp",
            "metadata.ownerReferences",
            "status.phase",
            *WHOLE_CONDITIONS,
            "status.initContainerStatuses",
            "status.containerStatuses",
        ),
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
    return bool(latest) and node.labels.get(f"plan.upgrade.cattle.io/{plan.name}") in (
        latest,
        "disabled",
    )


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
    if own is None:
        turn = any(_host(node) == each.text for each in plan.at("status", "applying").items())
        return NodeUpdate(PLAN.kind, plan.name, Phase.NEXT if turn else Phase.WAITING)
    step, since = _step(own)
    if step == "prepare" or not (step or node.at("spec", "unschedulable").boolean):
        return NodeUpdate(PLAN.kind, plan.name, Phase.NEXT)
    phase = Phase.UPDATING if step == "upgrade" else Phase.DRAINING
    return NodeUpdate(PLAN.kind, plan.name, phase, clock.instant(since), exact=bool(since))


# --- what a pod of a Plan does --------------------------------------------------------------------

_DOES: Final = {
    "prepare": "preparing",
    "cordon": "cordoning the node",
    "drain": "draining the node",
}


def _step(pod: Object) -> tuple[str, str | None]:
    """Return the name of the container of a pod that runs, and since when; empty: none does."""
    for part, name in (("initContainerStatuses", None), ("containerStatuses", "upgrade")):
        for status in pod.at("status", part).items():
            running = status.at("state", "running")
            if running.present:
                return name or status["name"].text or "", running["startedAt"].text
    return "", None


def does(pod: Object, cluster: Cluster) -> str:
    """Return what a pod of a Plan does now, as in ``has been draining the node for 3 min``."""
    step, since = _step(pod)
    doing = "updating the node" if step == "upgrade" else _DOES.get(step)
    if doing is None:
        return f"is {pod.at('status', 'phase').text or 'Pending'}"
    lasts = clock.lasting(since, cluster)
    return f"has been {doing}{lasts}" if lasts else f"is {doing}"


# --- a pod of a Plan that does not go on ----------------------------------------------------------

_STARTS: Final = frozenset(("ContainerCreating", "PodInitializing"))
"""Reasons of containers that wait as usual
(kubernetes/kubernetes:pkg/kubelet/kubelet_pods.go#convertToAPIContainerStatuses).
"""
_LASTING: Final = timedelta(minutes=10)
"""A pull that fails once is tried again within five minutes, the kubelet's longest back-off."""
_SLOW: Final = timedelta(hours=1)
"""A large image may be pulled for many minutes, which has no other reason."""


def stuck(pod: Object, cluster: Cluster) -> str:
    """Return in what a pod of a Plan is stuck and for how long, as in
    ``has been in ImagePullBackOff for 27 h``; empty: it goes on, or that cannot be determined.
    """
    reason, said, since = _held(pod)
    lasts = clock.since(since, cluster)
    if not reason or lasts is None or lasts < (_SLOW if reason in _STARTS else _LASTING):
        return ""
    why = f" ({cut_middle(' '.join(said.split()).rstrip('.'), _MOST)})" if said else ""
    state = reason if reason == "Unschedulable" else f"in {reason}"
    return f"has been {state} for {clock.duration(lasts)}{why}"


def _held(pod: Object) -> tuple[str, str, str | None]:
    """Return why no container of a pod runs, with the message and since when; empty: one runs,
    or nothing is said.
    """
    placed, since = pod.condition("PodScheduled"), pod.created
    if placed["status"].text == "False":
        return (
            placed["reason"].text or "",
            placed["message"].text or "",
            placed["lastTransitionTime"].text or since,
        )
    if _step(pod)[0]:
        return "", "", None
    for status in container_statuses(pod):
        waiting = status.at("state", "waiting")
        if reason := waiting["reason"].text:
            return reason, waiting["message"].text or "", since
        since = status.at("state", "terminated", "finishedAt").text or since
    return "", "", None


def has_cordoned(pod: Object) -> bool:
    """Return whether a pod of a Plan has begun to cordon its node, which one of two containers does
    (rancher/system-upgrade-controller:pkg/upgrade/job/job.go#New).
    """
    return any(
        status.at("state", each).present
        for status in pod.at("status", "initContainerStatuses").items()
        if status["name"].text in ("cordon", "drain")
        for each in ("running", "terminated")
    )
