"""Everything that KubeVirt, its operators and the Operator Lifecycle Manager say does not go on by
itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from virt_admit.forecasts.drain.control import component_states, kubevirt_updates, px_updates
from virt_admit.forecasts.placement.agents import standing_agents
from virt_admit.forecasts.placement.components import stalled_machines
from virt_admit.forecasts.placement.components.controllers import (
    crowded_rollouts,
    failed_hooks,
    skewed_charts,
)
from virt_admit.forecasts.placement.components.drivers import storage_rollouts
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import (
    CAPI_CLUSTER,
    CAPI_MACHINE,
    CDI,
    CEPH_CLUSTER,
    DAEMON_SET,
    HCO,
    INSTALL_PLAN,
    JOB,
    KUBEVIRT,
    LONGHORN_MANAGER,
    NODE,
    SUBSCRIPTION,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import capital
from virt_admit.model.node_updates import operator_updates
from virt_admit.model.node_updates.operators import (
    etcd_leftovers,
    paused_clusters,
    preflight_checks,
    standing_control_planes,
)

READS: Final[Reads] = union(
    component_states.READS,
    crowded_rollouts.READS,
    etcd_leftovers.READS,
    failed_hooks.READS,
    kubevirt_updates.READS,
    operator_updates.READS,
    paused_clusters.READS,
    preflight_checks.READS,
    skewed_charts.READS,
    px_updates.READS,
    stalled_machines.READS,
    standing_agents.READS,
    standing_control_planes.READS,
    storage_rollouts.READS,
)


@dataclass(frozen=True, slots=True)
class StuckOperator:
    """One operator, or what it manages, that does not become ready; or what an administrator has
    to do before an upgrade.
    """

    kind: str
    namespace: str
    name: str
    reason: str
    remedy: str
    holds: bool | None = True
    """Whether the upgrade of this cluster has not ended before it goes on. False: it is of a
    cluster that this one hosts, or an operator on which no VM and no node depends. Null: it may be.
    """
    is_step: bool = False
    """Whether it is nothing that stands, but what an administrator does before each upgrade."""
    follows: str = ""
    """The node that is not Ready, of which it is a consequence; empty: it is none."""

    @property
    def is_hosted(self) -> bool:
        """Whether it is of a cluster that this one hosts."""
        return self.holds is False and not self.reason.endswith(_APART)


def briefly(cluster: Cluster) -> Iterator[str]:
    """Yield which operators are held, without the cause.

    A drain of all nodes asks the upgrade for what only may hold it, unless that is sure of a stop.
    """
    for each in of_cluster(cluster):
        if each.holds is False or each.kind == DAEMON_SET.kind:
            continue
        begin = each.reason.partition(": ")[0]
        yield f"{begin[:1].lower()}{begin[1:]}" if begin.startswith("The ") else begin


def of_cluster(cluster: Cluster) -> Sequence[StuckOperator]:
    """Return what is held. It stops no update of nodes by itself."""
    update = kubevirt_updates.held(cluster)
    updates = operator_updates.held(cluster)
    found = [(each.subscription, each.reason, each.remedy) for each in updates if each.of_vms]
    found += [(update.kubevirt, update.reason, update.remedy)] if update is not None else []
    components = component_states.held(cluster)
    clusters = [(each.obj, each.reason, each.remedy) for each in paused_clusters.held(cluster)]
    clusters += [(each.owner, each.reason, each.remedy) for each in etcd_leftovers.held(cluster)]
    clusters += [(each.owner, each.reason, each.remedy) for each in preflight_checks.held(cluster)]
    storage = [
        StuckOperator(each.kind, each.namespace, each.name, each.reason, each.remedy)
        for each in px_updates.paused(cluster)
    ]
    return (
        *(_stuck(*each, holds=True) for each in found),
        *(
            replace(_stuck(each.obj, each.reason, each.remedy, holds=True), follows=each.follows)
            for each in components
        ),
        *(_stuck(*each, holds=_is_here(each[0], cluster)) for each in clusters),
        *_control_planes(cluster),
        *storage,
        *(
            _stuck(each.owner, each.reason, each.remedy, holds=True)
            for each in failed_hooks.held(cluster)
        ),
        *_rollouts(cluster),
        *_agents(cluster),
        *(
            _stuck(each.subscription, f"{each.reason}. {_APART}", each.remedy, holds=False)
            for each in updates
            if not each.of_vms
        ),
    )


def unread(cluster: Cluster) -> Iterator[str]:
    """Yield the kinds that could not be read and whose objects alone say that they are held."""
    yield from filter(None, (unlisted(cluster, kind) for kind in _HELD))


_HELD: Final = (
    KUBEVIRT,
    CDI,
    HCO,
    SUBSCRIPTION,
    INSTALL_PLAN,
    CAPI_CLUSTER,
    *standing_control_planes.KINDS,
    CEPH_CLUSTER,
    LONGHORN_MANAGER,
    JOB,
)


def _rollouts(cluster: Cluster) -> Iterator[StuckOperator]:
    """Yield the updates of storage that do not go on, of components that find no node, and of
    charts whose Job is on an old server. One that only lags behind holds nothing.
    """
    for own in crowded_rollouts.held(cluster):
        yield _stuck(own.owner, f"{own.reason}. {_APART}", own.remedy, holds=False)
    for chart in skewed_charts.held(cluster):
        yield _stuck(chart.owner, f"{chart.reason}. {_APART}", chart.remedy, holds=False)
    for each in storage_rollouts.held(cluster):
        reason = each.reason if each.holds else f"{each.reason}. {_APART}"
        yield _stuck(each.owner, reason, each.remedy, holds=each.holds)


def _agents(cluster: Cluster) -> Iterator[StuckOperator]:
    """Yield the agents of nodes that stay down, or whose roll-outs stand."""
    for each in standing_agents.held(cluster):
        own, holds = each.rollout, None if each.may_hold else False
        reason = each.reason if holds is None else f"{each.reason}. {_APART}"
        yield StuckOperator(own.kind, own.namespace, own.name, reason, each.remedy, holds)


def _control_planes(cluster: Cluster) -> Iterator[StuckOperator]:
    """Yield the control planes whose roll-outs stand."""
    for each in standing_control_planes.held(cluster):
        here = _is_here(each.owner, cluster)
        holds = None if here and not each.certain else here
        yield _stuck(each.owner, each.reason, each.remedy, holds=holds)


_APART: Final = "The update of the nodes does not wait for it"


def _stuck(own: Object, reason: str, remedy: str, *, holds: bool | None) -> StuckOperator:
    return StuckOperator(own.kind, own.namespace, own.name, capital(reason), capital(remedy), holds)


def _is_here(obj: Object, cluster: Cluster) -> bool | None:
    """Return whether Machines of the Cluster of an object are nodes of this cluster."""
    if paused_clusters.cluster_of(obj) in cluster.cached(stalled_machines.clusters):
        return True
    return None if any(unlisted(cluster, kind) for kind in (CAPI_MACHINE, NODE)) else False
