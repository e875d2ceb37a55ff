"""Who acts after the loss of a node, when its pods are gone, and which health check refuses.

Sources:
medik8s/node-healthcheck-operator:internal/controller/nodehealthcheck_controller.go#Reconcile,
#isControlPlaneRemediationAllowed; medik8s/common:pkg/etcd/etcd.go; openshift/machine-api-operator:
pkg/controller/machine/drain_controller.go;
kubernetes-sigs/cluster-api:core/reconcilers/machine/drain/filters.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from virt_admit.forecasts.outage import machine_replacement
from virt_admit.forecasts.outage.checks import check_controllers, freed_pods, watching_checks
from virt_admit.forecasts.outage.checks.watching_checks import WatchingCheck
from virt_admit.forecasts.outage.control import control_plane_turn, owner_turns
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.machine_replacement import FreedPods
from virt_admit.forecasts.outage.time_parts import POD_GONE, Detach, Part, Seconds, detection, total
from virt_admit.forecasts.placement.components import remediation_agents
from virt_admit.forecasts.remediation import (
    exclusions,
    failed_remediations,
    harvester_reset,
    outside_checks,
    reactivation,
    timeline,
)
from virt_admit.forecasts.remediation.ends import stale_annotations
from virt_admit.forecasts.remediation.first_remediator import FirstRemediator
from virt_admit.forecasts.remediation.reactivation import Reactivation
from virt_admit.model.kubernetes import kinds, node_health
from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem
from virt_admit.model.remediation import machine_owners, selected_nodes

_HARVESTER_LATE: Final = 60
"""Seconds until another pod of Harvester has the Lease of one that was lost."""


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
    """What goes on already, of a lost node: the parts count from now. Empty: no action yet."""
    waits: str = ""
    """What it waits for before it acts, or does not act. Empty: nothing else."""
    overdue: str = ""
    """What is not known, as it should have freed the pods already; empty: its time has not passed.
    """
    twice: Problem | None = None
    """Why it frees pods that may go on running, so that they run twice; None: nothing shows it."""

    @property
    def at(self) -> Seconds | None:
        """When the pods of the node are gone, counted from the loss. None: never, or not known."""
        return None if self.refuses or self.waits else total(self.parts)

    @property
    def says(self) -> str:
        """Why the pods never go, as a sentence about the check."""
        words = {
            _WAITS: "postpones it",
            check_controllers.STOPPED: "cannot act",
            remediation_agents.WITHOUT: "cannot remediate it",
        }
        own = (word for begin, word in words.items() if self.refuses.startswith(begin))
        does = "can do no more" if self.begun else next(own, "refuses")
        return f"{self.check} {does}: {self.refuses}"

    @property
    def certain(self) -> bool:
        """Whether it certainly acts."""
        return not (self.refuses or self.waits or self.unseen)


_WAITS: Final = "it waits for the "
"""Of ``inactive_reasons.upgrade``: the operator acts after the update of node or cluster."""


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


def coverage(node: str, loss: Loss) -> NodeCoverage:
    """Return which health checks act after the loss of a node, and which refuse."""
    known, unseen = loss.cluster.cached(watching_checks.watching)
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
        if remedy and node_health.silence_now(node, loss.cluster):  # it then resets its VMs at once
            remedy = f"make sure that {node} is off, then {remedy}"
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


# --- what a check does about one node -------------------------------------------------------------


def _actor(view: WatchingCheck, node: str, loss: Loss) -> Actor:
    check, own = view.watch.check, view.nodes[node]
    course = view.first(node, loss.cluster)
    remediator = course.stage.name if course.stage is not None else ""
    made = Actor(node, view.title, remediator)
    deletes = freed_pods.deletes(view, course)
    machine = freed_pods.machine_of(view, node, loss.cluster) if deletes else None
    if machine is not None and (begun := machine_replacement.deletion(machine, node, loss)):
        freed = loss.stopped or freed_pods.freed(view, course, machine, node, loss)
        return _under_way(replace(made, begun=begun), freed, machine, loss)
    if failed := failed_remediations.of_node(check.obj, node, loss.cluster, own):
        why = failed.reason
        return replace(made, refuses=why, remedy=failed.remedy, begun=why)
    idle = loss.stopped or view.idle or view.refused.get(node, "")
    if waits := "" if idle else view.waits(node, loss):
        return replace(made, waits=waits)
    refuses, blind = (idle, ()) if idle else _refusal(view, node, loss)
    freed = refuses or freed_pods.freed(view, course, machine, node, loss)
    unread = failed_remediations.unread(check.obj, node, loss.cluster)
    unseen = tuple(dict.fromkeys((*blind, *view.blind, *course.unseen, *unread)))
    if isinstance(freed, str):
        remedy = "" if refuses else machine_replacement.remedy(machine, node, loss)
        down = view.down(loss)
        again = reactivation.reactivation(view.watch, view.budget, node, down, loss.cluster)
        stopped = check_controllers.stopped(check, loss.cluster)
        if stopped is not None and stopped.reason == freed:
            again, remedy = None, stopped.remedy
        held = stale_annotations.of_machine(own, loss.cluster)
        if held is not None and held.reason == freed:
            again, remedy = None, held.remedy
        remedy = remedy or (again.remedy if again else "")
        return replace(made, refuses=freed, unseen=unseen, remedy=remedy, reactivation=again)
    wait = (timeline.patience(check) or 0) // SECOND
    parts = _parts(view, wait, course, freed, loss)
    late = [*failed_remediations.doubts(check.obj, node, loss.cluster)]
    overdue = [*freed_pods.overdue(machine, view.title, wait, node, loss)]
    late += overdue
    time, lost = total(parts), find(loss.cluster, kinds.NODE, "", node)
    if check.kind is kinds.NHC:
        late += exclusions.late(check.obj, own, time, loss.cluster)
    elif machine is None and lost is not None:  # its remediator leaves the Machine
        allowed = time.low if time.high is None else time.high
        late += exclusions.overdue(check.obj, lost, allowed, loss.cluster)
    twice = freed_pods.twice(course, node, loss)
    late += [twice] if isinstance(twice, str) else []
    unseen = (*unseen, *freed.unseen, *late)
    made = replace(
        made,
        twice=twice if isinstance(twice, Problem) else None,
        overdue=next((each for each in unseen if each in (*view.left.values(), *overdue)), "")
        if overdue
        else "",
    )
    return replace(made, parts=parts, detach=freed.detach, unseen=unseen)


def _under_way(made: Actor, freed: FreedPods | str, machine: Object, loss: Loss) -> Actor:
    """Return how a deletion of the Machine goes on that has begun. It waits for no check."""
    if isinstance(freed, FreedPods):
        dead = node_health.silence_now(made.node, loss.cluster)
        return replace(
            made,
            check=f"the deletion of Machine {machine.name}",
            remediator="",
            parts=_until_gone([] if dead else [detection(loss)], freed),
            detach=freed.detach,
            unseen=freed.unseen,
        )
    remedy = "" if loss.stopped else machine_replacement.remedy(machine, made.node, loss)
    return replace(made, refuses=freed, remedy=remedy)


def _parts(
    view: WatchingCheck, wait: int, course: FirstRemediator, freed: FreedPods, loss: Loss
) -> tuple[Part, ...]:
    """Return the parts until the pods of a node are gone.

    ``wait``: the seconds for which the check waits.
    """
    parts = [detection(loss), Part("waited", wait, wait)]
    if view.cooldown.high != 0:
        parts.append(Part("storm cooldown", *view.cooldown))
    if course.wasted:
        parts.append(Part("earlier remediators", course.wasted // SECOND, course.wasted // SECOND))
    return _until_gone(parts, freed)


def _until_gone(parts: Sequence[Part], freed: FreedPods) -> tuple[Part, ...]:
    """Return some parts, and after them those until the pods are gone."""
    remediated = freed.takes
    if freed.not_before is not None:
        low = max(remediated.low, freed.not_before - total(parts).low)
        low = low if freed.at_most is None else min(low, freed.at_most)
        remediated = Seconds(low, None if remediated.high is None else max(low, remediated.high))
    return (*parts, Part("remediated", *remediated), freed.gone)


def _refusal(view: WatchingCheck, node: str, loss: Loss) -> tuple[str, tuple[str, ...]]:
    """Return why a check that is not idle does nothing for a lost node, and what could not be read
    of that.
    """
    down = view.down(loss)
    limited = view.budget.refuses(down)
    if limited:
        others = [
            each
            for each, obj in view.nodes.items()
            if obj.name in view.unhealthy and each not in loss.lost
        ]
        also = f" (with {names(sorted(others), 120)})" if others else ""
        return f"{limited}{also}", view.unread if view.budget.least > 1 else ()
    most = view.budget.most
    unseen: list[str] = []
    if most is None or down + len(view.unread) > most:
        unseen += view.unread
    if most is None:
        unseen.append(f"how many nodes {view.title} selects")
    elif len(view.known_down(loss)) + max(view.counted - len(view.unhealthy), 0) > most:
        counted = f"its status says {view.counted}"
        unseen.append(f"which Machines {view.title} counts as unhealthy: {counted}")
    if view.watch.check.kind is not kinds.NHC:
        unseen.append(view.left.get(machine_owners.title(view.nodes[node]), ""))
    unseen.append(view.unsure.get(node, ""))
    refuses, unread = _turn(view, node, loss)
    return refuses, (*filter(None, unseen), *unread)


def _turn(view: WatchingCheck, node: str, loss: Loss) -> tuple[str, tuple[str, ...]]:
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
    if node in members:
        return control_plane_turn.refusal(node, members, view.unhealthy, loss)
    return "", ()


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
    if delay is None:
        return None
    return (detection(loss).high or 0) + delay + machine_replacement.TOLERATED
