"""What the drain of a node in a roll-out waits for, without an end that any object tells.

Sources: kubernetes-sigs/cluster-api:core/reconcilers/machine/machine_controller.go#reconcileDelete;
kubernetes-sigs/cluster-api:core/reconcilers/machine/drain/drain.go#EvictPods; harvester/harvester:
package/upgrade/upgrade_node.sh#command_pre_drain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from virt_admit.forecasts.drain import node_notes
from virt_admit.forecasts.drain.budgets import evicted_pods
from virt_admit.forecasts.drain.budgets.drain_obstacles import ForeignWait
from virt_admit.forecasts.drain.changes import readiness
from virt_admit.forecasts.drain.changes.readiness import Readiness
from virt_admit.forecasts.drain.control import kept_volumes
from virt_admit.forecasts.drain.control.kept_volumes import KeptVolumes
from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.drain.endless import unasked_vms
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.placement import volume_attachments
from virt_admit.forecasts.upgrade import pool_obstacles
from virt_admit.forecasts.upgrade.drains import kept_pods
from virt_admit.forecasts.upgrade.rollouts import Driver, Pool
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, cached, entry
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE_DEPLOYMENT, NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.node_updates.node_phases import Phase, PoolUpdate, by_node
from virt_admit.model.problems import ProblemCause
from virt_admit.model.remediation import machine_drain


def without_awaited(plan: Plan, pools: Sequence[Pool]) -> Plan:
    """Return the drains in which a guard that ends when nodes are back is a wait, if the roll-out
    brings those nodes back.

    If something keeps such a node from coming back, that is the stop, not the guard of the others.
    """
    return replace(plan, nodes=tuple(without_awaited_of(plan.nodes, pools)))


def without_awaited_of(nodes: Iterable[NodePlan], pools: Sequence[Pool] | None) -> list[NodePlan]:
    """Return the same of some nodes. ``pools``: None if they are not known, so that the roll-out
    may bring any node back.
    """
    free = (pool for pool in pools or () if pool.obstacle is None)
    updated = None if pools is None else frozenset(node for pool in free for node in pool.to_do)
    return [_without_awaited(node, updated) for node in nodes]


def _without_awaited(node: NodePlan, updated: Collection[str] | None) -> NodePlan:
    pods = node.pods
    passing = [
        each
        for each in pods.blockers
        if each.awaits and (updated is None or all(name in updated for name in each.awaits))
    ]
    if not passing:
        return node
    left = tuple(each for each in pods.blockers if each not in passing)
    return replace(node, pods=replace(pods, blockers=left, passing=(*pods.passing, *passing)))


def only_returns(plan: Plan) -> tuple[str, ...]:
    """Return the nodes whose return is all that nodes of a plan wait for, which cannot be drained
    now; empty: more keeps one of them, or none is kept.
    """
    kept = [node for node in plan.nodes if node.drainable is False]
    blockers = [each for node in kept for each in node.pods.blockers]
    if not all(each.awaits for each in blockers):
        return ()
    if any(node.blockers > len(node.pods.blockers) or node.moving.fits is False for node in kept):
        return ()
    return tuple(sorted({name for each in blockers for name in each.awaits}))


def awaited(plan: Plan, pools: Sequence[Pool]) -> Iterator[str]:
    """Yield which drains wait until other nodes are back."""
    found: dict[tuple[str, ...], list[str]] = {}
    later = {name for pool in pools for name in pool.to_do}
    for node in (each for each in plan.nodes if each.name in later):
        for each in node.pods.passing:
            found.setdefault(each.awaits, []).append(f"{node.name} ({each.subject})")
    for away, held in sorted(found.items()):
        yield (
            f"{names(away)} is back, and what guards it has ended, before the drain of "
            f"{names(held)}"
        )


def refusals(plan: Plan, begun: Sequence[PoolUpdate]) -> Iterator[str]:
    """Yield what refuses evictions of nodes that are being drained, and passes without them."""
    drained = {name for name, update in by_node(begun) if update.phase is Phase.DRAINING}
    for node in (each for each in plan.nodes if each.name in drained):
        told = {each.subject for each in node.pods.passing}
        for each in foreign(node):
            if each.subject not in told:
                yield f"{each.subject} lets {node.name} go soon: {each.reason}"


def foreign(node: NodePlan) -> Iterator[ForeignWait]:
    """Yield what the drain of a node waits for without a part in it."""
    return (each for each in node.pods.waits if isinstance(each, ForeignWait))


def first(plan: Plan, cluster: Cluster) -> Mapping[str, tuple[str, ...]]:
    """Return what the drains of nodes wait for that cannot begin now, by node."""
    later = [node for node in plan.nodes if node.readiness is Readiness.LATER]
    return {node.name: tuple(_first(node, cluster)) for node in later}


def _first(node: NodePlan, cluster: Cluster) -> Iterator[str]:
    yield from (f"{each.subject}: {each.reason}" for each in foreign(node))
    if back := readiness.awaited_reboots(node.name, cluster):
        yield f"the reboot of {names(back)}, as etcd needs {node.name} meanwhile"


def ending(plan: Plan) -> Iterator[str]:
    """Yield which pods end as fast as others, although their grace period is long:
    the kubelet waits for them.
    """
    for node in plan.nodes:
        late = (
            each
            for each in node.pods.blockers
            if each.repeatable and each.cause == ProblemCause.POD_NOT_ENDING
        )
        for each in (*node.pods.waits, *late):
            if each.kind == POD.kind:
                yield f"{each.subject} on {node.name} ends within minutes: {each.reason}"


def unknown(
    driver: Driver, plan: Plan, pools: Sequence[Pool], begun: Sequence[PoolUpdate], cluster: Cluster
) -> Mapping[str, tuple[str, ...]]:
    """Return what is not known of the drains that are under way, by node: in a roll-out or because
    a Machine is deleted alone.
    """
    drained = {
        name: update.kind == MACHINE_DEPLOYMENT.kind
        for name, update in by_node(begun)
        if update.phase is Phase.DRAINING
    }
    # a Machine that is deleted takes its node out of any order
    if driver in (Driver.CLUSTER_API, Driver.PLAIN):
        drained |= dict.fromkeys((name for pool in pools for name in pool.to_do), True)
    plans = {node.name: node for node in plan.nodes}
    rolled = driver is Driver.CLUSTER_API
    found = {
        name: tuple(of_node(name, plans.get(name), cluster, by_machine=by_machine, rolled=rolled))
        for name, by_machine in drained.items()
    }
    return {name: waits for name, waits in found.items() if waits}


def of_node(
    name: str, plan: NodePlan | None, cluster: Cluster, *, by_machine: bool, rolled: bool = False
) -> Iterator[str]:
    """Yield what the drain of a node waits for.

    Args:
        name: the node.
        plan: what a drain of it does.
        cluster: the cluster.
        by_machine: whether it is drained because its Machine is being deleted.
        rolled: whether a roll-out of Machines deletes it later.
    """
    if by_machine:
        for machine in entry(cluster, kept_pods.deletions, name) or ():
            yield from _of_machine(machine, name, cluster)
            yield from _unexplained(machine, plan, cluster)
        yield from _not_completed(name, cluster, rolled=rolled)
        yield from _left_behind(name, cluster, rolled=rolled)
    node = find(cluster, NODE, "", name)
    # an order that certainly stands at the node is a stop, with its cause
    orders = pool_obstacles.standing_orders(cluster)
    if node is not None and not any(each.certain and each.node == name for each in orders):
        yield from unasked_vms.note(node, cluster)


def _not_completed(name: str, cluster: Cluster, *, rolled: bool) -> Iterator[str]:
    """Yield for which pods Cluster API waits that have not completed, or have just done so."""
    machine = cluster.cached(kept_pods.drained_by_machine).get(name)
    found = (
        kept_pods.waited_for(machine, name, cluster, rolled=rolled) if machine is not None else ()
    )
    waiting = [pod.full_name for pod in found if not kept_pods.has_ended_long_ago(pod, cluster)]
    if waiting and machine is not None:
        why = f"Cluster API waits for that, as Machine {machine.full_name} has no nodeDrainTimeout"
        yield f"when pod {names(waiting, 120)} of {name} completes and is deleted: {why}"


def _left_behind(name: str, cluster: Cluster, *, rolled: bool) -> Iterator[str]:
    """Yield which VMs Cluster API does not evict:
    nothing moves them before it deletes their node.
    """
    for pod, found in kept_pods.spared(name, cluster, rolled=rolled):
        if not found.waits and evicted_pods.is_of_vm(pod):
            yield (
                f"whether anything moves pod {pod.full_name} before Cluster API, which does not "
                f"evict it ({found.why}), deletes {name} with it"
            )


def _unexplained(machine: Object, plan: NodePlan | None, cluster: Cluster) -> Iterator[str]:
    """Yield that a drain has waited for long by the words of its controller,
    for something that no forecast shows.
    """
    words, began = machine_drain.reported(machine)
    if (
        not words
        or machine_drain.ends(machine) is not None
        or not vm_states_times.is_older(began, kept_pods.LONG, cluster)
    ):
        return
    named = machine_drain.reported_pods(words)
    kept = (
        {pod.full_name for pod in kept_pods.waited_for(machine, plan.name, cluster, rolled=False)}
        if plan is not None
        else set()
    )
    if named and kept.issuperset(named):
        return
    pods = (find(cluster, POD, *name.split("/", 1)) for name in named)
    others = any(pod is not None and not evicted_pods.is_of_vm(pod) for pod in pods)
    if plan is None or not (plan.pods.lasting or (plan.forecasts and not others)):
        since = vm_states_times.age(began, cluster)
        yield (
            f"when the drain for Machine {machine.full_name} ends, which has waited for {since}: "
            f"{machine_drain.brief(words, 300)}"
        )


def _of_machine(machine: Object, node: str, cluster: Cluster) -> Iterator[str]:
    """Yield what the deletion of a Machine waits for: the owner of a hook,
    and volumes without a time limit.
    """
    hooks, last = machine_drain.holding_hooks(machine), machine_drain.terminating_hooks(machine)
    ending = clock.instant(machine_drain.terminate_wait(machine))
    if hooks:
        yield (
            f"when the owner removes the pre-drain hook {names(hooks, 120)} of Machine "
            f"{machine.full_name}"
        )
    elif last and (
        ending is None or vm_states_times.is_older(ending, kept_volumes.PATIENCE, cluster)
    ):
        which = f"the pre-terminate hook {names(last, 120)} of Machine {machine.full_name}"
        waits = kept_pods.waiting_since(ending, cluster)
        yield f"when the owner removes {which}{f', which{waits}' if waits else ''}"
    elif (kept := kept_volumes.of_machine(machine, node, cluster)) is not None:
        yield from _volumes(kept, node, cluster)


def _volumes(kept: KeptVolumes, node: str, cluster: Cluster) -> Iterator[str]:
    """Yield that the end of a wait for volumes is not known, unless it certainly has none."""
    is_old = vm_states_times.is_older(kept.since, kept_volumes.PATIENCE, cluster)
    if not is_old or kept_volumes.certain(kept.machine, node, cluster) is not None:
        return
    which = f"volumes {names(kept.volumes, 120)}" if kept.volumes else "the volumes"
    errors = [
        volume_attachments.detach_error(each) for each in volume_attachments.stuck(node, cluster)
    ]
    why = f" ({cut_middle(errors[0], 200)})" if errors else ""
    users = [pod.full_name for pod in kept.pods]
    end = f"keep pod {names(users, 120)}, which uses them, off this node, or " if users else ""
    yield (
        f"when {which} of {node} are detached{why}: Machine "
        f"{kept.machine.full_name}{kept_pods.waiting_since(kept.since, cluster)}; {end}set its "
        "nodeVolumeDetachTimeout"
    )


@cached
def deadlines(cluster: Cluster) -> Mapping[str, tuple[datetime, int]]:
    """Return when Cluster API ends the drain of nodes, which it then deletes with the VMs that are
    left, and for how many seconds it waits before while volumes are attached.

    Without a limit of a wait that it certainly does not skip, it deletes none.
    """
    found = {}
    for machine in cluster.known(CAPI_MACHINE):
        end = machine_drain.ends(machine) if machine.deleted else None
        over = machine_drain.is_drained(machine) or machine_drain.volume_wait(machine) is not None
        if end is None or over:
            continue
        node = machine_nodes.node_name(machine, cluster)
        detach = machine_drain.detach_timeout(machine)
        if detach is None and not kept_volumes.may_wait(node, cluster):
            detach = 0
        if detach is not None:
            found[node] = end, detach
    return found


def until_ended(nodes: Iterable[NodePlan], cluster: Cluster) -> list[NodePlan]:
    """Return the nodes without those whose drain ends in any case."""
    return [node for node in nodes if node.name not in deadlines(cluster)]


def time_outs(nodes: Iterable[str], cluster: Cluster) -> Iterator[str]:
    """Yield when Cluster API ends the drains of nodes, as ``drain`` says it."""
    for name in nodes:
        if name in deadlines(cluster):
            yield cluster.cached(node_notes.time_outs)[name].rstrip(".")


def rests_on(driver: Driver, pools: Sequence[Pool], cluster: Cluster) -> Iterator[str]:
    """Yield which owners have to remove pre-drain hooks while Cluster API deletes the Machines that
    are left.
    """
    to_do = {node for pool in pools for node in pool.to_do}
    for node, deletions in sorted(node_notes.held_deletions(cluster).items()):
        if driver is not Driver.CLUSTER_API and node in to_do:
            which = names(held.machine.full_name for held in deletions)
            yield (
                f"{node} is updated as any other node while the deletion of its Machine {which} "
                "waits for a hook"
            )
    hooks: dict[str, list[str]] = {}
    for machine in cluster.known(CAPI_MACHINE) if driver is Driver.CLUSTER_API else ():
        if not machine.deleted and machine_nodes.node_name(machine, cluster) in to_do:
            for hook in machine_drain.pre_drain_hooks(machine):
                hooks.setdefault(hook, []).append(machine.full_name)
    for hook, held in sorted(hooks.items()):
        them = "it is" if len(held) == 1 else "they are"
        yield (
            f"the owner of the pre-drain hook {hook} removes it from {names(sorted(held))} once "
            f"{them} deleted"
        )
