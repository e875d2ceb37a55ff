"""Who acts after the loss of a node, when its pods are gone, and which health check refuses.

Sources:
medik8s/node-healthcheck-operator:internal/controller/nodehealthcheck_controller.go#Reconcile,
#isControlPlaneRemediationAllowed; medik8s/common:pkg/etcd/etcd.go; openshift/machine-api-operator:
pkg/controller/machine/drain_controller.go;
kubernetes-sigs/cluster-api:core/reconcilers/machine/drain/filters.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from virt_admit.forecasts.outage import machine_replacement
from virt_admit.forecasts.outage.control import control_plane_turn, owner_turns
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.machine_replacement import FreedPods
from virt_admit.forecasts.outage.time_parts import (
    POD_GONE,
    Detach,
    Part,
    Seconds,
    detection,
    seconds,
    total,
)
from virt_admit.forecasts.placement.components import remediation_agents
from virt_admit.forecasts.remediation import (
    exclusions,
    failed_remediations,
    harvester_reset,
    inactive_reasons,
    outside_checks,
    reactivation,
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
from virt_admit.forecasts.remediation.reactivation import Reactivation
from virt_admit.forecasts.remediation.remediation_steps import Budget, Step
from virt_admit.forecasts.remediation.timeline import Stage
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import SECOND, parse_duration
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.remediation import check_scope, machine_owners, remediators, selected_nodes
from virt_admit.model.remediation.check_scope import WatchedNodes
from virt_admit.model.remediation.health_checks import HealthCheck

_HARVESTER_LATE: Final = 60
"""Seconds until another pod of Harvester has the Lease of one that was lost."""
_SINCE_OUT_OF_SERVICE: Final = versions.Version(1, 28)


@dataclass(frozen=True, slots=True)
class Actor:
    """A health check that watches a lost node, and what it does."""

    node: str
    check: str
    remediator: str
    parts: tuple[Part, ...] = ()
    """Until the pods of the node are gone; empty if it refuses."""
    refuses: str = ""
    """Why the pods never go; empty: they do."""
    detach: Detach = Detach.UNKNOWN
    unseen: tuple[str, ...] = ()
    """What could not be read, so that it may refuse, or may act after all."""
    remedy: str = ""
    """What makes it act; empty: that is not known."""
    reactivation: Reactivation | None = None
    """What makes it act, if the check itself is changed."""
    begun: str = ""
    """What goes on already, of a node that is lost: the parts count from now. Empty:
    it has not acted yet.
    """

    @property
    def at(self) -> Seconds | None:
        """When the pods of the node are gone, counted from the loss. None: never."""
        return None if self.refuses else total(self.parts)

    @property
    def says(self) -> str:
        """Why the pods never go, as a sentence about the check."""
        words = {_WAITS: "postpones it", remediation_agents.WITHOUT: "cannot remediate it"}
        own = (word for begin, word in words.items() if self.refuses.startswith(begin))
        return (
            f"{self.check} {'can do no more' if self.begun else next(own, 'refuses')}: "
            f"{self.refuses}"
        )

    @property
    def certain(self) -> bool:
        """Whether it certainly acts."""
        return not self.refuses and not self.unseen


_WAITS: Final = "it waits for the "
"""Of ``inactive_reasons.upgrade``: the operator acts after the update of the node,
or of the cluster.
"""


@dataclass(frozen=True, slots=True)
class NodeCoverage:
    """The health checks that watch one lost node."""

    actors: tuple[Actor, ...]
    unseen: tuple[str, ...]
    """What could not be read, so that another check may act."""

    @property
    def first(self) -> Actor | None:
        """The check that certainly acts first; None: none certainly acts."""
        acting = [(actor.at or Seconds(0, 0), actor) for actor in self.actors if actor.certain]
        return min(
            acting, key=lambda each: (each[0].low, each[0].high is None), default=(None, None)
        )[1]

    @property
    def unattended(self) -> bool:
        """Whether certainly no check acts."""
        return not self.unseen and all(actor.refuses and not actor.unseen for actor in self.actors)


@dataclass(frozen=True, slots=True)
class _Watch:
    """A health check with what does not depend on the loss."""

    watch: WatchedNodes
    nodes: Mapping[str, Object]
    """The selected Nodes, or the Machines, by the name of the node."""
    budget: Budget
    unhealthy: frozenset[str]
    """Names of selected objects that are unhealthy before the loss."""
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


def coverage(node: str, loss: Loss) -> NodeCoverage:
    """Return which health checks act after the loss of a node, and which refuse."""
    known, unseen = loss.cluster.cached(_watches)
    found = (
        *(_actor(each, node, loss) for each in known if node in each.nodes),
        *_harvester(node, loss),
    )
    return NodeCoverage(
        found, tuple(dict.fromkeys((*unseen, *outside_checks.outside(node, loss.cluster))))
    )


def _harvester(node: str, loss: Loss) -> Iterator[Actor]:
    """Yield Harvester itself, if it is known whether it acts."""
    unseen: tuple[str, ...] = ()
    try:
        found = loss.cluster.get(kinds.NODE, "", node)
        policy = harvester_reset.of(found, loss.cluster) if found is not None else None
    except Unseen:
        return
    if policy is None:
        return
    refuses = loss.stopped or policy.idle
    try:
        refuses = refuses or (
            "" if harvester_reset.left(loss.lost, loss.cluster) else "none of its own pods is left"
        )
    except Unseen as blind:
        unseen = (blind.what,)
    if refuses:
        remedy = policy.remedy if policy.idle else ""
        yield Actor(
            node, harvester_reset.TITLE, "Harvester", refuses=refuses, unseen=unseen, remedy=remedy
        )
        return
    parts = (
        detection(loss),
        Part("waited", policy.wait, policy.wait),
        Part("pod gone", 0, _HARVESTER_LATE),
    )
    yield Actor(node, harvester_reset.TITLE, "Harvester", parts, unseen=unseen)


def _watches(cluster: Cluster) -> tuple[tuple[_Watch, ...], tuple[str, ...]]:
    found: list[_Watch] = []
    unseen: list[str] = []
    for kind in CHECKS:
        watches = check_scope.watches(cluster, kind)
        unseen += [watches.unseen] if watches.unseen else []
        for some in watches.by_namespace.values():
            found += [_view(watch, cluster) for watch in some if not watch.check.handler]
            unseen += [watch.selection.unseen for watch in some if watch.selection.unseen]
    return tuple(found), tuple(dict.fromkeys(unseen))


def _view(watch: WatchedNodes, cluster: Cluster) -> _Watch:
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
    return _Watch(
        watch,
        {name: obj for name, obj in nodes.items() if name},
        remediation_steps.budget(check, selection),
        frozenset(state.name for state in unhealthy),
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


# --- what a check does about one node -------------------------------------------------------------


def _actor(view: _Watch, node: str, loss: Loss) -> Actor:
    check = view.watch.check
    course = _first(view, node, loss.cluster)
    remediator = course.stage.name if course.stage is not None else ""
    machine = _machine_of(view, node, loss.cluster) if _deletes(view, course) else None
    begun = machine_replacement.deletion(machine, node, loss)
    if not begun and (
        failed := failed_remediations.of_node(check.obj, node, loss.cluster, view.nodes[node])
    ):
        return Actor(
            node,
            view.title,
            remediator,
            refuses=failed.reason,
            remedy=failed.remedy,
            begun=failed.reason,
        )
    refuses, unseen = (loss.stopped, ()) if begun else _refusal(view, node, loss)
    freed = refuses or _freed(view, course, machine, node, loss)
    if not begun:
        unread = failed_remediations.unread(check.obj, node, loss.cluster)
        unseen = tuple(dict.fromkeys((*unseen, *view.blind, *course.unseen, *unread)))
    if isinstance(freed, str):
        remedy = "" if refuses else machine_replacement.remedy(machine, node, loss)
        seen = (view.watch, view.budget, node, _down(view, loss), loss.cluster)
        again = None if begun else reactivation.reactivation(*seen)
        remedy = remedy or (again.remedy if again else "")
        return Actor(
            node, view.title, remediator, (), freed, Detach.UNKNOWN, unseen, remedy, again, begun
        )
    if begun:
        ends = Part("remediated", *freed.takes), freed.gone
        return Actor(
            node, view.title, remediator, ends, "", freed.detach, freed.unseen, begun=begun
        )
    wait = (timeline.patience(check) or 0) // SECOND
    parts = [detection(loss), Part("waited", wait, wait)]
    if view.cooldown.high != 0:
        parts.append(Part("storm cooldown", *view.cooldown))
    if course.wasted:
        parts.append(Part("earlier remediators", course.wasted // SECOND, course.wasted // SECOND))
    spent = total(tuple(parts)).low
    remediated, gone = freed.takes, freed.gone
    if freed.not_before is not None:
        low = max(remediated.low, freed.not_before - spent)
        low = low if freed.at_most is None else min(low, freed.at_most)
        remediated = Seconds(low, None if remediated.high is None else max(low, remediated.high))
    parts += [Part("remediated", *remediated), gone]
    late = (
        *machine_replacement.overdue(machine, view.title, wait, node, loss),
        *(
            exclusions.late(check.obj, view.nodes[node], total(tuple(parts)), loss.cluster)
            if check.kind is kinds.NHC
            else ()
        ),
    )
    return Actor(
        node,
        view.title,
        remediator,
        tuple(parts),
        "",
        freed.detach,
        (*unseen, *freed.unseen, *late),
    )


def _first(view: _Watch, node: str, cluster: Cluster) -> FirstRemediator:
    check = view.watch.check
    return first_remediator(
        check, view.stages, view.nodes[node] if check.kind is kinds.NHC else None, cluster
    )


def _refusal(view: _Watch, node: str, loss: Loss) -> tuple[str, tuple[str, ...]]:
    """Return why a check does nothing for a lost node, and what could not be read of that."""
    check = view.watch.check
    if loss.stopped:
        return loss.stopped, ()
    if view.idle:
        return view.idle, ()
    if node in view.refused:
        return view.refused[node], ()
    down = _down(view, loss)
    limited = view.budget.refuses(down)
    if limited:
        return limited, view.unread if view.budget.least > 1 else ()
    unseen = (
        view.unread
        if view.budget.most is None or down + len(view.unread) > view.budget.most
        else ()
    )
    if view.budget.most is None:
        unseen = (*unseen, f"how many nodes {view.title} selects")
    elif (
        len(_known_down(view, loss)) + max(view.counted - len(view.unhealthy), 0) > view.budget.most
    ):
        unseen = (
            *unseen,
            f"which Machines {view.title} counts as unhealthy: its status says {view.counted}",
        )
    if check.kind is not kinds.NHC:
        unseen = (*unseen, *filter(None, (view.left.get(machine_owners.title(view.nodes[node])),)))
    unseen = (*unseen, *filter(None, (view.unsure.get(node),)))
    refuses, unread = _turn(view, node, loss)
    return refuses, (*unseen, *unread)


def _down(view: _Watch, loss: Loss) -> int:
    """Return how many objects of a check are unhealthy after the loss, at least."""
    return max(len(_known_down(view, loss)), view.counted)


def _known_down(view: _Watch, loss: Loss) -> frozenset[str]:
    return view.unhealthy | {obj.name for name, obj in view.nodes.items() if name in loss.lost}


def _turn(view: _Watch, node: str, loss: Loss) -> tuple[str, tuple[str, ...]]:
    """Return why it is not the turn of a node, or of its Machine,
    and what could not be read of that. Empty: it is.
    """
    check = view.watch.check
    if check.kind is kinds.CAPI_MHC and machine_owners.decide(check):
        spent = detection(loss).low + (timeline.patience(check) or 0) // SECOND
        return owner_turns.refusal(
            owner_turns.Marked(view.nodes[node], view.nodes, view.unhealthy, spent, loss)
        )
    if check.kind is not kinds.NHC:
        return "", ()
    members = {
        each.name: each for each in selected_nodes.control_plane(view.watch.selection).objects
    }
    return (
        control_plane_turn.refusal(node, members, view.unhealthy, loss)
        if node in members
        else ("", ())
    )


# --- how the pods go ------------------------------------------------------------------------------


def _deletes(view: _Watch, course: FirstRemediator) -> bool:
    """Return whether the Machine of the node is deleted."""
    if course.stage is None or course.step is None:
        return course.stage is not None and not view.watch.check.external
    return course.step.kind is kinds.MDR_TEMPLATE


def _freed(
    view: _Watch, course: FirstRemediator, machine: Object | None, node: str, loss: Loss
) -> FreedPods | str:
    """Return how the pods of a node go after its remediator begins; as text why they never go."""
    stage, step = course.stage, course.step
    if stage is None:
        return course.fails
    if _deletes(view, course):
        return machine_replacement.by_deletion(machine, node, loss)
    kind = step.kind if step is not None else None
    if kind is kinds.SNR_TEMPLATE:
        own = view.nodes.get(node)
        measured = [own] if own is not None and view.watch.check.kind is kinds.NHC else None
        takes = remediators.snr_duration(loss.cluster, measured) // SECOND
        return FreedPods(
            Seconds(takes, takes), POD_GONE, _strategy(step, loss.cluster, automatic=True)
        )
    # it fails for good after its tries, or another remediator goes on
    if kind is kinds.FAR_TEMPLATE:
        tries = seconds(stage.takes) if stage is view.stages[-1] else Seconds(0, None)
        return FreedPods(tries, POD_GONE, _strategy(step, loss.cluster, automatic=False))
    return FreedPods(seconds(stage.takes), POD_GONE, Detach.UNKNOWN)


def _strategy(step: Step | None, cluster: Cluster, *, automatic: bool) -> Detach:
    """Return how the remediator frees volumes: by the out-of-service taint,
    or by deleting pods alone.
    """
    try:
        template = step.template(cluster) if step is not None else None
    except Unseen:
        return Detach.UNKNOWN
    if template is None:
        return Detach.UNKNOWN
    strategy = template.at("spec", "template", "spec", "remediationStrategy").text
    if strategy == "OutOfServiceTaint":
        return Detach.AT_ONCE
    if strategy in (None, "Automatic") and automatic:
        release = versions.parse_version(cluster.server_version)
        return (
            Detach.AT_ONCE if release is None or release >= _SINCE_OUT_OF_SERVICE else Detach.FORCED
        )
    return Detach.FORCED


def _machine_of(view: _Watch, node: str, cluster: Cluster) -> Object | None:
    if view.watch.check.kind is not kinds.NHC:
        return view.nodes.get(node)
    return next(
        (
            each
            for each in cluster.known(kinds.MACHINE)
            if machine_nodes.node_name(each, cluster) == node
        ),
        None,
    )


def by_hand(loss: Loss) -> tuple[Part, ...]:
    """Return the parts until the pods are gone if an administrator sets the out-of-service taint at
    once.
    """
    return detection(loss), POD_GONE


def evicted(node: str, loss: Loss) -> int | None:
    """Return after how many seconds at most the pods of a lost node without own tolerations are
    marked for deletion.

    None: never.
    """
    delay = loss.taint_delay(node)
    return (
        None
        if delay is None
        else (detection(loss).high or 0) + delay + machine_replacement.TOLERATED
    )
