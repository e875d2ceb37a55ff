"""Why a pool of nodes is not updated, besides what its own updater says.

Harvester waits until every attached volume is healthy
(harvester/harvester:package/upgrade/upgrade_node.sh #wait_longhorn_engines, skipped on one and on
two nodes), or until its administrator resumes it. No control-plane node is rebooted while the
others would be too few for etcd.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from virt_admit.forecasts.drain import pod_evictions
from virt_admit.forecasts.drain.budgets import mutual_drains, unhealthy_pods
from virt_admit.forecasts.drain.budgets.drain_obstacles import Blocker
from virt_admit.forecasts.remediation import awaited_checks, awaited_return
from virt_admit.forecasts.upgrade.operators import (
    operand_pods,
    standing_images,
    standing_logs,
    standing_nodes,
)
from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, argument, merge_patch, shell, typed
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, more_may_exist
from virt_admit.model.kubernetes.kinds import (
    CAPI_CLUSTER,
    CAPI_MACHINE,
    CAPI_MACHINE_SET,
    DAEMON_SET,
    MACHINE_DEPLOYMENT,
    NODE,
    POD,
    Kind,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.messages import advice_of, capital, command_of, names
from virt_admit.model.node_updates import (
    cluster_updates,
    config_pool_updates,
    cordoners,
    kured,
    rancher_updates,
    talos_upgrades,
    upgrade_plans,
)
from virt_admit.model.node_updates.cluster_updates import ClusterUpdate
from virt_admit.model.node_updates.node_phases import PoolUpdate, by_node
from virt_admit.model.node_updates.operators import paused_clusters
from virt_admit.model.node_updates.operators.paused_clusters import PausedCluster
from virt_admit.model.node_updates.rancher import (
    machineless_nodes,
    managed_charts,
    nodeless_machines,
)
from virt_admit.model.node_updates.update_orders import StandingOrder
from virt_admit.model.problems import ProblemCause, ProblemId, problem_of
from virt_admit.model.remediation import control_plane, fence_taints
from virt_admit.model.remediation.control_plane import RebootRisk


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a pool is not updated at all, or one of its nodes, with which its updater does not go
    on.
    """

    reason: str
    remedy: str
    problem: ProblemId | None = None
    drained: tuple[str, ...] = ()
    """Nodes that another operator drains first."""
    node: str = ""
    """The node at which it stands; empty: it concerns the whole pool."""
    awaits: str = ""
    """The maintenance by an administrator that it goes on after; empty: another cause."""


def unpause(pool: Object, kind: Kind, away: Sequence[str] = ()) -> str:
    """Return what ends the pause of a pool, with a command.

    ``away``: the nodes that take all its places.
    """
    verb = "is" if len(away) == 1 else "are"
    then = f"after which its roll-out begins once {names(away)} {verb} back" if away else ""
    command = merge_patch(kind, pool.name, pool.namespace, {"spec": {"paused": False}})
    return typed(f"{_LEAVE}; then set spec.paused to false, {then or _AT_ONCE}", command)


_LEAVE: Final = (
    "Leave it paused as long as that is on purpose, as until the tests of a canary update are over"
)
_AT_ONCE: Final = "which starts its roll-out at once"


def paused(deployment: Object, cluster: Cluster) -> Iterator[Obstacle]:
    """Yield that a MachineDeployment is paused, its whole Cluster or one of its MachineSets, which
    then makes and deletes no Machine: first what is never taken as fixed."""
    for owner in _pauses(deployment, cluster):
        if paused_clusters.is_long(owner):
            yield Obstacle(owner.reason, capital(owner.remedy))
    if deployment.at("spec", "paused").boolean:
        yield Obstacle(
            f"MachineDeployment {deployment.name} is paused",
            unpause(deployment, MACHINE_DEPLOYMENT),
            problem_of(ProblemCause.POOL_PAUSED, deployment),
        )


def pause_doubts(deployment: Object, cluster: Cluster) -> Iterator[str]:
    """Yield what pauses a MachineDeployment for no longer than a move needs, which may end soon."""
    for owner in _pauses(deployment, cluster):
        if not paused_clusters.is_long(owner):
            yield f"whether the pause ends: {owner.reason}. {capital(owner.remedy)}"


def _pauses(deployment: Object, cluster: Cluster) -> Iterator[PausedCluster]:
    sets = paused_clusters.owned(deployment, CAPI_MACHINE_SET, cluster)
    held = paused_clusters.of_member(deployment, cluster)
    for owner in (held, *(paused_clusters.of(each, cluster) for each in sets)):
        if owner is not None and not _is_history(owner.obj, cluster):
            yield owner


def _is_history(owner: Object, cluster: Cluster) -> bool:
    """Return whether a MachineSet is only kept for a way back: it wants and has no Machine."""
    return (
        owner.kind == CAPI_MACHINE_SET.kind
        and owner.at("spec", "replicas").integer == 0
        and not any(paused_clusters.owned(owner, CAPI_MACHINE, cluster))
    )


READS: Final[Reads] = union(
    awaited_checks.READS,
    awaited_return.READS,
    control_plane.READS,
    cordoners.READS,
    fence_taints.READS,
    kured.READS,
    node_health.READS,
    pod_evictions.READS,
    upgrade_plans.READS,
    talos_upgrades.READS,
    rancher_updates.READS,
    machineless_nodes.READS,
    nodeless_machines.READS,
    managed_charts.READS,
    standing_images.READS,
    standing_logs.READS,
    standing_nodes.READS,
    {CAPI_CLUSTER: (), CAPI_MACHINE: (), CAPI_MACHINE_SET: ()},
)


def silent(nodes: Iterable[Object], cluster: Cluster) -> Iterator[Obstacle]:
    """Yield the nodes that nothing can update, as their kubelets do not report.

    One with VMs, or with pods that a drain evicts, stops an upgrade by its drain already. One that
    was fenced a moment ago is waited for, and may be where that cannot be read.
    """
    for node in nodes:
        problem = problem_of(ProblemCause.NODE_SILENT, node)
        why = node_health.silent_for(node.name, cluster)
        fenced = awaited_return.fenced(node.name, cluster)
        if fenced or awaited_return.unread_boot(node.name, cluster):
            continue
        if why and all(each.id != problem for each in blockers(node.name, cluster)):
            repair = typed(
                "repair or fence the node, or delete its Node", about("describe", node, NODE)
            )
            otherwise = awaited_checks.advice(node.name, cluster) or repair
            remedy = capital(awaited_return.advice(node.name, cluster, otherwise))
            reason = f"it {why}, so nothing can update it"
            yield Obstacle(reason, remedy, problem, node=node.name)


def silence_doubts(waiting: Iterable[str], begun: Iterable[str], cluster: Cluster) -> Iterator[str]:
    """Yield whether anything brings nodes back that do not report, where that cannot be read.

    Args:
        waiting: those whose update has not begun, as far as known.
        begun: those that are being updated.
        cluster: the cluster.
    """
    found = {name: awaited_return.unread_boot(name, cluster) for name in waiting}
    for name in begun:
        if node_health.silence_now(name, cluster) and not awaited_return.awaited(name, cluster):
            found[name] = awaited_return.unread(name, cluster)
    for name, what in found.items():
        if what:
            yield f"whether anything brings {name} back, which does not report: {what}"


def unread_silences(cluster: Cluster) -> Iterator[str]:
    """Yield the same of all nodes but those that Cluster API replaces."""
    known = cluster.known(NODE)
    own = [each.name for each in known if machine_nodes.CAPI_OWNER not in each.annotations]
    yield from silence_doubts(own, (), cluster)


def blockers(name: str, cluster: Cluster) -> Sequence[Blocker]:
    """Return what keeps a node from becoming empty besides its VMs."""
    return pod_evictions.of_node(cluster, name, has_vms=name in vmis.occupied(cluster)).blockers


def without_quorum(
    nodes: Iterable[str], coming_back: Collection[str], cluster: Cluster
) -> Iterator[Obstacle]:
    """Yield why these nodes are not updated:
    the reboot of a control-plane node among them would stop the API.

    Args:
        nodes: those whose update has not begun.
        coming_back: those that are being updated.
        cluster: the cluster.
    """
    for risk in _reboot_risks(nodes, coming_back, cluster):
        if risk.certain:
            yield Obstacle(risk.reason, risk.remedy, risk.problem)


def quorum_doubts(
    nodes: Iterable[str], coming_back: Collection[str], cluster: Cluster
) -> Iterator[str]:
    """Yield that the reboot of one of these nodes may stop the API."""
    doubts = [risk for risk in _reboot_risks(nodes, coming_back, cluster) if not risk.certain]
    yield from (f"{risk.reason}. {risk.remedy}" for risk in doubts[:1])


def _reboot_risks(
    nodes: Iterable[str], coming_back: Collection[str], cluster: Cluster
) -> Iterator[RebootRisk]:
    yield from filter(
        None, (control_plane.reboot_risk(name, cluster, coming_back) for name in nodes)
    )


def of_release(update: ClusterUpdate, cluster: Cluster) -> Obstacle | None:
    """Return why no pool gets the release that an administrator has asked for; None:
    nothing certainly holds it.
    """
    stop = update.stop
    if stop is None:
        return None
    for pod, node in _without_node(update, cluster):
        closed, words, command = unhealthy_pods.way_in(node, cluster)
        reason = (
            f"{stop.reason}. Its pod {pod.full_name} finds no node while {node.name} is {closed}"
        )
        return Obstacle(
            reason,
            typed(f"{capital(words)}, after which the update goes on by itself", command),
            stop.id,
        )
    broken = operand_pods.broken(update, cluster)
    if broken is None:
        return Obstacle(stop.reason, stop.remedy, stop.id)
    then = f"{advice_of(broken.remedy).rstrip('.')}, after which the update goes on by itself"
    return Obstacle(
        f"{stop.reason}: {broken.full_words}", typed(then, command_of(broken.remedy)), stop.id
    )


def release_doubt(cluster: Cluster) -> str:
    """Return why it is not known whether an update reaches the nodes, with the pod of an operator
    for which it most likely waits; empty: nothing speaks against it.
    """
    update = cluster_updates.release(cluster)
    broken = operand_pods.broken(update, cluster) if update.doubt and update.operators else None
    if broken is None:
        return update.doubt
    return f"{update.doubt}: {broken.full_words}. {capital(broken.remedy)}"


def _without_node(update: ClusterUpdate, cluster: Cluster) -> Iterator[tuple[Object, Object]]:
    """Yield the pods of the operators that an update waits for which start once a node is
    uncordoned, with that node.
    """
    spaces = {space for each in update.operators for space in cluster_updates.spaces(each)}
    for space in sorted(spaces):
        for pod in sorted(cluster.known(POD, space), key=lambda pod: pod.name):
            waits = (
                pod.at("status", "phase").text == "Pending" and not pod.at("spec", "nodeName").text
            )
            for node in unhealthy_pods.cordoned_for(pod, cluster)[:1] if waits else ():
                yield pod, node


def of_orders(cluster: Cluster) -> Iterator[Obstacle]:
    """Yield why nodes are not updated although an administrator has ordered it: the order goes on
    only after a change.
    """
    for each in standing_orders(cluster):
        if each.certain:
            problem = problem_of(ProblemCause.ORDER_STANDS, each.order)
            yield Obstacle(each.reason, each.remedy, problem, node=each.node)


def order_doubts(cluster: Cluster) -> Iterator[str]:
    """Yield which orders to update nodes have not moved for long."""
    yield from (
        f"whether {each.reason}. {each.remedy}"
        for each in standing_orders(cluster)
        if not each.certain
    )


def doubted_nodes(begun: Sequence[PoolUpdate], cluster: Cluster) -> Iterator[str]:
    """Yield the nodes under way of which ``order_doubts`` tells why they may stand."""
    doubts = {
        (each.order.kind, each.order.name, each.node)
        for each in standing_orders(cluster)
        if not each.certain
    }
    for name, update in by_node(begun):
        if not doubts.isdisjoint((update.kind, update.name, node) for node in ("", name)):
            yield name


@cached
def standing_orders(cluster: Cluster) -> Sequence[StandingOrder]:
    """Return the orders to update nodes that do not go on, or may not, each of them once.

    Where it is known why one stands, other doubts about it are not another cause.
    """
    every = (
        *managed_charts.standing(cluster),
        *managed_charts.refusals(cluster),
        *machineless_nodes.standing(cluster),
        *machineless_nodes.refusals(cluster),
        *nodeless_machines.standing(cluster),
        *nodeless_machines.refusals(cluster),
        *standing_images.standing(cluster),
        *standing_logs.standing(cluster),
        *standing_nodes.standing(cluster),
        *upgrade_plans.standing(cluster),
        *talos_upgrades.standing(cluster),
        *rancher_updates.standing(cluster),
    )
    sure = {(each.order.kind, each.order.full_name) for each in every if each.certain}
    found: dict[tuple[str, str, str], StandingOrder] = {}
    for each in every:
        key = each.order.kind, each.order.full_name
        if each.certain or key not in sure:
            found.setdefault((*key, each.remedy), each)
    return tuple(found.values())


def of_lock(cluster: Cluster) -> Iterator[Obstacle]:
    """Yield why kured, which is to reboot nodes, begins with none."""
    hold = kured.hold(cluster)
    if hold is not None and hold.waiting:
        daemon = problem_of(ProblemCause.BLOCKED, hold.lock.daemon)
        yield Obstacle(hold.reason(cluster), capital(hold.remedy), daemon)


def lock_doubts(cluster: Cluster) -> Iterator[str]:
    """Yield that kured, which reboots no node any more, may have to reboot some:
    it does not mark them.
    """
    hold = kured.hold(cluster)
    if hold is not None and not hold.knows_waiting:
        yield (
            f"which nodes wait for a reboot by kured: {hold.reason(cluster)}. "
            f"{capital(hold.remedy)}"
        )


def unread_lock(cluster: Cluster) -> Iterator[Unseen]:
    """Yield that the lock of kured could not be read, where it is to reboot nodes."""
    if any(map(kured.waits, cluster.known(NODE))):
        yield from more_may_exist(cluster, DAEMON_SET)


def end_of_absence(pool: Object, nodes: Sequence[Object], cluster: Cluster) -> str:
    """Return what makes nodes that are cordoned or not Ready candidates of a MachineConfigPool
    again.

    Such a node takes a place of maxUnavailable and gets no other configuration, whatever the limit
    is. Source:
    openshift/machine-config-operator:pkg/controller/node/node_controller.go#getAllCandidateMachines.
    """
    for node in nodes:
        if known := _known_way_back(node, cluster):
            words, kubectl, rest = known.partition(": kubectl ")
            others = [each.name for each in nodes if each is not node]
            then = f"; then see to {names(others)}" if others else ""
            return f"{capital(words)}{kubectl}{rest}{then}"
    cordoned = [node.name for node in nodes if node.at("spec", "unschedulable").boolean]
    broken = [
        node
        for node in nodes
        if node.name not in cordoned or node_health.silence(node, cluster)  # both count alone
    ]
    if not broken:
        uncordon = shell("kubectl", "uncordon", *map(argument, cordoned))
        other = "or raise maxUnavailable so that others go on"
        return typed(f"Uncordon {names(cordoned)}", uncordon, other)
    target = config_pool_updates.target(pool, nodes)
    old = [
        node.name
        for node in broken
        if node.annotations.get(config_pool_updates.DESIRED, target) != target
    ]
    repair = f"Repair {names(node.name for node in broken)}" + (
        f", and uncordon {names(cordoned)}" * bool(cordoned)
    )
    if not old or not target:
        return typed(repair, shell("kubectl", "describe", "node", argument(broken[0].name)))
    setting = f"{config_pool_updates.DESIRED}={argument(target)}"
    command = shell("kubectl", "annotate", "node", *map(argument, old), setting, "--overwrite")
    why = f"if its configuration keeps {names(old)} from being Ready, give it that of the pool"
    return typed(f"{repair}; {why}", command)


def _known_way_back(node: Object, cluster: Cluster) -> str:
    """Return what ends the absence of a node where something shows its cause; empty:
    nothing does.
    """
    if node_health.silence(node, cluster):
        return awaited_return.advice(node.name, cluster, otherwise="")
    if (mutual := mutual_drains.of_node(node.name, cluster)) is not None:
        return mutual.remedy
    cordon, left = cordoners.of_node(node, cluster), fence_taints.left(node, cluster)
    if left is None and cordon is not None and not cordon.uncordon and not cordon.remedy:
        keep = f"do not uncordon {node.name} by hand: it is {cordon.closed}"
        held = blockers(node.name, cluster)
        if held:  # its drain does not end, so waiting for it does not help
            return f"{keep}, whose drain waits for {held[0].subject}. {held[0].remedy}"
        if late := cordoners.stuck_removal(node, cluster):
            return late
        first = "repair that" if cordon.ends is False else "wait"
        return f"{first}, and {keep}"
    if left is None:
        return cordon.remedy if cordon is not None else ""
    words, command = fence_taints.way_out(node.name, left, cluster)
    # a remediator takes its own cordon back
    by_hand = cordon is None and node.at("spec", "unschedulable").boolean
    return typed(f"{words}, and uncordon {node.name}" if by_hand else words, command)
