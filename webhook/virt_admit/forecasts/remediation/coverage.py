"""Which nodes some health check can remediate, so that the VMs of a lost node start again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import remediation_agents
from virt_admit.forecasts.remediation import (
    exclusions,
    first_remediator,
    harvester_reset,
    inactive_reasons,
    remediation_steps,
    timeline,
)
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, unlisted
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.lookups import find
from virt_admit.model.remediation import check_scope, remediators
from virt_admit.model.remediation.check_scope import WatchedNodes

CHECKS: Final = (kinds.NHC, kinds.MHC, kinds.CAPI_MHC)

READS: Final = union(
    remediation_agents.READS,
    remediators.SNR_READS,
    machine_nodes.READS,
    dict.fromkeys((*CHECKS, kinds.MACHINE, kinds.CAPI_MACHINE, kinds.CONFIG_NODE), ()),
    dict.fromkeys(
        (kinds.SNR_CONFIG, kinds.SNR_TEMPLATE, kinds.FAR_TEMPLATE, kinds.MDR_TEMPLATE), ()
    ),
    {kinds.METAL3_TEMPLATE: ()},
)
"""The fields that decide whether a health check can act."""


class Coverage(NamedTuple):
    """The nodes that a health check can remediate, and why some checks cannot."""

    nodes: frozenset[str]
    idle: tuple[tuple[str, str], ...]
    """Health checks that cannot act, each with the reason."""
    unseen: tuple[str, ...]
    """What could not be read, so that more nodes may be covered."""
    left_alone: Mapping[str, tuple[str, str]] = {}
    """By node: a health check that selects it, and why its remediators leave it alone."""
    unsure: Mapping[str, str] = {}
    """By node: what could not be read, so that a health check may leave this one alone."""


def is_paused(reason: str) -> bool:
    """Return whether a check is idle because an administrator has paused it,
    with a pause request that says why.
    """
    return reason.startswith(inactive_reasons.PAUSED_FOR)


@cached
def coverage(cluster: Cluster) -> Coverage:
    """Return which nodes the health checks of a cluster can remediate."""
    covered: set[str] = set()
    idle: list[tuple[str, str]] = []
    unseen: list[str] = []
    left_alone: dict[str, tuple[str, str]] = {}
    unsure: dict[str, str] = {}
    for kind in CHECKS:
        watches = check_scope.watches(cluster, kind)
        unseen += [watches.unseen] if watches.unseen else []
        for watch in (watch for some in watches.by_namespace.values() for watch in some):
            if watch.check.handler or _is_of_tenants(watch, cluster):
                continue
            reason, blind = _idle(watch, cluster)
            title = f"{watch.check.obj.kind} {watch.check.obj.name}"
            if reason:
                idle.append((title, reason))
                continue
            unseen += [*blind, *([watch.selection.unseen] if watch.selection.unseen else [])]
            found = _acting_on(watch, cluster)
            unseen += found.unread
            covered |= found.acting
            left_alone |= {node: (title, why) for node, why in found.refusing.items()}
            unsure |= found.unsure
    for node in cluster.known(kinds.NODE):
        try:
            policy = harvester_reset.of(node, cluster)
        except Unseen:
            break  # outside_checks names it
        if policy is not None and policy.idle:
            idle.append((harvester_reset.TITLE, policy.idle))
            break
        if policy is not None:
            covered.add(node.name)
    return Coverage(
        frozenset(covered), tuple(sorted(idle)), tuple(dict.fromkeys(unseen)), left_alone, unsure
    )


def _is_of_tenants(watch: WatchedNodes, cluster: Cluster) -> bool:
    """Return whether a check is about nodes of other clusters alone: the Machines of a management
    cluster's tenants name nodes that are not here.
    """
    if watch.check.kind is kinds.NHC or watch.selection.unseen or unlisted(cluster, kinds.NODE):
        return False
    named = set(remediation_steps.nodes_of(watch.check, watch.selection, cluster))
    return bool(named) and not any(find(cluster, kinds.NODE, "", name) for name in named)


class _Acting(NamedTuple):
    """The nodes on which a check acts when one of them is lost, those that it leaves alone,
    and what is unread.
    """

    acting: set[str]
    refusing: dict[str, str]
    unread: list[str]
    unsure: dict[str, str]


def _acting_on(watch: WatchedNodes, cluster: Cluster) -> _Acting:
    check, selection = watch.check, watch.selection
    if check.kind is not kinds.NHC:
        refused = inactive_reasons.refused(check, selection, cluster).values()
        return _Acting(
            set(remediation_steps.nodes_of(check, selection, cluster)).difference(*refused),
            {},
            [],
            {},
        )
    made = _Acting(set(), {}, [], {})
    stages = first_remediator.stages(check, cluster)
    for node in selection.objects:
        found = first_remediator.first_remediator(check, stages, node, cluster)
        made.unread.extend(found.unseen)
        try:
            excluded = exclusions.reason(node, cluster)
        except Unseen as unseen:
            made.unsure[node.name] = unseen.what
            continue
        if excluded:
            made.refusing[node.name] = excluded
        elif found.stage is not None and not found.unseen:
            made.acting.add(node.name)
        elif found.fails:
            made.refusing[node.name] = found.fails
    return made


def _idle(watch: WatchedNodes, cluster: Cluster) -> tuple[str, list[str]]:
    """Return why a check cannot act on a node that stops reporting, and what could not be read."""
    found = list(inactive_reasons.lasting(watch.check, cluster))
    reasons = [item for item in found if isinstance(item, str)]
    course = timeline.timeline(watch.check, cluster)
    blind = [item.what for item in found if isinstance(item, Unseen)]
    limit = remediation_steps.budget(watch.check, watch.selection).refuses(1)
    return next(iter(reasons), course.never or limit), blind
