"""What the drain of a node in a roll-out waits for, without an end that any object tells.

Sources: kubernetes-sigs/cluster-api:core/reconcilers/machine/machine_controller.go#reconcileDelete;
kubernetes-sigs/cluster-api:core/reconcilers/machine/drain/drain.go#EvictPods; harvester/harvester:
package/upgrade/upgrade_node.sh#command_pre_drain.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from virt_admit.forecasts.drain import node_notes, pod_evictions
from virt_admit.forecasts.drain.budgets import evicted_pods
from virt_admit.forecasts.drain.budgets.drain_obstacles import Blocker
from virt_admit.forecasts.drain.control import kept_volumes
from virt_admit.forecasts.drain.control.kept_volumes import KeptVolumes
from virt_admit.forecasts.drain.drain_plan import NodePlan, Plan
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.placement import volume_attachments
from virt_admit.forecasts.upgrade import harvester_waits
from virt_admit.forecasts.upgrade.rollouts import Driver, Pool
from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE, MACHINE_DEPLOYMENT, NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.lookups import find
from virt_admit.model.machine_pools import DEPLOYMENT
from virt_admit.model.messages import capital, cut, names
from virt_admit.model.node_updates.node_phases import Phase, PoolUpdate
from virt_admit.model.problems import ProblemCause
from virt_admit.model.remediation import machine_drain
from virt_admit.model.remediation.machine_drain import Spared
from virt_admit.model.scheduler.packing import Packing
from virt_admit.model.scheduler.pods import FINISHED

_TOPOLOGY: Final = "machineconfiguration.openshift.io/controlPlaneTopology"


def _is_not_drained(node: Object) -> bool:
    """Return whether the machine config operator reboots a node without a drain:
    its control plane is one node.

    Source: openshift/machine-config-operator:pkg/daemon/drain.go#drainRequired.
    """
    return node.annotations.get(_TOPOLOGY) == "SingleReplica"


def without_drains(plan: Plan, driver: Driver, cluster: Cluster) -> Plan:
    """Return the drains of all nodes as an updater skips them, which shuts the guests down."""
    skipped = set(_not_drained(driver, cluster))
    up = {node.name for node in plan.nodes if "not Ready" not in node.state}
    nodes = (
        _rebooted(node, driver, cluster) if node.name in skipped & up else node
        for node in plan.nodes
    )
    return replace(plan, nodes=tuple(nodes))


def _not_drained(driver: Driver, cluster: Cluster) -> list[str]:
    if driver is Driver.PLAIN:
        return list(filter(None, (harvester_waits.only_node(cluster),)))
    found = (each.name for each in cluster.known(NODE) if _is_not_drained(each))
    return sorted(found) if driver is Driver.MACHINE_CONFIG else []


def _rebooted(node: NodePlan, driver: Driver, cluster: Cluster) -> NodePlan:
    shut = _stopped if driver is Driver.PLAIN else _shut_down
    forecasts = tuple(shut(row, node.name, cluster) for row in node.forecasts)
    pods, room = replace(node.pods, blockers=(), waits=(), unseen=()), Packing(True, {})
    return replace(
        node, forecasts=forecasts, pods=pods, packing=room, moving=room, doubts=(), visitors=()
    )


def _stopped(row: Forecast, node: str, _: Cluster) -> Forecast:
    """Return what Harvester does to a VM of its only node: it is stopped as by ``virtctl stop``."""
    reason = f"Harvester stops it before it updates {node}, its only node"
    remedy = (
        "start it afterwards, or set restoreVM in Setting upgrade-config before, if it has that"
    )
    end = VmOutcome.STOPS
    return replace(row, outcome=end, reason=reason, remedy=remedy, unseen="", problems=())


def _shut_down(row: Forecast, node: str, cluster: Cluster) -> Forecast:
    """Return what the reboot of its node does to a VM:
    a guest that is shut down starts again by its run strategy.
    """
    try:
        after = vmis.comes_back(row.vmi, cluster)
    except Unseen:
        return row
    outcome = VmOutcome.AWAITS_NODE if after.comes else VmOutcome.STOPS
    reason = f"the reboot shuts it down, as OpenShift does not drain {node}; {after.why}"
    return replace(row, outcome=outcome, reason=reason, remedy=after.remedy, unseen="", problems=())


def not_drained(driver: Driver, pools: Sequence[Pool], cluster: Cluster) -> Iterator[str]:
    """Yield which nodes are updated without a drain."""
    to_do = {node for pool in pools for node in pool.to_do}
    found = [name for name in _not_drained(driver, cluster) if name in to_do]
    if found and driver is Driver.PLAIN:
        yield f"Harvester stops all VMs and does not drain {found[0]}, its only node"
    elif found:
        yield (
            f"OpenShift reboots {names(found)} without a drain, as controlPlaneTopology is "
            "SingleReplica"
        )


def with_kept_pods(plan: Plan, driver: Driver, cluster: Cluster) -> Plan:
    """Return the drains of all nodes with the pods for which Cluster API waits, although
    ``kubectl drain`` does not.
    """
    machines = cluster.cached(_drained_by_machine)
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
    names_spared = frozenset(pod.full_name for pod, _ in _spared(node.name, cluster, rolled=rolled))
    if not names_spared:
        return node
    every, left = (
        {
            each.id
            for each in pod_evictions.of_node(
                cluster, node.name, has_vms=bool(node.forecasts), spared=spared
            ).blockers
        }
        for spared in (frozenset[str](), names_spared)
    )
    blockers = tuple(each for each in node.pods.blockers if each.id not in every - left)
    return replace(node, pods=replace(node.pods, blockers=blockers))


def _spared(node: str, cluster: Cluster, *, rolled: bool) -> Iterator[tuple[Object, Spared]]:
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


def without_awaited(plan: Plan, pools: Sequence[Pool]) -> Plan:
    """Return the drains in which a guard that ends when nodes are back is a wait, if the roll-out
    brings those nodes back.

    If something keeps such a node from coming back, that is the stop, not the guard of the others.
    """
    updated = frozenset(node for pool in pools if pool.obstacle is None for node in pool.to_do)
    return replace(plan, nodes=tuple(_without_awaited(node, updated) for node in plan.nodes))


def _without_awaited(node: NodePlan, updated: Collection[str]) -> NodePlan:
    pods = node.pods
    passing = [
        each
        for each in pods.blockers
        if each.awaits and all(name in updated for name in each.awaits)
    ]
    if not passing:
        return node
    left = tuple(each for each in pods.blockers if each not in passing)
    return replace(node, pods=replace(pods, blockers=left, passing=(*pods.passing, *passing)))


def awaited(plan: Plan) -> Iterator[str]:
    """Yield which drains wait until other nodes are back."""
    found: dict[tuple[str, ...], list[str]] = {}
    for node in plan.nodes:
        for each in node.pods.passing:
            found.setdefault(each.awaits, []).append(f"{node.name} ({each.subject})")
    for away, held in sorted(found.items()):
        yield (
            f"{names(away)} is back, and what guards it has ended, before the drain of "
            f"{names(held)}"
        )


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


def _drained_by_machine(cluster: Cluster) -> Mapping[str, Object]:
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
        for pod in _kept(machine, node.name, cluster, rolled=rolled)
        if _has_ended_long_ago(pod, cluster)
    ]
    blockers = (*node.pods.blockers, *(_keeps(pod, machine, cluster) for pod in kept))
    return replace(node, pods=replace(node.pods, blockers=blockers))


def _with_kept_volumes(node: NodePlan, cluster: Cluster) -> NodePlan:
    """Return the drain of a node with the pod that keeps volumes for which the deletion of its
    Machine waits.
    """
    machines = entry(cluster, _deleted, node.name) or ()
    kept = next(
        filter(None, (kept_volumes.certain(each, node.name, cluster) for each in machines)), None
    )
    if kept is None:
        return node
    pod, which = kept.pods[0], names(kept.volumes, 120)
    waits = (
        f"the deletion of Machine {kept.machine.full_name} waits without a "
        f"limit{_since(kept.since, cluster, '')}"
    )
    reason = f"no drain ends it, and its volume {which} stays attached, for which {waits}"
    remedy, cause = capital(kept.remedy), ProblemCause.VOLUME_KEPT
    blocker = Blocker(POD.kind, pod.namespace, pod.name, reason, remedy, now=False, cause=cause)
    return replace(node, pods=replace(node.pods, blockers=(*node.pods.blockers, blocker)))


def _kept(machine: Object, node: str, cluster: Cluster, *, rolled: bool) -> Iterator[Object]:
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


def _has_ended_long_ago(pod: Object, cluster: Cluster) -> bool:
    age = clock.since(pod.condition("Ready")["lastTransitionTime"].text, cluster)
    return pod.at("status", "phase").text in FINISHED and age is not None and age >= _LONG


_LONG: Final = timedelta(hours=1)
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
    owner = pod.controller
    job = (
        f", or its Job {owner['name'].text}"
        if owner is not None and owner["kind"].text == "Job"
        else ""
    )
    delete = typed(
        f"Delete this pod{job}, once its result and its log are not needed",
        about("delete", pod, POD),
    )
    limited = machine_drain.limited_by(machine)
    limit = (
        f"set nodeDrainTimeout of {limited}, after which its node is deleted with what is left on "
        "it"
    )
    remedy = f"{delete}; or, as a decision, {limit}"
    return Blocker(
        POD.kind, pod.namespace, pod.name, reason, remedy, now=True, cause=ProblemCause.POD_KEPT
    )


def unknown(
    driver: Driver, plan: Plan, pools: Sequence[Pool], begun: Sequence[PoolUpdate], cluster: Cluster
) -> Iterator[str]:
    """Yield what is not known of the drains that are under way,
    in a roll-out or because a Machine is deleted alone.
    """
    flying = ((name, update) for pool in begun for name, update in pool.nodes.items())
    drained = {
        name: update.kind == MACHINE_DEPLOYMENT.kind
        for name, update in flying
        if update.phase is Phase.DRAINING
    }
    # a Machine that is deleted takes its node out of any order
    if driver in (Driver.CLUSTER_API, Driver.PLAIN):
        drained |= dict.fromkeys((name for pool in pools for name in pool.to_do), True)
    plans = {node.name: node for node in plan.nodes}
    for name, by_machine in drained.items():
        rolled = driver is Driver.CLUSTER_API
        yield from of_node(name, plans.get(name), cluster, by_machine=by_machine, rolled=rolled)


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
        for machine in entry(cluster, _deleted, name) or ():
            yield from _of_machine(machine, name, cluster)
            yield from _unexplained(machine, plan, cluster)
        yield from _not_completed(name, cluster, rolled=rolled)
        yield from _left_behind(name, cluster, rolled=rolled)
    node = find(cluster, NODE, "", name)
    if node is not None:
        yield from node_notes.not_asked(node, cluster)


def _not_completed(name: str, cluster: Cluster, *, rolled: bool) -> Iterator[str]:
    """Yield for which pods Cluster API waits that have not completed, or have just done so."""
    machine = cluster.cached(_drained_by_machine).get(name)
    found = _kept(machine, name, cluster, rolled=rolled) if machine is not None else ()
    waiting = [pod.full_name for pod in found if not _has_ended_long_ago(pod, cluster)]
    if waiting and machine is not None:
        why = f"Cluster API waits for that, as Machine {machine.full_name} has no nodeDrainTimeout"
        yield f"when pod {names(waiting, 120)} of {name} completes and is deleted: {why}"


def _left_behind(name: str, cluster: Cluster, *, rolled: bool) -> Iterator[str]:
    """Yield which VMs Cluster API does not evict:
    nothing moves them before it deletes their node.
    """
    for pod, found in _spared(name, cluster, rolled=rolled):
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
        or not vm_states_times.is_older(began, _LONG, cluster)
    ):
        return
    named = machine_drain.reported_pods(words)
    kept = (
        {pod.full_name for pod in _kept(machine, plan.name, cluster, rolled=False)}
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
            f"{cut(words, 300)}"
        )


def _deleted(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the Machines that are being deleted, by the name of their node."""
    found: dict[str, list[Object]] = {}
    for machine in (
        each for kind in (CAPI_MACHINE, MACHINE) for each in cluster.known(kind) if each.deleted
    ):
        found.setdefault(machine_nodes.emptied_node(machine, cluster), []).append(machine)
    return found


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
        waits = _since(ending, cluster)
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
    why = f" ({cut(errors[0], 200)})" if errors else ""
    users = [pod.full_name for pod in kept.pods]
    end = f"keep pod {names(users, 120)}, which uses them, off this node, or " if users else ""
    yield (
        f"when {which} of {node} are detached{why}: Machine "
        f"{kept.machine.full_name}{_since(kept.since, cluster)}; {end}set its "
        "nodeVolumeDetachTimeout"
    )


def _since(began: datetime | None, cluster: Cluster, words: str = " has waited for that") -> str:
    age = vm_states_times.age(began, cluster)
    return f"{words} for {age}" if age else ""


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
