"""Collect everything about one node from the forecasts and the rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from virt_admit.forecasts.drain import drain_plan, selection
from virt_admit.forecasts.drain.drain_plan import NodePlan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.outage.outages import Outage
from virt_admit.forecasts.placement.refusals import dying_claims
from virt_admit.forecasts.upgrade import pool_obstacles
from virt_admit.forecasts.upgrade.rehearsal import Rehearsal
from virt_admit.model.commands import argument, shell
from virt_admit.model.evidence import node_differences
from virt_admit.model.evidence.reported import Read, WholeCluster, no_events
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, more_may_exist
from virt_admit.model.kubernetes.kinds import NODE, VMI, Kind
from virt_admit.model.lookups import find
from virt_admit.model.node_updates import cordoners, updaters
from virt_admit.model.node_updates.node_phases import IN_FLIGHT
from virt_admit.model.node_updates.operators.cordons import Cordon
from virt_admit.model.remediation import machine_drain
from virt_admit.reports.drain import report as drain_report
from virt_admit.reports.drain import surroundings
from virt_admit.reports.drain.report import DrainedNode
from virt_admit.reports.explain import judged_rules, loss, rehearsed, rights
from virt_admit.reports.explain.judged_rules import JudgedRule, Opinion
from virt_admit.reports.explain.node.report import ExplainedNode, NodeReport, UpgradeOfNode
from virt_admit.reports.outage import report as outage_report

JUDGED: Final[tuple[Kind, ...]] = (NODE,)
"""The kinds whose objects the rules judge for the report."""


class NodeForecasts(NamedTuple):
    """The report about a node, and the forecasts that it prints."""

    plan: NodePlan
    outage: Outage
    report: NodeReport


def report(
    name: str,
    cluster: WholeCluster,
    opinion: Opinion,
    unreadable: Collection[str] = (),
    read: Read = no_events,
) -> NodeForecasts:
    """Return the report about a node with what it rests on.

    Raises:
        LookupError: the node does not exist.
    """
    plan = drain_plan.node_plan(selection.existing(name, cluster), cluster)
    plan = surroundings.of_node(plan, cluster, read)
    outage = loss.of_node(name, cluster)
    unread_vms = [blind.what for blind in more_may_exist(cluster, VMI)]
    upgrade, unread_upgrade = rehearsed.rehearsal(cluster), rehearsed.unread(cluster)
    rules, unread_rules = _rules(name, cluster, opinion)
    unread = (*unread_vms, *plan.unseen, *outage.unseen, *unread_upgrade, *unread_rules)
    unseen = tuple(dict.fromkeys(unread))
    drained = drain_report.node_report(plan)
    left = machine_drain.is_left_to_machine(name, cluster)
    silent = bool(node_health.silence_now(plan.name, cluster))
    update = updaters.of_nodes(cluster).get(name)
    ordered = (
        any(True for _ in pool_obstacles.of_orders(cluster))
        or _cordon(name, cluster) is not None
        or (update is not None and update.phase in IN_FLIGHT)
    )
    harms = plan.is_guarded or bool(dying_claims.lost_with(plan.name, cluster))
    drains = not (left or silent or plan.is_empty or harms or ordered)
    found = NodeReport(
        node=ExplainedNode(name, plan.state, None if unread_vms else _vms(plan)),
        drain=drained,
        upgrade=_upgrade(name, upgrade),
        outage=outage_report.of_loss(outage),
        control=plan.control,
        differences=node_differences.of(name, cluster),
        rules=rules,
        problems=tuple(dict.fromkeys((*_problems(drained), *judged_rules.problems(rules)))),
        commands=tuple(
            dict.fromkeys(
                (
                    *_commands(plan, drain=drains),
                    *(() if upgrade.possible else ("virt-admit upgrade",)),
                    *map(rights.command, rights.forbidden(unseen, unreadable)),
                )
            )
        ),
        unseen=unseen,
    )
    return NodeForecasts(plan, outage, found)


def _cordon(name: str, cluster: Cluster) -> Cordon | None:
    """Return what cordoned a node and empties it as far as that is needed:
    a drain by hand disturbs that.
    """
    node = find(cluster, NODE, "", name)
    return cordoners.of_node(node, cluster) if node is not None else None


def _problems(drained: DrainedNode) -> Iterator[str]:
    yield from (problem for vm in drained.vms for problem in vm.problems)
    yield from (blocker.problem for blocker in drained.blockers)


def _vms(plan: NodePlan) -> tuple[str, ...]:
    return tuple(sorted(row.vmi.full_name for row in plan.forecasts))


def _upgrade(name: str, upgrade: Rehearsal) -> UpgradeOfNode:
    wave = next((wave for wave in upgrade.waves if name in wave.nodes), None)
    stops = tuple(stop.reason for stop in upgrade.stops if stop.node == name)
    # of its pool, which the reason that begins the report does not name then
    stops += rehearsed.of_pools(upgrade, name) if stops else ()
    under_way = upgrade.progress.in_flight if upgrade.progress is not None else ()
    begun = any(each.node == name for each in under_way)
    begin, end = (None if begun else wave.start, wave.end) if wave is not None else (None, None)
    before = upgrade.before_nodes or None
    because = rehearsed.because(upgrade, name)
    closed = next((each.reason for each in upgrade.closed if each.node == name), None)
    place = begin, end, stops, before, closed
    return UpgradeOfNode(upgrade.possible, because, *place, upgrade.stopped)


def _rules(
    name: str, cluster: Cluster, opinion: Opinion
) -> tuple[tuple[JudgedRule, ...] | None, tuple[str, ...]]:
    """Return what the rules find about the node, and what could not be read."""
    try:
        node = cluster.get(NODE, "", name)
    except Unseen as blind:
        return None, (blind.what,)
    if opinion.policy is None:
        return None, ("the policy of the cluster",)
    objects = [node] if node is not None else []
    return judged_rules.judge(objects, opinion.rules, cluster, opinion.policy), ()


def _commands(plan: NodePlan, *, drain: bool) -> Iterator[str]:
    """Yield commands that can be typed, those first that show what keeps the node from becoming
    empty.
    """
    for outcome in (VmOutcome.BLOCKS, VmOutcome.UNKNOWN):
        for row in plan.having(outcome)[:_MOST_VMS]:
            namespace = row.vmi.namespace or "default"
            yield shell("virt-admit", "explain", f"vm/{row.vmi.name}", "-n", namespace)
    for blocker in plan.pods.blockers[:_MOST_VMS]:
        where = ("-n", blocker.namespace) if blocker.namespace else ()
        yield shell("kubectl", "describe", blocker.kind.lower(), argument(blocker.name), *where)
    flags = dict.fromkeys(need.flag for need in plan.pods.needs)
    if plan.drainable is True and drain:
        yield shell("kubectl", "drain", argument(plan.name), "--ignore-daemonsets", *flags)
    yield shell("kubectl", "describe", "node", argument(plan.name))


_MOST_VMS: Final = 5
"""VMs and blockers with a command of their own."""
