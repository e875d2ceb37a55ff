"""What the loss of one node means: which health checks confirm that it is down, and whether its VMs start again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from virt_admit.forecasts.remediation import coverage, inactive_reasons, remediation_steps, timeline
from virt_admit.forecasts.remediation.remediation_steps import Span
from virt_admit.forecasts.remediation.timeline import VmRestart
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.remediation import check_scope
from virt_admit.model.remediation.check_scope import WatchedNodes


@dataclass(frozen=True, slots=True)
class WatchingCheck:
    """A health check that watches the node."""

    kind: str
    namespace: str
    name: str
    restart: Span | None
    """The time until the VMs of the node can start elsewhere. None: it never confirms that this node is down."""
    idle: str
    """Why it never does; empty: it does, or that is not known."""
    unseen: tuple[str, ...] = ()
    """What could not be read of the check, so that it may not confirm it."""

    @property
    def title(self) -> str:
        """Its kind and name."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """What happens after a node stops reporting and does not come back."""

    node: str
    covered: bool | None
    """Whether a health check can confirm that the node is down. None: that cannot be determined."""
    checks: tuple[WatchingCheck, ...]
    fates: tuple[VmRestart, ...]
    """Whether each VM of the node starts again after the node is confirmed down."""
    unseen: tuple[str, ...]

    @property
    def confirming(self) -> WatchingCheck | None:
        """The check that confirms first."""
        known = [check for check in self.checks if check.restart is not None]
        return min(known, key=lambda check: check.restart or Span(0, 0), default=None)


def of_node(node: str, cluster: Cluster) -> NodeLoss:
    """Return what the loss of a node means for its VMs. Never raises."""
    covered = coverage.coverage(cluster)
    checks = tuple(_checks(node, dict(covered.idle), cluster))
    unread = (*covered.unseen, *(what for check in checks for what in check.unseen))
    certain = node in covered.nodes and any(check.restart is not None and not check.unseen for check in checks)
    outcomes = list(timeline.fates([node], cluster))
    unseen = [*([] if certain else unread), *(each.what for each in outcomes if isinstance(each, Unseen))]
    return NodeLoss(
        node,
        True if certain else None if unread else False,
        checks,
        tuple(each for each in outcomes if isinstance(each, VmRestart)),
        tuple(dict.fromkeys(unseen)),
    )


def _checks(node: str, idle: Mapping[str, str], cluster: Cluster) -> Iterator[WatchingCheck]:
    for kind in coverage.CHECKS:
        for watches in check_scope.watches(cluster, kind).by_namespace.values():
            for watch in watches:
                if not watch.check.handler and node in remediation_steps.nodes_of(watch.check, watch.selection):
                    yield _check(watch, node, idle, cluster)


def _check(watch: WatchedNodes, node: str, idle: Mapping[str, str], cluster: Cluster) -> WatchingCheck:
    obj = watch.check.obj
    refused = inactive_reasons.refused(watch.check, watch.selection, cluster).items()
    why = idle.get(f"{obj.kind} {obj.name}") or next((reason for reason, nodes in refused if node in nodes), "")
    course = timeline.timeline(watch.check, cluster)
    restart = course.restart.at if course.restart is not None and not why else None
    blind = (each.what for each in inactive_reasons.lasting(watch.check, cluster) if isinstance(each, Unseen))
    unseen = (*filter(None, (watch.selection.unseen,)), *blind, *course.unseen)
    return WatchingCheck(obj.kind, obj.namespace, obj.name, restart, why, tuple(dict.fromkeys(unseen)))
