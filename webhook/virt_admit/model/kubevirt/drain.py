"""The effect of a node drain on the VMs of the node, from facts where they exist.

A fact is what KubeVirt published on the running VMI: its frozen eviction strategy, its condition ``LiveMigratable``,
migrations that failed. The possible targets of a migration are inferred from labels and taints of the nodes, because
KubeVirt does not check them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple

from virt_admit.model.cluster import Cluster, Unseen, gather, more_may_exist
from virt_admit.model.kinds import NODE, VMI
from virt_admit.model.kubevirt import (
    configuration,
    cpu_models,
    disruption_budgets,
    effective,
    lifecycle,
    migratability,
    migrations,
    placement,
    vmis,
)
from virt_admit.model.kubevirt.lifecycle import Eviction
from virt_admit.model.messages import names
from virt_admit.model.objects import Object
from virt_admit.model.reads import union

READS: Final = union(
    {VMI: ("spec",)},
    vmis.READS,
    vmis.OWNER_READS,
    migrations.READS,
    disruption_budgets.READS,
    placement.READS,
    effective.STRATEGY_READS,
)
"""The fields that the forecast reads."""

# --- objects that are not running yet -------------------------------------------------------------------------------


def awaits_migration(obj: Object, cluster: Cluster) -> bool:
    """Whether a drain would wait for the VMI of an object to migrate.

    This is the case if its strategy is LiveMigrate, or LiveMigrateIfPossible and nothing known rules out a migration.

    Raises:
        Unseen: the strategy is the cluster's, which is unknown.
    """
    wanted = effective.strategy(obj, cluster).value
    if wanted == "LiveMigrateIfPossible":
        return migratability.assess(obj, cluster).migratable is not migratability.Migratable.NO
    return wanted == "LiveMigrate"


# --- evictions -----------------------------------------------------------------------------------------------------


def eviction(vmi: Object, cluster: Cluster) -> Eviction:
    """Return KubeVirt's reaction to an eviction of the VMI's pod.

    Raises:
        Unseen: see ``effective.strategy``.
    """
    return lifecycle.eviction(effective.strategy(vmi, cluster).value, vmis.migratable(vmi))


class Evictions(NamedTuple):
    """The effect of an eviction on each VMI of a node that is not being stopped already."""

    answers: tuple[tuple[Object, Eviction], ...] = ()
    unseen: tuple[Unseen, ...] = ()
    """What could not be read."""

    def having(self, *wanted: Eviction) -> list[Object]:
        """Return the VMIs whose eviction has one of these effects."""
        return [vmi for vmi, answer in self.answers if answer in wanted]

    @property
    def blocking(self) -> list[Object]:
        """The VMIs for which a drain never completes."""
        return self.having(Eviction.REFUSED, Eviction.WAITS)


def evictions(cluster: Cluster, node: str) -> Evictions:
    """Return the effects of evictions on a node."""
    answers: list[tuple[Object, Eviction]] = []
    blind: list[Unseen] = []
    found, unseen = gather(vmis.on_node(cluster, node))
    for vmi in found:
        if not vmi.deleted:
            try:
                answers.append((vmi, eviction(vmi, cluster)))
            except Unseen as one:
                blind.append(one)
    return Evictions(tuple(answers), (*blind, Unseen(unseen)) if unseen else tuple(blind))


# --- where a VMI goes to -------------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """Why something does not happen, and the remedy."""

    reason: str
    remedy: str


def no_target(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why the migration of a migratable VMI will not complete; None: it will, or that is unknown.

    KubeVirt gives up such a migration after five minutes and repeats it forever.
    """
    failed = migrations.failed_in_a_row(vmi, cluster)
    if len(failed) >= migrations.RETRY_LOOP:
        reason = f"its last {len(failed)} migrations failed, so will the next"
        return Problem(reason, f"see why migration {failed[-1].name} failed")
    return nowhere_to_go(vmi, cluster, moves=True)


def nowhere_to_go(vmi: Object, cluster: Cluster, *, moves: bool) -> Problem | None:
    """Return why no other node can run a VMI now; None: a node can, or that is unknown because nodes cannot be read.

    Args:
        vmi: a running VMI.
        cluster: the cluster.
        moves: whether it migrates, which binds a VMI with ``host-model`` to the CPU model of its node.
    """
    try:
        places = placement.places(cluster)
    except Unseen:
        return None
    if cluster.cached(_blind_to_nodes):
        return None
    here = vmi.at("status", "nodeName").text or ""
    others = [place for place in places if place.name != here]
    if not others:
        return Problem("no other node runs KubeVirt", "add one, or set None and restart it") if places else None
    model = _source_model(vmi, cluster, here) if moves else None
    wanted = placement.demand(effective.effective(vmi, cluster), cluster, model)
    busy: list[str] = []
    obstacles: dict[str, None] = {}
    for place in others:
        why = placement.blocking_constraint(wanted, place)
        if why is not None:
            obstacles[why] = None
        elif place.ready:
            return None
        else:
            busy.append(place.name)
    if busy:
        return Problem(f"no node that could take it is ready: {names(busy)}", "uncordon or repair one of them")
    return Problem(f"no other node can take it: {names(obstacles)}", "let others take it, or set None and restart it")


def _blind_to_nodes(cluster: Cluster) -> bool:
    return any(more_may_exist(cluster, NODE))


def _source_model(vmi: Object, cluster: Cluster, node: str) -> str | None:
    """Return the host model that a ``host-model`` VMI got from its node and that its target must support."""
    if vmi.at("spec", "domain", "cpu", "model").value != configuration.HOST_MODEL:
        return None
    return min(cpu_models.host_models(cluster).get(node, ()), default=None)


# --- the forecast --------------------------------------------------------------------------------------------------


class VmOutcome(enum.StrEnum):
    """The effect of a drain on a VM, worst first."""

    BLOCKS = "blocks the drain"
    STOPS = "stops for good"
    UNKNOWN = "unknown"
    RESTARTS = "restarts elsewhere"
    MIGRATES = "migrates"


@dataclass(frozen=True, slots=True)
class Forecast:
    """The effect of a drain on one VM, its reason and the remedy (empty: none needed)."""

    vmi: Object
    outcome: VmOutcome
    reason: str
    remedy: str = ""


def forecast(vmi: Object, cluster: Cluster) -> Forecast:
    """Return what a drain of its node would do to the VMI now. Never raises: ``UNKNOWN`` if data is missing."""
    try:
        return _forecast(vmi, cluster)
    except Unseen as unseen:
        return Forecast(vmi, VmOutcome.UNKNOWN, f"cannot see {unseen.what}", "let virt-admit read it")


def _forecast(vmi: Object, cluster: Cluster) -> Forecast:
    if vmi.deleted:
        return _shut_down(vmi, cluster, "it is being stopped already")
    said = effective.strategy(vmi, cluster)
    match lifecycle.eviction(said.value, vmis.migratable(vmi)):
        case Eviction.REFUSED:
            return Forecast(
                vmi, VmOutcome.BLOCKS, f"{said.phrase}, but cannot migrate: {vmis.blocking_reason(vmi)}", _repair(vmi)
            )
        case Eviction.WAITS:
            return Forecast(
                vmi,
                VmOutcome.BLOCKS,
                f"{said.phrase}: something outside KubeVirt has to move it",
                "see that its controller acts on status.evacuationNodeName, or stop it",
            )
        case Eviction.MIGRATES:
            trouble = no_target(vmi, cluster)
            if trouble is not None:
                return Forecast(vmi, VmOutcome.BLOCKS, f"{said.phrase}, but {trouble.reason}", trouble.remedy)
            return Forecast(vmi, VmOutcome.MIGRATES, f"{said.phrase}, LiveMigratable")
    budget = disruption_budgets.blocking(vmi, cluster)
    if budget is not None:
        remedy = "write an integer minAvailable" if disruption_budgets.needs_scale(budget) else "loosen it"
        reason = f"PodDisruptionBudget {budget.name} forbids the eviction of its pod"
        return Forecast(vmi, VmOutcome.BLOCKS, reason, f"{remedy}, or delete it during the drain")
    hindered = f", cannot migrate: {vmis.blocking_reason(vmi)}" if said.value == "LiveMigrateIfPossible" else ""
    return _shut_down(vmi, cluster, f"{said.phrase}{hindered}")


def _repair(vmi: Object) -> str:
    if vmis.migratable(vmi) is None:
        return "wait until KubeVirt has reported LiveMigratable"
    return "repair that, or set LiveMigrateIfPossible or None and restart it, or stop it"


def _shut_down(vmi: Object, cluster: Cluster, why: str) -> Forecast:
    after = vmis.comes_back(vmi, cluster)
    if not after.comes:
        return Forecast(vmi, VmOutcome.STOPS, f"{why}; {after.why}", after.remedy)
    trouble = nowhere_to_go(vmi, cluster, moves=False)
    if trouble is not None:
        return Forecast(vmi, VmOutcome.RESTARTS, f"{why}; {after.why}, but only later: {trouble.reason}")
    return Forecast(vmi, VmOutcome.RESTARTS, f"{why}; {after.why}")
