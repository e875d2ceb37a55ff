"""Pods that a drain by Cluster API leaves alone or waits for, although ``kubectl drain`` does not.

Sources: kubernetes-sigs/cluster-api:core/reconcilers/machine/machine_controller.go#reconcileDelete;
kubernetes-sigs/cluster-api:core/reconcilers/machine/drain/drain.go#EvictPods.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from virt_admit.forecasts.drain import pod_evictions
from virt_admit.forecasts.drain.budgets import evicted_pods
from virt_admit.forecasts.drain.budgets.drain_obstacles import Blocker
from virt_admit.forecasts.drain.control import kept_volumes
from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.drain.endless import given_time_outs
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.upgrade.rollouts import Driver
from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.lookups import grouped
from virt_admit.model.machine_pools import DEPLOYMENT
from virt_admit.model.messages import capital, names
from virt_admit.model.problems import ProblemCause
from virt_admit.model.remediation import machine_drain
from virt_admit.model.remediation.machine_drain import Spared


def with_kept_pods(plan: Plan, driver: Driver, cluster: Cluster) -> Plan:
    """Return the drains of all nodes with the pods for which Cluster API waits, although
    ``kubectl drain`` does not.
    """
    machines = cluster.cached(drained_by_machine)
    rolled = driver is Driver.CLUSTER_API
    nodes = (_without_spared(node, cluster, rolled=rolled) for node in plan.nodes)
    return replace(
        plan,
        nodes=tuple(
            _with_kept(node, machines.get(node.name), cluster, rolled=rolled) for node in nodes
        ),
    )


def _without_spared(node: NodePlan, cluster: Cluster, *, rolled: bool) -> NodePlan:
    """Return the drain of a node without what only pods meet that Cluster API does not evict,
    such as their budgets.
    """
    if not node.pods.blockers:
        return node
    left_alone = frozenset(pod.full_name for pod, _ in spared(node.name, cluster, rolled=rolled))
    if not left_alone:
        return node
    every, left = (
        {each.id for each in _blockers(node, without, cluster)}
        for without in (frozenset[str](), left_alone)
    )
    blockers = tuple(each for each in node.pods.blockers if each.id not in every - left)
    return replace(node, pods=replace(node.pods, blockers=blockers))


def _blockers(node: NodePlan, without: frozenset[str], cluster: Cluster) -> Sequence[Blocker]:
    has_vms = bool(node.forecasts)
    return pod_evictions.of_node(cluster, node.name, has_vms=has_vms, spared=without).blockers


def spared(node: str, cluster: Cluster, *, rolled: bool) -> Iterator[tuple[Object, Spared]]:
    """Yield the pods of a node that a drain by its Machine does not evict, each with the reason."""
    machine = cluster.cached(_machines).get(node)
    if machine is None or not (machine.deleted or (rolled and DEPLOYMENT in machine.labels)):
        return
    for pod in entry(cluster, evicted_pods.by_node, node) or ():
        found = machine_drain.spared(pod, machine, cluster)
        if found is not None and not evicted_pods.is_left_alone(pod):
            yield pod, found


def _machines(cluster: Cluster) -> Mapping[str, Object]:
    """Return the Machine of Cluster API of each node."""
    return {
        name: each
        for each in cluster.known(CAPI_MACHINE)
        if (name := machine_nodes.node_name(each, cluster))
    }


def drained_by_machine(cluster: Cluster) -> Mapping[str, Object]:
    """Return the Machine of Cluster API of each node whose drain no time-out ends,
    and which has not ended.
    """
    found = (each for each in cluster.known(CAPI_MACHINE) if machine_drain.timeout(each) is None)
    left = (each for each in found if not each.deleted or not machine_drain.is_drained(each))
    return {name: each for each in left if (name := machine_nodes.node_name(each, cluster))}


def _with_kept(
    node: NodePlan, machine: Object | None, cluster: Cluster, *, rolled: bool
) -> NodePlan:
    node = _with_kept_volumes(node, cluster)
    if machine is None:
        return node
    kept = [
        pod
        for pod in waited_for(machine, node.name, cluster, rolled=rolled)
        if has_ended_long_ago(pod, cluster)
    ]
    blockers = (*node.pods.blockers, *(_keeps(pod, machine, cluster) for pod in kept))
    return replace(node, pods=replace(node.pods, blockers=blockers))


def _with_kept_volumes(node: NodePlan, cluster: Cluster) -> NodePlan:
    """Return the drain of a node with the pod that keeps volumes for which the deletion of its
    Machine waits.
    """
    machines = entry(cluster, deletions, node.name) or ()
    kept = next(
        filter(None, (kept_volumes.certain(each, node.name, cluster) for each in machines)), None
    )
    if kept is None:
        return node
    pod, which = kept.pods[0], names(kept.volumes, 120)
    waits = (
        f"the deletion of Machine {kept.machine.full_name} waits without a "
        f"limit{waiting_since(kept.since, cluster, '')}"
    )
    reason = f"no drain ends it, and its volume {which} stays attached, for which {waits}"
    remedy, cause = capital(kept.remedy), ProblemCause.VOLUME_KEPT
    blocker = Blocker(POD.kind, pod.namespace, pod.name, reason, remedy, now=False, cause=cause)
    return replace(node, pods=replace(node.pods, blockers=(*node.pods.blockers, blocker)))


def waited_for(machine: Object, node: str, cluster: Cluster, *, rolled: bool) -> Iterator[Object]:
    """Yield the pods of a node that Cluster API does not evict and waits for: by their label,
    or by a MachineDrainRule.

    ``rolled``: the node is drained by its Machine also where that is not being deleted yet.
    """
    words, _ = machine_drain.reported(machine)
    named = [pod for line in _WAITING.findall(words) for pod in machine_drain.reported_pods(line)]
    for pod in entry(cluster, evicted_pods.by_node, node) or ():
        if evicted_pods.is_left_alone(pod) or pod.deleted:
            continue
        drained = machine.deleted or (rolled and DEPLOYMENT in machine.labels)
        found = machine_drain.spared(pod, machine, cluster) if drained else None
        if pod.full_name in named or (found is not None and found.waits):
            yield pod


_WAITING: Final = re.compile(r"Pods? ([^:*]*): waiting for completion")


def has_ended_long_ago(pod: Object, cluster: Cluster) -> bool:
    since = pod.condition("Ready")["lastTransitionTime"].text
    return pod.ended and clock.has_lasted(since, LONG, cluster)


LONG: Final = timedelta(hours=1)
"""A Job with ``ttlSecondsAfterFinished`` has deleted its pod by then, in general;
a drain has ended.
"""


def _keeps(pod: Object, machine: Object, cluster: Cluster) -> Blocker:
    """Return that a pod has ended and is there.

    No release up to 1.14 goes on then (kubernetes-sigs/cluster-api#12920).
    """
    since = clock.since(pod.condition("Ready")["lastTransitionTime"].text, cluster) or timedelta()
    found = machine_drain.spared(pod, machine, cluster)
    which = found.why if found is not None and found.waits else "a MachineDrainRule"
    reason = (
        f"it has ended {clock.duration(since)} ago ({pod.at('status', 'phase').text}), but Cluster "
        f"API, which does not evict it ({which}), waits until it is deleted, and no "
        f"nodeDrainTimeout of Machine {machine.full_name} ends that"
    )
    owner = pod.owned_by("Job")
    delete = typed(
        "Delete this pod, once its result and its log are not needed",
        about("delete", pod, POD),
        f"or delete its Job {owner} then" if owner else "",
    )
    limited = given_time_outs.set_in(machine, cluster)
    limit = (
        f"set nodeDrainTimeout of {limited}, after which its node is deleted with what is left on "
        "it"
    )
    remedy = f"{delete}; or, as a decision, {limit}"
    return Blocker(
        POD.kind, pod.namespace, pod.name, reason, remedy, now=True, cause=ProblemCause.POD_KEPT
    )


def deletions(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the Machines that are being deleted, by the name of their node."""
    every = (*cluster.known(CAPI_MACHINE), *cluster.known(MACHINE))
    deleted = (each for each in every if each.deleted)
    return grouped(deleted, lambda machine: machine_nodes.emptied_node(machine, cluster))


def waiting_since(
    began: datetime | None, cluster: Cluster, words: str = " has waited for that"
) -> str:
    age = vm_states_times.age(began, cluster)
    return f"{words} for {age}" if age else ""
