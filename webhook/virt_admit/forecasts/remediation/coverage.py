"""Which nodes some health check can remediate, so that the VMs of a lost node start again."""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.forecasts.remediation import inactive_reasons, remediation_steps, timeline
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.remediation import check_scope, machine_deletion, machines, remediators
from virt_admit.model.remediation.check_scope import WatchedNodes

CHECKS: Final = (kinds.NHC, kinds.MHC, kinds.CAPI_MHC)

READS: Final = union(
    machines.OWNER_READS,
    remediators.SNR_READS,
    machine_deletion.READS,
    dict.fromkeys((*CHECKS, kinds.MACHINE, kinds.CAPI_MACHINE, kinds.CONFIG_NODE), ()),
    dict.fromkeys((kinds.SNR_CONFIG, kinds.SNR_TEMPLATE, kinds.FAR_TEMPLATE, kinds.MDR_TEMPLATE), ()),
    {kinds.METAL3_TEMPLATE: (), kinds.NODE: ("metadata.labels",)},
)
"""The fields that decide whether a health check can act."""


class Coverage(NamedTuple):
    """The nodes that a health check can remediate, and why some checks cannot."""

    nodes: frozenset[str]
    idle: tuple[tuple[str, str], ...]
    """Health checks that cannot act, each with the reason."""
    unseen: tuple[str, ...]
    """What could not be read, so that more nodes may be covered."""


def coverage(cluster: Cluster) -> Coverage:
    """Return which nodes the health checks of a cluster can remediate."""
    return cluster.cached(_coverage)


def _coverage(cluster: Cluster) -> Coverage:
    covered: set[str] = set()
    idle: list[tuple[str, str]] = []
    unseen: list[str] = []
    for kind in CHECKS:
        watches = check_scope.watches(cluster, kind)
        unseen += [watches.unseen] if watches.unseen else []
        for watch in (watch for some in watches.by_namespace.values() for watch in some):
            if watch.check.handler:
                continue
            reason, blind = _idle(watch, cluster)
            if reason:
                idle.append((f"{watch.check.obj.kind} {watch.check.obj.name}", reason))
                continue
            unseen += [*blind, *([watch.selection.unseen] if watch.selection.unseen else [])]
            refused = inactive_reasons.refused(watch.check, watch.selection, cluster).values()
            covered |= set(remediation_steps.nodes_of(watch.check, watch.selection)).difference(*refused)
    return Coverage(frozenset(covered), tuple(sorted(idle)), tuple(dict.fromkeys(unseen)))


def _idle(watch: WatchedNodes, cluster: Cluster) -> tuple[str, list[str]]:
    """Return why a check cannot act on a node that stops reporting, and what could not be read."""
    found = list(inactive_reasons.lasting(watch.check, cluster))
    reasons = [item for item in found if isinstance(item, str)]
    course = timeline.timeline(watch.check, cluster)
    blind = [item.what for item in found if isinstance(item, Unseen)]
    return next(iter(reasons), course.never), blind
