"""What outside a node keeps its VMs there; a component that runs on the drained node alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from virt_admit.forecasts.drain.budgets import mutual_drains
from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.components import node_initializers
from virt_admit.forecasts.placement.refusals import busy_nodes
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import capital
from virt_admit.model.problems import Problem, ProblemCause, ProblemId
from virt_admit.model.scheduler import pods as scheduled_pods
from virt_admit.model.scheduler.pod_placement import Placement


@dataclass(frozen=True, slots=True)
class Hindrance:
    """One thing outside a node that keeps its VMs there."""

    component: str
    kind: str = ""
    namespace: str = ""
    name: str = ""
    evictions: bool = False
    """Whether it also keeps VMs that would be shut down."""
    starts: bool = False
    """Whether it keeps no VM on the node, but those that are shut down from starting elsewhere."""
    reason: str = ""
    remedy: str = ""
    stops: bool = False
    """Whether it certainly does. False: that cannot be determined."""
    now: bool = True
    """Whether it is so at this moment. False: it will be so in the course of the drain."""
    vms: frozenset[str] | None = None
    """Full names of the VMs that it keeps. None: all of the node."""

    @property
    def problem(self) -> Problem:
        return Problem(
            self.reason,
            self.remedy,
            id=ProblemId(ProblemCause.COMPONENT, self.namespace, self.name),
        )

    @classmethod
    def unread(cls, component: str, what: str) -> Hindrance:
        """Return that it cannot be determined whether a component keeps VMs."""
        return cls(
            component,
            evictions=True,
            reason=f"{component}: cannot see {what}",
            remedy="let virt-admit read it",
        )


def leaves_with(
    made: Hindrance, pods: Sequence[Object], node: str, label: str, cluster: Cluster
) -> Hindrance:
    """Return what becomes of a component whose ready pods all run on the node that is drained.

    Pods without a guest leave in seconds, VMs in minutes.
    """
    elsewhere = _elsewhere(pods[0], node, cluster)
    if elsewhere.is_certain and not elsewhere.has_candidate:
        if (closed := _closed(elsewhere.refusals, cluster)) is not None:
            reason = f"{made.component} runs on {node} alone: {closed.reason}"
            remedy = capital(typed(closed.remedy, closed.command))
            return replace(made, reason=reason, remedy=remedy, stops=True, now=False)
        # a node that is added would wait with it
        waiting = node_initializers.keeps_off(elsewhere.refusals, cluster)
        remedy = (
            capital(waiting.remedy)
            if waiting is not None
            else "Add a node that its placement allows."
        )
        missing = f", while {waiting.reason}" if waiting is not None else ""
        reason = f"{made.component} can run on {node} alone, and leaves it before the VMs{missing}"
        if cluster.cached(nodes.single) == node:  # a second node is not an option
            remedy = f"Shut the VMs of {node} down before its drain."
        return replace(made, reason=reason, remedy=remedy, stops=True, now=False)
    cordon = shell("kubectl", "cordon", argument(node))
    drain = shell(
        "kubectl", "drain", argument(node), "--ignore-daemonsets", "--pod-selector", label
    )
    remedy = f"Move it first: `{cordon}`, then `{drain}`, then the rest."
    return replace(made, reason=f"{made.component} runs on {node} alone", remedy=remedy, now=False)


def _closed(refusals: Mapping[str, str], cluster: Cluster) -> Problem | None:
    """Return that a cordon, or another cause that passes, alone keeps a pod off other nodes."""
    closed = busy_nodes.not_ready_now(refusals, cluster)
    return mutual_drains.resolved(closed, refusals, cluster)


def _elsewhere(pod: Object, node: str, cluster: Cluster) -> Placement:
    """Return which other nodes take a fresh copy of a pod."""
    own = scheduled_pods.read(pod)
    filters = candidates.scheduler(cluster)
    gone = tuple(
        other for other in filters.state.pods.get(node, ()) if other.full_name == own.full_name
    )
    return filters.place(replace(own, node=""), without=node, gone=gone)
