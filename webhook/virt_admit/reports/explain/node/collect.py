"""Collect everything about one node from the forecasts and the rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from virt_admit.forecasts.drain import drain_plan, selection, vm_events
from virt_admit.forecasts.drain.drain_plan import NodePlan
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.remediation import node_loss
from virt_admit.forecasts.remediation.node_loss import NodeLoss, WatchingCheck
from virt_admit.forecasts.upgrade.rehearsal import Rehearsal
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, more_may_exist
from virt_admit.model.kubernetes.kinds import NODE, VMI, Kind
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.reports.drain import report as drain_report
from virt_admit.reports.explain import judged_rules, rehearsed, rights
from virt_admit.reports.explain.judged_rules import JudgedRule, Opinion
from virt_admit.reports.explain.node.report import (
    CheckOfNode,
    ExplainedNode,
    LossOfNode,
    NodeReport,
    RestartTime,
    UpgradeOfNode,
    RestartAfterLoss,
)
from virt_admit.reports.explain.vm.commands import quoted

JUDGED: Final[tuple[Kind, ...]] = (NODE,)
"""The kinds whose objects the rules judge for the report."""


def report(
    name: str, cluster: Cluster, opinion: Opinion, unreadable: Collection[str] = ()
) -> tuple[NodePlan, NodeReport]:
    """Return the drain of a node, and the report about it.

    Raises:
        LookupError: the node does not exist.
    """
    plan = drain_plan.node_plan(selection.existing(name, cluster), cluster)
    loss = node_loss.of_node(name, cluster)
    unread_vms = [blind.what for blind in more_may_exist(cluster, VMI)]
    upgrade, unread_upgrade = rehearsed.rehearsal(cluster), rehearsed.unread(cluster)
    rules, unread_rules = _rules(name, cluster, opinion)
    unseen = tuple(dict.fromkeys((*unread_vms, *plan.unseen, *loss.unseen, *unread_upgrade, *unread_rules)))
    found = NodeReport(
        node=ExplainedNode(name, plan.state, None if unread_vms else _vms(plan)),
        drain=drain_report.node_report(plan),
        upgrade=_upgrade(name, upgrade),
        loss=LossOfNode(loss.covered, tuple(map(_check, loss.checks)), tuple(_after(loss, cluster))),
        outage=None,
        control=plan.control,
        rules=rules,
        problems=(),
        commands=tuple(_commands(plan, rights.forbidden(unseen, unreadable))),
        unseen=unseen,
    )
    return plan, found


def _vms(plan: NodePlan) -> tuple[str, ...]:
    return tuple(sorted(row.vmi.full_name for row in plan.forecasts))


def _upgrade(name: str, upgrade: Rehearsal) -> UpgradeOfNode:
    wave = next((wave for wave in upgrade.waves if name in wave.nodes), None)
    stops = tuple(stop.reason for stop in upgrade.stops if stop.node == name)
    return UpgradeOfNode(
        upgrade.possible, wave.start if wave is not None else None, wave.end if wave is not None else None, stops
    )


def _check(check: WatchingCheck) -> CheckOfNode:
    restart = None
    if check.restart is not None:
        most = check.restart.most
        restart = RestartTime(check.restart.least // SECOND, None if most is None else most // SECOND)
    return CheckOfNode(check.kind, check.namespace, check.name, restart, check.idle)


def _after(loss: NodeLoss, cluster: Cluster) -> Iterator[RestartAfterLoss]:
    for fate in sorted(loss.fates, key=lambda each: each.vmi.full_name):
        found = vm_events.after_loss(fate.vmi, loss, cluster)
        yield RestartAfterLoss(fate.vmi.namespace, fate.vmi.name, str(found.outcome), found.reason, found.remedy)


def _rules(name: str, cluster: Cluster, opinion: Opinion) -> tuple[tuple[JudgedRule, ...] | None, tuple[str, ...]]:
    """Return what the rules find about the node, and what could not be read."""
    try:
        node = cluster.get(NODE, "", name)
    except Unseen as blind:
        return None, (blind.what,)
    if opinion.policy is None:
        return None, ("the policy of the cluster",)
    return judged_rules.judge([node] if node is not None else [], opinion.rules, cluster, opinion.policy), ()


def _commands(plan: NodePlan, forbidden: Sequence[str]) -> Iterator[str]:
    """Yield commands that can be typed, those first that show what keeps the node from becoming empty."""
    for outcome in (VmOutcome.BLOCKS, VmOutcome.UNKNOWN):
        for row in plan.having(outcome)[:_MOST_VMS]:
            yield quoted("virt-admit", "explain", f"vm/{row.vmi.name}", "-n", row.vmi.namespace or "default")
    for blocker in plan.pods.blockers[:_MOST_VMS]:
        where = ("-n", blocker.namespace) if blocker.namespace else ()
        yield quoted("kubectl", "describe", blocker.kind.lower(), blocker.name, *where)
    flags = dict.fromkeys(need.flag for need in plan.pods.needs)
    if plan.drainable is True:
        yield quoted("kubectl", "drain", plan.name, "--ignore-daemonsets", *flags)
    yield quoted("kubectl", "describe", "node", plan.name)
    yield from map(rights.command, forbidden)


_MOST_VMS: Final = 5
"""VMs and blockers with a command of their own."""
