"""The health checks of a cluster with what does not depend on the loss of a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.outage.checks import check_controllers
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.time_parts import Seconds
from virt_admit.forecasts.remediation import (
    exclusions,
    inactive_reasons,
    remediation_steps,
    reported_status,
    timeline,
    unhealthy_objects,
)
from virt_admit.forecasts.remediation.coverage import CHECKS
from virt_admit.forecasts.remediation.first_remediator import (
    FirstRemediator,
    first_remediator,
    stages,
)
from virt_admit.forecasts.remediation.remediation_steps import Budget
from virt_admit.forecasts.remediation.timeline import Stage
from virt_admit.forecasts.remediation.unhealthy_objects import UnhealthyObject
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import SECOND, parse_duration
from virt_admit.model.messages import names
from virt_admit.model.remediation import check_scope
from virt_admit.model.remediation.check_scope import WatchedNodes
from virt_admit.model.remediation.health_checks import HealthCheck


@dataclass(frozen=True, slots=True)
class WatchingCheck:
    """A health check with what does not depend on the loss."""

    watch: WatchedNodes
    nodes: Mapping[str, Object]
    """The selected Nodes, or the Machines, by the name of the node."""
    budget: Budget
    unhealthy: frozenset[str]
    """Names of selected objects that are unhealthy before the loss."""
    starting: tuple[UnhealthyObject, ...]
    """Those of them that may be healthy soon, as they start."""
    counted: int
    """How many the check itself counts as unhealthy, if its status says so."""
    unread: tuple[str, ...]
    """What could not be read of that."""
    idle: str
    """Why it does nothing for any node; empty: it acts."""
    refused: Mapping[str, str]
    """Why it never remediates single nodes."""
    unsure: Mapping[str, str]
    """Whether it never remediates single nodes, where that is not known."""
    left: Mapping[str, str]
    """What the owners of Machines do not remediate now, by the owner."""
    blind: tuple[str, ...]
    stages: tuple[Stage, ...]
    cooldown: Seconds
    """How long it waits after an earlier storm before it acts at all."""

    @property
    def title(self) -> str:
        return f"{self.watch.check.obj.kind} {self.watch.check.obj.name}"

    def known_down(self, loss: Loss) -> frozenset[str]:
        """Return the objects that are known to be unhealthy after the loss."""
        return self.unhealthy | {obj.name for name, obj in self.nodes.items() if name in loss.lost}

    def down(self, loss: Loss) -> int:
        """Return how many objects are unhealthy after the loss, at least."""
        return max(len(self.known_down(loss)), self.counted)

    def waits(self, node: str, loss: Loss) -> str:
        """Return that it acts on a lost node only once others have started, until when that may be,
        and what is then. Empty: these do not decide it.
        """
        down, own = self.down(loss), self.nodes[node]
        starting = [each for each in self.starting if each.obj is not own]
        limited = self.budget.refuses(down)
        if not limited or not starting or self.budget.refuses(down - len(starting)):
            return ""
        which = names((each.name for each in starting), 120)
        ends = max(each.starts_until for each in starting if each.starts_until is not None)
        until = vm_states_times.moment(ends, clock.now(loss.cluster))
        return (
            f"{self.title} waits for {which} to start: {limited}. It acts once these are healthy; "
            f"if they are not by {until}, it acts on none"
        )

    def first(self, node: str, cluster: Cluster) -> FirstRemediator:
        """Return the first remediator that acts on a node."""
        own = self.nodes[node] if self.watch.check.kind is kinds.NHC else None
        return first_remediator(self.watch.check, self.stages, own, cluster)


def watching(cluster: Cluster) -> tuple[tuple[WatchingCheck, ...], tuple[str, ...]]:
    """Return the health checks of a cluster, and what could not be read of them."""
    found: list[WatchingCheck] = []
    unseen: list[str] = []
    for kind in CHECKS:
        watches = check_scope.watches(cluster, kind)
        unseen += [watches.unseen] if watches.unseen else []
        for some in watches.by_namespace.values():
            found += [_view(watch, cluster) for watch in some if not watch.check.handler]
            unseen += [watch.selection.unseen for watch in some if watch.selection.unseen]
    return tuple(found), tuple(dict.fromkeys(unseen))


def _view(watch: WatchedNodes, cluster: Cluster) -> WatchingCheck:
    check, selection = watch.check, watch.selection
    direct = check.kind is kinds.NHC
    nodes = {
        (obj.name if direct else machine_nodes.node_name(obj, cluster)): obj
        for obj in selection.objects
    }
    states = list(unhealthy_objects.unhealthy(check, selection, cluster))
    unhealthy = [state for state in states if not isinstance(state, Unseen)]
    lasting = list(inactive_reasons.lasting(check, cluster))
    if direct:
        lasting += inactive_reasons.upgrade(unhealthy, cluster)
    if check.kind is kinds.CAPI_MHC:
        lasting += inactive_reasons.stopped_cluster(check, cluster)
    down = check_controllers.stopped(check, cluster)
    lasting += [down.reason] if down is not None else []
    reasons = [reason for reason in lasting if isinstance(reason, str)]
    refused = {
        node: why
        for why, some in inactive_reasons.refused(check, selection, cluster).items()
        for node in some
    }
    unsure: Mapping[str, str] = {}
    if direct:
        excluded = {node.name: exclusions.state(node, cluster) for node in selection.objects}
        refused |= {name: why for name, why in excluded.items() if isinstance(why, str) and why}
        unsure = {name: why.what for name, why in excluded.items() if isinstance(why, Unseen)}
    return WatchingCheck(
        watch,
        {name: obj for name, obj in nodes.items() if name},
        remediation_steps.budget(check, selection),
        frozenset(state.name for state in unhealthy),
        tuple(state for state in unhealthy if state.starts_until is not None),
        reported_status.counted(check, selection) or 0,
        tuple(state.what for state in states if isinstance(state, Unseen)),
        next(iter(reasons), timeline.timeline(check, cluster).never),
        refused,
        unsure,
        {
            each.owner: (
                f"whether {each.owner} remediates it: {each.machine.name} waits for that "
                f"{each.lasts}"
            )
            for each in reported_status.refusals(check, selection, cluster)
        },
        tuple(dict.fromkeys(reason.what for reason in lasting if isinstance(reason, Unseen))),
        stages(check, cluster),
        _cooldown(check),
    )


def _cooldown(check: HealthCheck) -> Seconds:
    """Return how long a NodeHealthCheck in a storm waits after its limit is met
    (#evaluateStormRecovery).
    """
    if check.kind is not kinds.NHC or not inactive_reasons.in_storm(check):
        return Seconds(0, 0)
    try:
        return Seconds(
            0, parse_duration(check.obj.at("spec", "stormCooldownDuration").value) // SECOND
        )
    except ValueError:
        return Seconds(0, None)
