"""KubeVirt's reaction to the eviction of a VM: the facts that it published on the running VMI."""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.forecasts.placement import permanent_constraints
from virt_admit.model.kubernetes.cluster import Cluster, ReviewCache, Unseen, gather
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import disruption_budgets, expand, lifecycle, migratability, migrations, vmis
from virt_admit.model.kubevirt.instances.lifecycle import Eviction

READS: Final = union(
    {VMI: ("spec",)},
    vmis.READS,
    vmis.OWNER_READS,
    migrations.READS,
    disruption_budgets.READS,
    permanent_constraints.READS,
    expand.STRATEGY_READS,
)
"""The fields that the forecast reads."""

# --- objects that are not running yet -------------------------------------------------------------------------------


def awaits_migration(obj: Object, facts: ReviewCache) -> bool:
    """Whether a drain would wait for the VMI of an object to migrate.

    This is the case if its strategy is LiveMigrate, or LiveMigrateIfPossible and nothing known rules out a migration.

    Raises:
        Unseen: the strategy is the cluster's, which is unknown.
    """
    wanted = facts.of(expand.strategy, obj).value
    if wanted == "LiveMigrateIfPossible":
        return facts.of(migratability.assess, obj).migratable is not migratability.Migratable.NO
    return wanted == "LiveMigrate"


# --- evictions -----------------------------------------------------------------------------------------------------


def eviction(vmi: Object, cluster: Cluster) -> Eviction:
    """Return KubeVirt's reaction to an eviction of the VMI's pod.

    Raises:
        Unseen: see ``effective.strategy``.
    """
    return lifecycle.eviction(expand.strategy(vmi, cluster).value, vmis.migratable(vmi))


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
