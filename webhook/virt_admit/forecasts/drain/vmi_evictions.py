"""KubeVirt's reaction to the eviction of a VM: the facts that it published on the running VMI."""

from __future__ import annotations

import enum
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.forecasts.placement import permanent_constraints
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, gather, unlisted
from virt_admit.model.kubernetes.kinds import POD, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import (
    disruption_budgets,
    expand,
    lifecycle,
    migratability,
    migrations,
    vmis,
    vms,
)
from virt_admit.model.kubevirt.instances.expand import Strategy
from virt_admit.model.kubevirt.instances.lifecycle import Eviction
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.lookups import ReviewCache
from virt_admit.model.problems import Problem, ProblemCause, ProblemId

EVICTION_READS: Final = union(
    vmis.READS, expand.STRATEGY_READS, disruption_budgets.READS, changed_disks.DISK_READS
)
"""The fields that ``evictions`` reads."""

READS: Final = union(
    {VMI: ("spec",)},
    EVICTION_READS,
    vmis.OWNER_READS,
    migrations.READS,
    permanent_constraints.READS,
)
"""The fields that decide whether and how a VM leaves its node."""

# --- objects that are not running yet -------------------------------------------------------------


def awaits_migration(obj: Object, facts: ReviewCache) -> bool:
    """Whether a drain would wait for the VMI of an object to migrate.

    This is the case if its strategy is LiveMigrate, or LiveMigrateIfPossible and nothing known
    rules out a migration.

    Raises:
        Unseen: the strategy is the cluster's, which is unknown.
    """
    wanted = facts.of(expand.strategy, obj).value
    if wanted == "LiveMigrateIfPossible":
        return facts.of(migratability.assess, obj).migratable is not migratability.Migratable.NO
    return wanted == "LiveMigrate"


# --- evictions ------------------------------------------------------------------------------------


class Effect(enum.StrEnum):
    """What the eviction of a VMI's pod leads to, before it is asked where the VM could go."""

    REFUSED = "KubeVirt refuses the eviction forever"
    EXTERNAL = "a controller outside KubeVirt has to act"
    ATTENDED = "a known controller outside KubeVirt acts, if it runs"
    BUDGET = "a PodDisruptionBudget refuses the eviction"
    NO_MIGRATION = "KubeVirt starts no migration"
    MIGRATES = "KubeVirt migrates it"
    SHUTS_DOWN = "the guest is shut down"


BLOCKING: Final = (Effect.REFUSED, Effect.EXTERNAL, Effect.BUDGET, Effect.NO_MIGRATION)
"""The effects with which a drain does not end."""


class Reaction(NamedTuple):
    """What the eviction of one VMI leads to, why, and what helps (empty:
    nothing has to be done).
    """

    effect: Effect
    strategy: Strategy
    """The eviction strategy in force, and where it comes from."""
    reason: str
    remedy: str = ""
    cause: str = ProblemCause.NOT_REPORTED
    problem: ProblemId | None = None
    """The id of the problem of another object. None: it is the VM's."""


def eviction(vmi: Object, cluster: Cluster) -> Eviction:
    """Return what virt-api answers to an eviction of the VMI's pod.

    Raises:
        Unseen: see ``expand.strategy``.
    """
    return lifecycle.eviction(expand.strategy(vmi, cluster).value, vmis.migratable(vmi))


def reaction(vmi: Object, cluster: Cluster) -> Reaction:
    """Return how KubeVirt and the Eviction API react to an eviction of the VMI's pod now.

    ``drain`` and the rules ask this alone, so that they give the same answer.

    Raises:
        Unseen: see ``expand.strategy``.
    """
    said = expand.strategy(vmi, cluster)
    match lifecycle.eviction(said.value, vmis.migratable(vmi)):
        case Eviction.REFUSED:
            reason = f"{said.phrase}, but cannot migrate: {vmis.blocking_reason(vmi)}"
            return Reaction(Effect.REFUSED, said, reason, _repair(vmi, cluster))
        case Eviction.WAITS if vms.has_mover(vmi, vmi.labels):
            return _attended(vmi, said, cluster)
        case Eviction.WAITS:
            return _unattended(vmi, said)
        case Eviction.MIGRATES:
            limit = _no_migration(cluster)
            if limit is not None:
                reason = f"{said.phrase}, but {limit.reason}"
                return Reaction(
                    Effect.NO_MIGRATION, said, reason, limit.remedy, limit.cause, limit.id
                )
            return Reaction(Effect.MIGRATES, said, said.phrase)
    refused = disruption_budgets.blocking(vmi, cluster)
    if refused is not None:
        return Reaction(
            Effect.BUDGET, said, refused.reason, refused.remedy, refused.cause, refused.id
        )
    hindered = (
        f", cannot migrate: {vmis.blocking_reason(vmi)}"
        if said.value == "LiveMigrateIfPossible"
        else ""
    )
    return Reaction(Effect.SHUTS_DOWN, said, f"{said.phrase}{hindered}")


def _unattended(vmi: Object, said: Strategy) -> Reaction:
    """Return that nothing known moves a VMI. A controller may run outside the cluster.

    A migration by hand asks for the condition LiveMigratable alone, not for the strategy
    (kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/
    migration-create-admitter.go#Admit).
    """
    reason = (
        f"{said.phrase}: something outside KubeVirt has to move it, but no label or owner of it "
        "names a known controller"
    )
    by_hand = f"; or {MIGRATE_BY_HAND}" if vmis.migratable(vmi) else ""
    remedy = (
        f"see that its controller acts on status.evacuationNodeName{_DELETE}{by_hand}, or, as a "
        "decision, stop it"
    )
    return Reaction(Effect.EXTERNAL, said, reason, remedy, ProblemCause.EXTERNAL)


MIGRATE_BY_HAND: Final = "migrate it by hand"
"""How the remedy of a VM ends that can migrate, before it has a command."""
_DELETE: Final = (
    "; or, as a decision, delete its Machine, if it is a node of a guest cluster and a MachineSet "
    "or control plane replaces it"
)
"""Cluster API drains a node whose Machine is deleted, and deletes the VM after that."""


def _attended(vmi: Object, said: Strategy, cluster: Cluster) -> Reaction:
    """Return what becomes of a VMI that a controller outside KubeVirt moves:
    one that is marked for long is not moved.
    """
    who = vms.mover_name(vmi.labels)
    marked = vmi.at("status", "evacuationNodeName").text
    age = clock.since(vmi.condition("EvictionRequested")["lastTransitionTime"].text, cluster)
    if (
        not marked
        or marked != vmi.at("status", "nodeName").text
        or age is None
        or age < _MOVED_WITHIN
    ):
        # files alone have no such VM
        from virt_admit.model.node_updates.operators import paused_clusters  # noqa: PLC0415

        paused = paused_clusters.of_vmi(vmi, cluster)
        # what Cluster API does after the VMI is gone waits, and the provider may wait as well
        if paused is not None:
            reason = (
                f"{said.phrase}: {who} has to move it, but {paused.title}; whether it does so all "
                "the same is not known"
            )
            return Reaction(Effect.ATTENDED, said, reason, paused.remedy)
        pod = _ready_mover(who, cluster)
        runs = (
            f"its pod {pod.full_name} is ready, and whether it does so is not known"
            if pod is not None
            else ""
        )
        reason = f"{said.phrase}: {who} has to move it; {runs or 'whether that runs is not known'}"
        before = "" if marked else "before a drain of its node, "
        remedy = f"{before}see that its controller acts on status.evacuationNodeName"
        return Reaction(Effect.ATTENDED, said, reason, remedy)
    asked = f"although its eviction was asked for {clock.duration(age)} ago"
    reason = f"{said.phrase}: {who} has to move it, and has not done so {asked}"
    where = (
        "" if unlisted(cluster, POD) or _mover_pods(cluster) else ". It has no pod in this cluster"
    )
    remedy = (
        "repair that controller, and migrate the VM by hand until then; or drain its guest node "
        "and delete the VMI"
    )
    return Reaction(Effect.EXTERNAL, said, f"{reason}{where}", remedy, ProblemCause.MOVER_IDLE)


_MOVED_WITHIN: Final = timedelta(minutes=30)
"""Cluster API provider KubeVirt drains a guest node for at most 10 minutes."""
_MOVERS: Final = ("capk-", "capi-provider", "machine-controller", "kubermatic-")


@cached
def _mover_pods(cluster: Cluster) -> tuple[Object, ...]:
    """Return the pods that may be such a controller."""
    return tuple(pod for pod in cluster.known(POD) if pod.name.startswith(_MOVERS))


def no_mover_here(cluster: Cluster) -> bool:
    """Return whether no pod of a known controller runs in this cluster."""
    return not unlisted(cluster, POD) and not _mover_pods(cluster)


def _ready_mover(who: str, cluster: Cluster) -> Object | None:
    """Return a ready pod of Cluster API provider KubeVirt, if that moves a VM; None: none is
    known."""
    known = _mover_pods(cluster) if "(CAPK)" in who else ()
    pods = (pod for pod in known if pod.name.startswith(_MOVERS[0]))
    return next((pod for pod in pods if pod.is_true("Ready")), None)


def _no_migration(cluster: Cluster) -> Problem | None:
    """Return why no migration starts; None: they start, or that is unknown,
    which the outcome of a drain says.
    """
    # `check` of VMs does not need it
    from virt_admit.model.kubevirt.settings import parallel_migrations  # noqa: PLC0415

    try:
        return cluster.cached(parallel_migrations.none_starts)
    except Unseen:
        return None


def _repair(vmi: Object, cluster: Cluster) -> str:
    if vmis.migratable(vmi) is None:
        return "wait until KubeVirt has reported LiveMigratable"
    kept = changed_disks.brief(vmi, cluster).rstrip(".")
    accepted = versions.shut_down_strategies(cluster)
    return kept or f"repair that, or set {accepted} and restart it, or stop it"


def demand_conditions(vmi: Object, strategy: Strategy) -> None:
    """Raise ``Unseen`` if a VMI that may migrate has no conditions:
    a snapshot may leave them out.
    """
    migrates = strategy.value in ("LiveMigrate", "LiveMigrateIfPossible")
    if (
        migrates
        and not vmi.at("status", "conditions").present
        and vmi.at("status", "phase").present
    ):
        raise Unseen(f"status.conditions of {VMI} {vmi.full_name}")


class Evictions(NamedTuple):
    """The effect of an eviction on each VMI of a node that is not being stopped already."""

    reactions: tuple[tuple[Object, Reaction], ...] = ()
    unseen: tuple[Unseen, ...] = ()
    """What could not be read."""
    strategies: str = ""
    """The eviction strategies with which drains shut down what cannot migrate."""

    def having(self, *wanted: Effect) -> list[Object]:
        """Return the VMIs whose eviction has one of these effects."""
        return [vmi for vmi, found in self.reactions if found.effect in wanted]

    @property
    def blocking(self) -> list[Object]:
        """The VMIs for which a drain never completes."""
        return self.having(*BLOCKING)

    @property
    def remedy(self) -> str:
        """What helps the VMIs that block, as a sentence; empty if none does."""
        remedies = [found.remedy for _, found in self.reactions if found.effect in BLOCKING]
        first = next(
            (each for each in remedies if each.lower().startswith(changed_disks.DO_NOT)), ""
        )
        if not first and self.having(Effect.REFUSED, Effect.EXTERNAL):
            return f"Set {self.strategies} and restart them, or stop them."
        first = first or next(iter(remedies), "")
        return f"{first[0].upper()}{first[1:]}." if first else ""


def evictions(cluster: Cluster, node: str) -> Evictions:
    """Return the effects of evictions on a node."""
    reactions: list[tuple[Object, Reaction]] = []
    blind: list[Unseen] = []
    found, unseen = gather(vmis.on_node(cluster, node))
    for vmi in found:
        if not vmi.deleted:
            try:
                reactions.append((vmi, reaction(vmi, cluster)))
            except Unseen as one:
                blind.append(one)
    unread = (*blind, Unseen(unseen)) if unseen else tuple(blind)
    return Evictions(tuple(reactions), unread, versions.shut_down_strategies(cluster))
