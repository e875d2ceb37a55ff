"""The pods because of which a budget allows no eviction now, and what makes them ready.

Source: kubernetes/kubernetes:pkg/controller/disruption/disruption.go#countHealthyPods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.budgets import mutual_drains, pod_budgets, pod_counts, waiting_pods
from virt_admit.forecasts.drain.budgets.operator_eviction import OperatorAnswer, Way
from virt_admit.forecasts.drain.budgets.waiting_pods import OnlyNode, Waiting
from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.components import broken_pods, webhook_deadlocks
from virt_admit.forecasts.placement.components.drivers import rook_monitors
from virt_admit.forecasts.placement.refusals import full_nodes
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.commands import about, argument, kubectl, shell, typed
from virt_admit.model.evidence import failed_probes, lost_pins
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import NODE, PDB, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubernetes.workloads import CONTAINERS, container_statuses
from virt_admit.model.lookups import find
from virt_admit.model.messages import advice_of, capital, command_of, names, without_command
from virt_admit.model.node_updates import cordoners, maintenance_updates
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler import pods as scheduled_pods

_PORTWORX: Final = "px/service"
"""Label of nodes with which an administrator stops Portworx there (docs.portworx.com:
reference/node-labels).
"""
_STATES: Final = tuple(
    f"status.{kind}.{field}" for kind in CONTAINERS for field in ("restartCount", "state")
)
READS: Final[Reads] = union(
    pod_starts.READS,
    waiting_pods.READS,
    mutual_drains.READS,
    webhook_deadlocks.READS,
    failed_probes.READS,
    lost_pins.READS,
    rook_monitors.READS,
    full_nodes.READS,
    {
        NODE: (f"metadata.labels.{_PORTWORX}",),
        POD: (*_STATES, *CONDITIONS, "status.conditions.lastTransitionTime"),
    },
)
_OF_MAINTENANCE: Final = {"key": "medik8s.io/drain", "operator": "Exists"}
"""The taint of a node in maintenance beside its cordon
(medik8s/node-maintenance-operator:internal/controller/taint.go).
"""
_SHOWN: Final = 120
USUAL: Final = timedelta(minutes=5)
"""A pod that takes longer than this to become ready may never do so."""
_REPLACED: Final = timedelta(minutes=20)
"""Rook has replaced a monitor by then, and an autoscaler has added a node."""
_REBOOT: Final = timedelta(hours=1)
"""A node that was rebooted is back by then."""
_MOMENT: Final = timedelta(minutes=2)
"""A kubelet may start containers this long before its node is Ready."""


def held_up(pod: Object, budget: Object, choice: str, cluster: Cluster) -> Problem | None:
    """Return which other pods of a budget are not ready; None: none that is known.

    Args:
        pod: the pod that is to be evicted.
        budget: the budget that selects it.
        choice: the words that name another way, after a repair of pods.
        cluster: the cluster.
    """
    found = list(_unhealthy(pod, budget, cluster))
    here = pod.at("spec", "nodeName").text or ""
    waiting = [each for each in found if not each.at("spec", "nodeName").text]
    if (without := _without_node(waiting, here, budget, cluster)) is not None:
        return without
    stopped = next(filter(None, (_stopped(each, cluster) for each in found)), "")
    ill = [
        (each, why)
        for each in (*found, pod)
        if _is_unhealthy(each) and (why := _failure(each, cluster))
    ]
    if ill and not stopped:
        first, why = next((found for found in ill if found[0] is pod), ill[0])
        crash = _of_crash(first, cluster)
        why, command = crash or (why, _describe(first))
        example = f"{first.name}: " if len(ill) > 1 else ""
        whose = names(sorted(each.name for each, _ in ill), _SHOWN)
        because = f"{example}{why.rstrip('.')}"
        reason = f"{whose} cannot start{f': {because}' if '(' in because else f' ({because})'}"
        fault = pod_starts.fault(first, cluster) if crash is None else None
        cause = fault.remedy if fault is not None else ""
        words = "Repair these pods, which do not become healthy by themselves"
        # a part of the cluster fails, not the pod itself
        if command_of(cause) not in ("", command):
            words, command = advice_of(cause).rstrip("."), command_of(cause)
        elif above := pod_counts.hosted_by(budget, cluster):
            words += f": HyperShift takes their configuration from {above}"
        deletion = "" if crash is None else _deletion(pod, [each for each, _ in ill], budget)
        return Problem(
            reason, "; ".join(filter(None, (typed(f"{words}{choice}", command), deletion)))
        )
    if not found:
        return _unmet(found, pod, budget, choice, cluster)
    first = next((each for each in found if each not in waiting), found[0])
    named = _named(found, first, cluster)
    if stopped:
        return Problem(named, stopped)
    dns = webhook_deadlocks.refused_dns(cluster)
    if dns is not None and not broken_pods.why(first, cluster):
        return Problem(f"{named}, while {dns.words}", dns.remedy)
    waits = typed(f"Wait until it is ready, or repair it{choice}", _describe(first))
    return _unmet(found, pod, budget, choice, cluster) or Problem(named, waits)


def _deletion(pod: Object, ill: Sequence[Object], budget: Object) -> str:
    """Return that the pod may be deleted in place of its eviction, where nothing of it works and a
    change of the budget would be taken back; empty: that is not so.

    Its ReplicaSet makes it again.
    """
    none = budget.at("status", "currentHealthy").integer == 0 and len(ill) > 1
    is_owned = budget.metadata["ownerReferences"].present
    if not (none and is_owned and pod.owned_by("ReplicaSet") and any(each is pod for each in ill)):
        return ""
    node = pod.at("spec", "nodeName").text or ""
    way = f"or, once {node} is cordoned, delete pod {pod.name} there: none of its replicas works"
    return typed(way, about("delete", pod, POD))


def _without_node(
    waiting: Sequence[Object], here: str, budget: Object, cluster: Cluster
) -> Problem | None:
    """Return what a pod without a node waits for; None: nothing of the nodes is known.

    ``here``: the node that is drained.
    """
    of_waiting = Waiting(budget.namespace, budget.name, _awaited, budget)
    for each in waiting:
        awaited = of_waiting.of(each, cluster)
        if awaited.pinned is not None:
            return awaited.pinned
        cordoned = next((node for node in awaited.cordoned if node.name != here), None)
        if cordoned is not None:
            closed, words, command = way_in(cordoned, cluster)
            reason = f"pod {each.name} finds no node while {cordoned.name} is {closed}"
            if (mutual := mutual_drains.of_node(cordoned.name, cluster)) is not None:
                return Problem(f"{reason}, and {mutual.reason}", mutual.remedy)
            then = f"{capital(words)}, and drain again once pod {each.name} is ready"
            return Problem(reason, typed(then, command))
        if awaited.only is not None and awaited.only.name == here:
            return waiting_pods.only_here(each, awaited.only, cluster)
        if awaited.full is not None:
            return awaited.full
    return None


def _unmet(
    found: Sequence[Object], pod: Object, budget: Object, choice: str, cluster: Cluster
) -> Problem | None:
    """Return that the readiness probes of pods fail for long; None: that is not known of any.

    What may become ready is not let go: no ``choice`` is given then.
    """
    own = (pod,) if _is_unhealthy(pod) else ()
    failed = [
        probe
        for each in (*own, *found)
        if (probe := failed_probes.of_pod(each, cluster)) is not None
    ]
    if not failed:
        return None
    failed.sort(key=lambda each: each.lasts)
    if not failed[0].lasts:
        choice = ""
    ready = sorted(
        each.name
        for each in pod_budgets.selected(budget, cluster.known(POD, budget.namespace))
        if each.is_true("Ready")
    )
    but = f", but not {names(ready, _SHOWN)}" if choice and ready else ""
    words = f"{capital(failed[0].advice)}{choice}{but}"
    return Problem(failed_probes.words(failed), typed(words, failed[0].command))


class _Awaited(NamedTuple):
    """What a pod without a node waits for, whichever node is drained."""

    pinned: Problem | None
    cordoned: Sequence[Object]
    only: OnlyNode | None
    full: Problem | None


def _awaited(pod: Object, cluster: Cluster) -> _Awaited:
    pinned, cordoned = _pinned(pod, cluster), cordoned_for(pod, cluster)
    only = waiting_pods.only_node(pod, cluster)
    return _Awaited(pinned, cordoned, only, full_nodes.of_pod(pod, cluster))


def _pinned(pod: Object, cluster: Cluster) -> Problem | None:
    """Return that no node can take a pod, whatever is waited for."""
    pin, age = lost_pins.of_pod(pod, cluster), clock.age(pod, cluster)
    if pin is None or age is None or age < _REPLACED:
        return None
    waits = "it does not become ready by itself" if pin.gone else "to wait does not help"
    reason = f"pod {pod.name} {pin.words}: {waits}"
    monitor = rook_monitors.of_pod(pod, cluster) if pin.gone else None
    if monitor is not None:
        return Problem(f"{reason}. {monitor.reason}", capital(monitor.remedy))
    return Problem(reason, capital(lost_pins.remedy(pod, pin, cluster)))


def explained(
    answer: OperatorAnswer, pod: Object, budget: Object, cluster: Cluster, choice: str = ""
) -> OperatorAnswer:
    """Return the refusal of a budget with which other pods of it are not ready, why,
    and what ends that.

    ``choice``: as for ``held_up``.

    Raises:
        Unseen: nodes may be about to come back with these pods, which could not be read.
    """
    if answer.way is not Way.NOW:
        return answer
    if answer.awaits:
        soon = "" if answer.passes else waiting_pods.rebooters(answer.awaits, cluster)
        return answer._replace(reason=f"{answer.reason}: {soon}", passes=True) if soon else answer
    here, unready = pod.at("spec", "nodeName").text or "", list(_unhealthy(pod, budget, cluster))
    mutual = mutual_drains.of_node(here, cluster)
    if mutual is not None and any(each.pod == pod.name for each in mutual.holds):
        return OperatorAnswer(Way.NOW, mutual.reason, mutual.remedy)
    if (back := waiting_pods.returning(budget, unready, here, cluster)) is not None:
        until = f"{names(back.nodes)} {'are' if len(back.nodes) > 1 else 'is'} back"
        whose = f"pod{'s' * (len(back.pods) > 1)} {names(back.pods, _SHOWN)}"
        brings = back.soon or f"{back.by} updates {'them' if len(back.nodes) > 1 else 'it'}"
        reason = f"{answer.reason}. That ends once {until} with {whose}"
        if (mutual := mutual_drains.first(back.nodes, cluster)) is not None:  # they do not return
            return OperatorAnswer(Way.NOW, f"{reason}, but {mutual.reason}", mutual.remedy)
        reason, remedy = f"{reason}: {brings}", f"Wait until {until}."
        return OperatorAnswer(Way.NOW, reason, remedy, back.nodes, passes=bool(back.soon))
    if what := waiting_pods.unread_returns(budget, unready, here, cluster):
        raise Unseen(
            f"whether {PDB.kind} {budget.full_name} ends with the return of nodes ({what})"
        )
    held = held_up(pod, budget, choice, cluster) if answer.of_pods else None
    return (
        OperatorAnswer(Way.NOW, f"{answer.reason}: {held.reason}", held.remedy)
        if held is not None
        else answer
    )


def starting(pod: Object, budget: Object, cluster: Cluster, *, follows: bool = False) -> str:
    """Return which pods only have to become ready, so that a budget lets a pod go; empty:
    that may not be all.

    Each of them began to start a moment ago and has not failed, as after every eviction of a pod
    with replicas.

    ``follows``: whether an operator raises the budget once they are ready.
    """
    found = [each for each in _unhealthy(pod, budget, cluster) if not each.deleted]
    if not found or not (follows or pod_budgets.suffices(budget, len(found))):
        return ""
    if not all(has_just_begun(each, cluster) for each in found):
        return ""
    first = min(found, key=lambda each: each.created)
    begun = began(first, cluster)
    age = clock.duration(begun.age or timedelta())
    return (
        f"{_named(found, first, cluster)}, but {'the first ' * (len(found) > 1)}{begun.words} only "
        f"{age} ago"
    )


class Begun(NamedTuple):
    """Since when a pod can start."""

    words: str
    age: timedelta | None
    waited: bool = True
    """Whether it was made before that."""


def began(pod: Object, cluster: Cluster) -> Begun:
    """Return since when a pod can start: after a drain it waits for its node, whose reboot also
    restarts what has stayed on it.
    """
    created = Begun("was created", clock.age(pod, cluster), waited=False)
    if created.age is None or created.age <= USUAL:
        return created
    later = (
        Begun("got its node", clock.since(_placed_at(pod), cluster)),
        Begun(_BACK, _since_return(pod, cluster)),
    )
    return min(
        (created, *(each for each in later if each.age is not None)),
        key=lambda each: each.age or timedelta(),
    )


def _since_return(pod: Object, cluster: Cluster) -> timedelta | None:
    """Return for how long a pod has had its node back; None: it did not start again with it.

    A kubelet that was only silent for a moment starts nothing again: its containers run on, and a
    pod that was not ready before stays so.
    """
    node = find(cluster, NODE, "", pod.at("spec", "nodeName").text or "")
    ready = node.condition("Ready") if node is not None and node.is_true("Ready") else None
    back = clock.since(ready["lastTransitionTime"].text, cluster) if ready is not None else None
    unready = clock.since(pod.condition("Ready")["lastTransitionTime"].text, cluster)
    if back is None or unready is None or unready > back + _REBOOT:
        return None
    running = (
        clock.since(each.at("state", "running", "startedAt").text, cluster)
        for each in container_statuses(pod)
    )
    is_older = any(each is not None and each > back + _MOMENT for each in running)
    return None if is_older else back


def _placed_at(pod: Object) -> str | None:
    placed = pod.condition("PodScheduled")
    return placed["lastTransitionTime"].text if placed["status"].text == "True" else None


def has_just_begun(pod: Object, cluster: Cluster) -> bool:
    """Return whether a pod starts on a node that works,
    within the usual time and for the first time, or the first time since its node is back.
    """
    node = pod.at("spec", "nodeName").text or ""
    begun = began(pod, cluster)
    again = any(each["restartCount"].integer for each in container_statuses(pod))
    works = bool(node) and not node_health.silence_now(node, cluster) and not _failure(pod, cluster)
    return (
        works
        and clock.exact(cluster) is not None
        and begun.age is not None
        and begun.age <= USUAL
        and (not again or begun.words == _BACK)
    )


_BACK: Final = "got its node back"


def _failure(pod: Object, cluster: Cluster) -> str:
    return pod_starts.words(pod, cluster) if pod.at("spec", "nodeName").text else ""


def _of_crash(pod: Object, cluster: Cluster) -> tuple[str, str] | None:
    """Return how the program of a pod ends again and again, and the command that shows why; None:
    nothing says so.
    """
    broken = broken_pods.of_pod(pod, cluster)
    if broken is None or not broken.why.startswith("CrashLoop"):
        return None
    return broken.why, command_of(broken.remedy) or _describe(pod)


def _describe(pod: Object) -> str:
    return kubectl("describe", POD, pod.name, pod.namespace)


def _unhealthy(pod: Object, budget: Object, cluster: Cluster) -> Iterator[Object]:
    for each in pod_budgets.selected(budget, cluster.known(POD, budget.namespace)):
        if each.name != pod.name and _is_unhealthy(each):
            yield each


def _is_unhealthy(pod: Object) -> bool:
    """Return whether a pod is known not to be ready;
    one without a node has no condition that says so.
    """
    phase, ready = pod.at("status", "phase").text, pod.condition("Ready")["status"].text
    return not pod.ended and (pod.deleted or phase == "Pending" or ready in ("False", "Unknown"))


def way_in(node: Object, cluster: Cluster) -> tuple[str, str, str]:
    """Return what is done to a node, as in ``is WORDS``, and what lets pods onto it again: words
    and a command.

    An uncordon by hand does not last while a maintenance has the node.
    """
    cordon = cordoners.of_node(node, cluster)
    if cordon is None or cordon.uncordon or not command_of(cordon.remedy):
        return "cordoned", *maintenance_updates.way_back(node)
    return cordon.closed, without_command(cordon.remedy), command_of(cordon.remedy)


def cordoned_for(pod: Object, cluster: Cluster) -> Sequence[Object]:
    """Return the cordoned nodes that would take a pod which waits for a node; empty:
    none certainly would, or another one does.
    """
    own, filters = scheduled_pods.read(pod), candidates.scheduler(cluster)
    free = waiting_pods.tolerating(waiting_pods.uncordoned(own), _OF_MAINTENANCE)
    if any(filters.accepts(own, name) for name in filters.state.nodes):
        return ()  # it starts by itself
    known = filters.state.nodes
    cordoned = (node for node in cluster.known(NODE) if node.at("spec", "unschedulable").boolean)
    return [node for node in cordoned if node.name in known and filters.accepts(free, node.name)]


def _named(found: Sequence[Object], first: Object, cluster: Cluster) -> str:
    node, why = first.at("spec", "nodeName").text, broken_pods.why(first, cluster)
    if len(found) > 1:
        because = f" ({first.name}: {why})" if why else ""
        return f"pods {names(sorted(each.name for each in found), _SHOWN)} are not ready{because}"
    if not node:
        return f"pod {first.name} finds no node{f': {why.removeprefix(_NO_NODE)}' if why else ''}"
    return f"pod {first.name} on {node} is not ready{f': {why}' if why else ''}"


_NO_NODE: Final = "it has no node: "


def _stopped(pod: Object, cluster: Cluster) -> str:
    """Return what starts Portworx on the node of one of its pods again; empty:
    nothing says that it was stopped.
    """
    name = pod.at("spec", "nodeName").text or ""
    node = find(cluster, NODE, "", name) if pod.labels.get("name") == "portworx" else None
    if node is None or node.labels.get(_PORTWORX) != "stop":
        return ""
    command = shell("kubectl", "label", "node", argument(name), f"{_PORTWORX}=start", "--overwrite")
    return typed(f"Start Portworx on {name}, which the label {_PORTWORX}=stop has stopped", command)
