"""The content of ``virt-admit explain``: what a health check would do in a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from virt_admit.forecasts.outage import check_restarts
from virt_admit.forecasts.outage.check_restarts import VmRestart
from virt_admit.forecasts.outage.checks import check_controllers
from virt_admit.forecasts.outage.control import lost_webhooks
from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.remediation import (
    failed_remediations,
    inactive_reasons,
    remediation_steps,
    reported_status,
    side_notes,
    timeline,
    unhealthy_objects,
)
from virt_admit.forecasts.remediation.remediation_steps import Budget
from virt_admit.forecasts.remediation.timeline import Stage, Timeline
from virt_admit.forecasts.remediation.unhealthy_objects import UnhealthyObject
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.problems import Problem
from virt_admit.model.remediation import check_scope, health_checks, machine_owners, machines
from virt_admit.model.remediation.check_scope import WatchedNodes
from virt_admit.model.remediation.health_checks import HealthCheck

KINDS: Final[tuple[Kind, ...]] = (kinds.NHC, kinds.MHC, kinds.CAPI_MHC)
"""The kinds that can be explained."""

_OWN: Final[tuple[Kind, ...]] = (
    *KINDS,
    *(kinds.NODE, kinds.MACHINE, kinds.CAPI_MACHINE, kinds.VMI, kinds.VM, kinds.CONFIG_NODE),
    *(kinds.SNR_CONFIG, kinds.CAPI_CLUSTER, kinds.KUBEADM, kinds.CLUSTER_VERSION),
    *(kinds.INFRASTRUCTURE, kinds.PDB, kinds.METAL3_TEMPLATE),
    *(kinds.SNR_TEMPLATE, kinds.FAR_TEMPLATE, kinds.MDR_TEMPLATE),
)
_OF_PARTS: Final = union(
    *(candidates.READS, lost_webhooks.READS, failed_remediations.READS, check_controllers.READS)
)
LOOKS_UP: Final[tuple[Kind, ...]] = tuple(dict.fromkeys((*_OWN, *_OF_PARTS)))
"""The kinds that an explanation needs from a live cluster."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The behavior of one health check in one cluster."""

    check: HealthCheck
    selection: Selection
    budget: Budget
    unhealthy: tuple[tuple[str, str], ...]
    """The selected objects that are unhealthy now, with name and reason."""
    all_unhealthy: bool
    """Whether ``unhealthy`` is complete, because all data for it could be read."""
    obstacles: tuple[str, ...]
    """Why the check does nothing now."""
    notes: tuple[str, ...]
    """What does not keep it from acting, but is easily taken for that, or makes it slow."""
    overlaps: tuple[tuple[str, tuple[str, ...]], ...]
    """Other checks that select some of the same objects, with the names of these objects."""
    stages: tuple[Stage, ...]
    timeline: Timeline
    fates: tuple[VmRestart, ...]
    unseen: tuple[str, ...]
    """The data that could not be read. It might change the explanation."""


def _stopped(check: HealthCheck, cluster: Cluster) -> Iterator[str]:
    down = check_controllers.stopped(check, cluster)
    if down is not None:
        yield f"{down.reason}. To do: {down.remedy}"


def explain(obj: Object, cluster: Cluster) -> Explanation:
    """Return what a health check would do in this cluster.

    Raises:
        ValueError: the object is not a health check.
    """
    _demand_health_check(obj)
    check = health_checks.view(obj)
    selection = check_scope.selected_by(check, cluster)
    unseen = [selection.unseen] if selection.unseen else []
    seen = partial(_seen, unseen)
    course = timeline.timeline(check, cluster)
    budget = remediation_steps.budget(check, selection)
    budget = replace(
        budget, one_by_one=budget.one_by_one or machine_owners.one_by_one(check, selection)
    )
    states = list(unhealthy_objects.unhealthy(check, selection, cluster))
    unhealthy = tuple(seen(states))
    complete = not selection.unseen and len(unhealthy) == len(states)
    blocking = inactive_reasons.obstacles(check, selection, unhealthy, cluster)
    refused = inactive_reasons.refused(check, selection, cluster)
    never = {
        name: f"its node is never confirmed down: {why}"
        for why, nodes in refused.items()
        for name in nodes
    }
    failed = dict(_failed(check, unhealthy, cluster))
    never |= {
        node: f"its node is not confirmed down: {each.reason}" for node, each in failed.items()
    }
    watched = remediation_steps.nodes_of(check, selection, cluster)
    return Explanation(
        check=check,
        selection=selection,
        budget=budget,
        unhealthy=tuple((target.name, target.why) for target in unhealthy),
        all_unhealthy=complete,
        obstacles=(
            *seen(blocking),
            *_stopped(check, cluster),
            *_exceeded(budget, len(unhealthy), reported_status.counted(check, selection) or 0),
            *(_too_few(budget, len(unhealthy)) if complete else ()),
        ),
        notes=(
            *(f"{each.reason}. To do: {each.remedy}" for each in failed.values()),
            *side_notes.notes(check, selection, cluster),
        ),
        overlaps=tuple(
            _overlap(selection, rival) for rival in seen(check_scope.rivals(check, cluster))
        ),
        stages=tuple(seen(timeline.stages(check, cluster))),
        timeline=course,
        fates=tuple(seen(check_restarts.fates(watched, cluster, never))),
        unseen=tuple(dict.fromkeys((*unseen, *course.unseen))),
    )


def _failed(
    check: HealthCheck, unhealthy: Iterable[UnhealthyObject], cluster: Cluster
) -> Iterator[tuple[str, Problem]]:
    """Yield the unhealthy nodes whose remediation by this check has failed for good."""
    for target in unhealthy:
        own = None if check.kind is kinds.NHC else target.obj
        node = target.name if own is None else machines.node_name(own)
        if node and (found := failed_remediations.of_node(check.obj, node, cluster, own)):
            yield node, found


def _seen(unseen: list[str], items: Iterable[Any]) -> Iterator[Any]:
    """Yield what could be read, and note the rest in ``unseen``."""
    try:
        for item in items:
            if isinstance(item, Unseen):
                unseen.append(item.what)
            else:
                yield item
    except Unseen as missing:
        unseen.append(missing.what)


def _demand_health_check(obj: Object) -> None:
    if kinds.of(obj) not in KINDS:
        supported = ", ".join(f"{kind.kind} ({kind.group})" for kind in KINDS)
        raise ValueError(
            f"{obj.kind or 'object'} {obj.full_name} cannot be explained. Use one of {supported}"
        )


def _overlap(selection: Selection, rival: WatchedNodes) -> tuple[str, tuple[str, ...]]:
    """Return another health check, and the objects that it shares with this one."""
    shared = selection.among(rival.selection.positions).objects
    return rival.check.obj.full_name, tuple(sorted(obj.name for obj in shared))


def _exceeded(budget: Budget, unhealthy: int, counted: int) -> Iterator[str]:
    """Yield a message if more objects are unhealthy now than the limit allows, or if the check
    itself counts so many.
    """
    if budget.total is None or budget.most is None or budget.never:
        return
    if unhealthy > budget.most:
        yield f"{unhealthy} are unhealthy or soon will be: more than {budget.most}"
    elif counted > budget.most:
        yield f"its status counts {counted} of {budget.total} as unhealthy: more than {budget.most}"


def _too_few(budget: Budget, unhealthy: int) -> Iterator[str]:
    """Yield a message if fewer objects are unhealthy now than the range demands."""
    if unhealthy and not budget.never and unhealthy < budget.least:
        yield (
            f"{unhealthy} {'is' if unhealthy == 1 else 'are'} unhealthy: fewer than {budget.least}"
        )
