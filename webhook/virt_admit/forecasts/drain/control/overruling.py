"""What overrules the forecast of every VM of a node: a node that does not report,
and KubeVirt's control path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from virt_admit.forecasts.drain import typed_remedies, vmi_evictions
from virt_admit.forecasts.drain.budgets.drain_obstacles import Blocker
from virt_admit.forecasts.drain.control import control_path
from virt_admit.forecasts.drain.control.control_path import ControlPath
from virt_admit.forecasts.drain.control.hindrances import Hindrance
from virt_admit.forecasts.drain.states import lost_launchers
from virt_admit.forecasts.drain.states.vm_states_kinds import State
from virt_admit.forecasts.drain.vm_outcomes import Forecast, VmOutcome
from virt_admit.forecasts.placement import virt_handlers
from virt_admit.forecasts.remediation import awaited_return
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances.lifecycle import Eviction
from virt_admit.model.problems import Problem, ProblemCause

READS: Final[Reads] = union(control_path.READS, node_health.READS, lost_launchers.READS)


class Overruled(NamedTuple):
    """The forecasts of a node, and what its VMs have in common."""

    forecasts: Sequence[Forecast]
    blockers: tuple[Blocker, ...] = ()
    """One for each part of the control path that keeps VMs."""
    unseen: tuple[str, ...] = ()


def overrule(
    forecasts: Sequence[Forecast], node: Object | None, path: ControlPath, cluster: Cluster
) -> Overruled:
    """Return the forecasts as the state of the node and the control path make them."""
    if node is not None and (silent := _silent(node, cluster)):
        if by := awaited_return.awaited(node.name, cluster):
            return Overruled([_awaited(found, silent, by, cluster) for found in forecasts])
        if unread := awaited_return.unread(node.name, cluster):
            return Overruled([_unseen(found, silent, unread, cluster) for found in forecasts])
        return Overruled([_silenced(found, silent, cluster) for found in forecasts])
    result = list(forecasts)
    blockers: list[Blocker] = []
    unseen = list(_unready(node)) if node is not None and forecasts else []
    for hindrance in path.hindrances:
        if hindrance.starts:
            result = [_later(found, hindrance) for found in result]
            continue
        kept = [
            index for index, found in enumerate(forecasts) if _concerns(hindrance, found, cluster)
        ]
        held = kept if hindrance.stops else []
        if held:
            blockers.append(control_path.blocker(hindrance))
        elif kept:
            unseen.append(
                f"{hindrance.reason}. {hindrance.remedy}" if hindrance.kind else hindrance.reason
            )
        for index in held:
            if result[index].outcome is not VmOutcome.BLOCKS:
                result[index] = _blocked(result[index], hindrance.problem, cluster)
            else:
                result[index] = replace(
                    result[index], problems=(*result[index].problems, hindrance.problem)
                )
    return Overruled(result, tuple(blockers), tuple(unseen))


def _later(found: Forecast, hindrance: Hindrance) -> Forecast:
    """Return the forecast of a VM that nothing starts elsewhere while the hindrance lasts."""
    named = hindrance.vms is None or found.vmi.full_name in hindrance.vms
    if found.outcome is not VmOutcome.RESTARTS or not (hindrance.stops and named):
        return found
    return replace(
        found, reason=f"{found.reason}, but only later: {hindrance.reason}", remedy=hindrance.remedy
    )


def _blocked(found: Forecast, by: Problem, cluster: Cluster) -> Forecast:
    by = by if "kubectl " in by.remedy else typed_remedies.with_command(by, found.vmi, cluster)
    return replace(
        found,
        outcome=VmOutcome.BLOCKS,
        reason=by.reason,
        remedy=by.remedy,
        unseen="",
        problems=(by,),
    )


def _awaited(found: Forecast, silent: Problem, by: str, cluster: Cluster) -> Forecast:
    """Return that a VM stays until its node is back, or freed, which something is about to do:
    that may fail.
    """
    kept = _blocked(
        found, silent._replace(reason=f"its node does not report, and waits for {by}"), cluster
    )
    return replace(kept, outcome=VmOutcome.UNKNOWN, problems=())


def _unseen(found: Forecast, silent: Problem, unread: str, cluster: Cluster) -> Forecast:
    """Return that a VM stays until its node is back, which cannot be determined."""
    reason = f"{silent.reason}, and whether anything brings its node back: cannot see {unread}"
    kept = _blocked(found, silent._replace(reason=reason), cluster)
    return replace(kept, outcome=VmOutcome.UNKNOWN, problems=(), unseen=unread)


def _silent(node: Object, cluster: Cluster) -> Problem | None:
    """Return why no VM can leave a node; None: its kubelet works, or that cannot be determined."""
    if node_health.silence_now(node.name, cluster):
        reason = "its node does not report: it cannot migrate"
        remedy = awaited_return.advice(node.name, cluster)
    elif node_health.cannot_end_pods(node):
        reason = f"the kubelet of its node cannot end pods ({node_health.unready(node)})"
        remedy = awaited_return.return_of(node.name, cluster) or node_health.RESTART_RUNTIME
    else:
        return None
    return Problem(reason, remedy, ProblemCause.NODE_SILENT).about(node)


def _silenced(found: Forecast, silent: Problem, cluster: Cluster) -> Forecast:
    """Return what a drain does to a VM of a node that does not report, with what is known of its
    guest: without the kubelet it may run on.
    """
    vmi = found.vmi
    if not virt_handlers.outlives_kubelet(cluster, vmi.at("status", "nodeName").text or ""):
        return _blocked(found, silent, cluster)
    runs = "Its guest probably runs on, as virt-handler there reports"
    if not lost_launchers.has_no_pod(vmi, cluster):
        return _blocked(found, silent._replace(reason=f"{silent.reason}. {runs}"), cluster)
    # a drain evicts pods: it does not wait for this VM, and is not over for its guest
    reason = (
        f"{silent.reason}. {runs}, although its pod no longer exists. A drain asks only pods to "
        "leave, so it may end while this guest runs"
    )
    kept = _blocked(found, silent._replace(reason=reason), cluster)
    return replace(kept, outcome=VmOutcome.UNKNOWN, problems=())


def _unready(node: Object) -> Iterator[str]:
    said = node_health.unready(node)
    if said:
        yield f"whether VMs can leave node {node.name}, which is not Ready ({said})"


def _concerns(hindrance: Hindrance, found: Forecast, cluster: Cluster) -> bool:
    if hindrance.vms is not None and found.vmi.full_name not in hindrance.vms:
        return False
    if found.vmi.deleted or found.state.state is State.GONE:
        return False
    return hindrance.evictions or _migrates(found, cluster)


def _migrates(found: Forecast, cluster: Cluster) -> bool:
    """Return whether KubeVirt answers the eviction of a VMI with a migration."""
    try:
        return vmi_evictions.eviction(found.vmi, cluster) is Eviction.MIGRATES
    except Unseen:
        return found.outcome is VmOutcome.MIGRATES
