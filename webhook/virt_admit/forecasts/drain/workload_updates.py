"""How running VMs get a new launcher after an update of KubeVirt.

The controller migrates an outdated VMI if ``LiveMigrate`` is listed and the VMI can migrate.
Otherwise it evicts the VMI if ``Evict`` is listed. Otherwise it does nothing. It evicts through the
eviction API, so eviction strategies apply. Source:
kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/workload-updater.go.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, NamedTuple

from virt_admit.forecasts.drain import ending_namespaces, vm_problems, vmi_evictions
from virt_admit.forecasts.drain.room import unbound_claims
from virt_admit.forecasts.drain.vmi_evictions import Effect
from virt_admit.forecasts.placement import no_target, quotas
from virt_admit.forecasts.placement.running_launchers import COPIES_TOLERATIONS
from virt_admit.forecasts.placement.starts import priority_classes
from virt_admit.model import messages
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, each
from virt_admit.model.kubernetes.kinds import HCO, VMI
from virt_admit.model.kubernetes.objects import FINAL_PHASES, Field, Object
from virt_admit.model.kubevirt.instances import (
    disruption_budgets,
    expand,
    lifecycle,
    migrations,
    tsc,
    vmis,
)
from virt_admit.model.kubevirt.instances.lifecycle import Eviction
from virt_admit.model.kubevirt.launcher import missing_network_info
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.kubevirt.settings.configuration import Setting, setting
from virt_admit.model.kubevirt.settings.versions import (
    Feature,
    Version,
    kubevirt_version,
    parse_version,
)
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.node_labels import UNATTACHED

LIVE_MIGRATE: Final = "LiveMigrate"
EVICT: Final = "Evict"
METHODS: Final = (LIVE_MIGRATE, EVICT)

# --- what is configured ---------------------------------------------------------------------------


def block(obj: Object) -> Field:
    """Return the block of update settings of a HyperConverged or KubeVirt."""
    return setting(obj, Setting.UPDATES)


def listed(obj: Object) -> Field:
    """Return the field of the list of methods, which may be absent."""
    return block(obj)["workloadUpdateMethods"]


def methods(obj: Object) -> frozenset[str]:
    """Return the effective methods, without names that the controller does not know and skips.

    HyperConverged without a list means ``LiveMigrate``, and only an empty list disables updates.
    KubeVirt without a list does nothing.
    """
    field = listed(obj)
    if not field.is_list and kinds.of(obj) is HCO:
        return frozenset((LIVE_MIGRATE,))
    return frozenset(item.value for item in field.items() if item.value in METHODS)


def batch(obj: Object) -> int:
    """Return how many VMs a HyperConverged or KubeVirt evicts at once (…#sync)."""
    size = block(obj)["batchEvictionSize"].integer
    return _BATCH if size is None else size


_BATCH: Final = 10


def in_force(cluster: Cluster) -> tuple[str, ...] | None:
    """Return the methods in force; None: unknown.

    HyperConverged, where it exists, writes those of KubeVirt.
    """
    for read in (configuration.hyperconverged, configuration.kubevirt):
        try:
            found = read(cluster)
        except Unseen:
            continue
        if found is not None:
            return tuple(sorted(methods(found)))
    return None


def did_you_mean(word: object) -> str | None:
    """Return the method that an unknown word probably means."""
    # the old name, still in comments of KubeVirt
    return messages.did_you_mean(word, METHODS, {"shutdown": EVICT})


# --- the VMIs that it is about --------------------------------------------------------------------


@cached
def running(cluster: Cluster) -> Sequence[Object]:
    """Return the known running VMIs, sorted by name."""
    return [vmi for _, vmi in sorted(filter(None, each(cluster, VMI, _named)), key=itemgetter(0))]


@cached
def not_migratable(cluster: Cluster) -> Sequence[Object]:
    """Return the running VMIs that KubeVirt reports as not migratable,
    without those not reported yet.
    """
    return tuple(vmi for vmi in running(cluster) if vmis.migratable(vmi) is False)


class Evicted(NamedTuple):
    """The effect of an eviction on a running VMI."""

    vmi: Object
    migratable: bool | None
    """None: not known yet."""
    eviction: Eviction


def evictions(obj: Object, cluster: Cluster) -> Iterator[Evicted]:
    """Yield the effect of evictions on the running VMIs if this HyperConverged or KubeVirt is
    applied, by name.

    VMIs are left out if the effect depends on a condition that is not reported yet.
    """
    inherited = configuration.eviction_strategy(cluster, obj).value or ""
    for vmi, migratable, own in cluster.cached(_strategies):
        strategy = inherited if own is None else own
        if migratable is None and lifecycle.eviction(strategy, True) is not lifecycle.eviction(
            strategy, False
        ):
            continue
        yield Evicted(vmi, migratable, lifecycle.eviction(strategy, migratable))


def _strategies(cluster: Cluster) -> Sequence[tuple[Object, bool | None, str | None]]:
    """Return the running VMIs, whether they can migrate, and their own eviction strategies."""
    found = []
    for vmi in running(cluster):
        own = vmi.at("spec", "evictionStrategy")
        found.append((vmi, vmis.migratable(vmi), own.text or "" if own.present else None))
    return found


def outdated(cluster: Cluster) -> Sequence[Object]:
    """Return the running VMIs whose launcher is older than the running KubeVirt."""
    return tuple(vmi for vmi in running(cluster) if vmis.OUTDATED in vmi.labels)


def changed(cluster: Cluster) -> int:
    """Return how many running VMIs KubeVirt counts as outdated too, as a change of them needs a
    migration that has not begun (workload-updater.go#doesRequireMigration).
    """
    return sum(map(_is_changed, running(cluster)))


def _is_changed(vmi: Object) -> bool:
    state = vmi.at("status", "migrationState")
    migrates = state.is_map and state["completed"].boolean is not True
    return vmis.OUTDATED not in vmi.labels and migrations.is_changed(vmi) and not migrates


def left_to_migrate(cluster: Cluster) -> bool:
    """Return whether an update of KubeVirt still has VMIs to migrate."""
    return any(vmis.migratable(vmi) for vmi in outdated(cluster))


def moving(cluster: Cluster) -> Sequence[Object]:
    """Return the outdated VMIs that are migrating now,
    without those whose migration still waits for a place.
    """
    return tuple(
        vmi for vmi in outdated(cluster) if any(map(_is_moving, migrations.own(vmi, cluster)))
    )


def _is_moving(migration: Object) -> bool:
    return migration.at("status", "phase").text not in (None, "", "Pending", *FINAL_PHASES)


def _named(vmi: Object) -> tuple[tuple[str, str], Object] | None:
    ending = vmi.condition("Ready")["reason"].text == "PodTerminating"
    return ((vmi.namespace, vmi.name), vmi) if vmis.running(vmi) and not ending else None


def after_shutdown(vmi: Object, cluster: Cluster) -> vmis.Return | Unseen:
    """Return whether a running VMI starts again after a clean shutdown,
    or what could not be read.
    """
    return cluster.cached(_after_shutdown)[vmi.namespace, vmi.name]


def _after_shutdown(cluster: Cluster) -> Mapping[tuple[str, str], vmis.Return | Unseen]:
    return {(vmi.namespace, vmi.name): _comes_back(vmi, cluster) for vmi in running(cluster)}


def _comes_back(vmi: Object, cluster: Cluster) -> vmis.Return | Unseen:
    try:
        return vmis.comes_back(vmi, cluster)
    except Unseen as unseen:
        return unseen


# --- how an update reaches one of them ------------------------------------------------------------


class Reach(enum.StrEnum):
    """How an update of KubeVirt reaches a running VMI."""

    MIGRATED = "migrated"
    RESTARTED = "evicted and restarted"
    STOPPED = "evicted and not restarted"
    RETRIED = "retried for ever"  # a key of the JSON output, hence unchanged
    NEVER = "never"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Update:
    """How a workload update reaches one VMI, and why."""

    vmi: Object
    reach: Reach
    reason: str

    @property
    def by_release(self) -> bool:
        """Whether it migrates only because the next release is another one."""
        return self.reason in (ACCEPTED, ANNOTATED, TOLERATED)


def update(vmi: Object, methods: Collection[str], cluster: Cluster) -> Update:
    """Return how an update reaches a running VMI with these update methods (``LiveMigrate``,
    ``Evict``).

    A migratable VMI migrates if that is listed. Otherwise it is evicted if that is listed, and its
    eviction strategy decides. Never raises: the result is ``UNKNOWN`` if data is missing or the
    condition is not reported yet.
    """
    try:
        return _update(vmi, methods, cluster)
    except Unseen as unseen:
        return Update(vmi, Reach.UNKNOWN, f"cannot see {unseen.what}")


def _update(vmi: Object, methods: Collection[str], cluster: Cluster) -> Update:
    can = vmis.migratable(vmi)
    if can is None:
        return Update(vmi, Reach.UNKNOWN, vmis.blocking_reason(vmi))
    if can and LIVE_MIGRATE in methods:
        return _migrated(vmi, cluster)
    if EVICT not in methods:
        return Update(
            vmi,
            Reach.NEVER,
            f"no update method is listed, so its next {'migration or ' * can}restart updates it"
            if can or not methods
            else f"it cannot migrate: {vmis.blocking_reason(vmi)}",
        )
    said = expand.strategy(vmi, cluster)
    match lifecycle.eviction(said.value, can):
        case Eviction.MIGRATES:
            return _migrated(vmi, cluster)
        case Eviction.REFUSED:
            return Update(
                vmi,
                Reach.NEVER,
                f"{said.phrase} refuses the eviction, and it cannot migrate: "
                f"{vmis.blocking_reason(vmi)}",
            )
        case Eviction.WAITS:
            return _moved_outside(vmi, cluster)
    refused = disruption_budgets.blocking(vmi, cluster)
    if refused is not None:
        return Update(vmi, Reach.NEVER, refused.reason)
    after = vmis.comes_back(vmi, cluster)
    return Update(vmi, Reach.RESTARTED if after.comes else Reach.STOPPED, after.why)


def _moved_outside(vmi: Object, cluster: Cluster) -> Update:
    """Return how an update reaches a VMI with External, by what a drain says of its controller."""
    found = vm_problems.with_mover(vmi_evictions.reaction(vmi, cluster), vmi, cluster)
    if found.effect is Effect.SHUTS_DOWN:
        after = vmis.comes_back(vmi, cluster)
        reach = Reach.RESTARTED if after.comes else Reach.STOPPED
        return Update(vmi, reach, f"{found.reason}; {after.why}")
    reach = Reach.UNKNOWN if found.effect is Effect.ATTENDED else Reach.NEVER
    return Update(vmi, reach, found.reason)


TOLERATED: Final = (
    f"by {COPIES_TOLERATIONS} or later, whose pods that attach volumes have the tolerations of the "
    "VM"
)
ANNOTATED: Final = (
    f"by {Feature.TARGET_NETWORK_INFO.since} or later, which gives its target pod the annotation "
    "of its interface"
)
ACCEPTED: Final = f"by {Feature.TSC_TOLERANCE.since} or later, which lets other nodes take it"


def _migrated(vmi: Object, cluster: Cluster) -> Update:
    trouble = unbound_claims.never_completes(vmi, cluster) or _refused(vmi, cluster)
    if trouble is None:
        return Update(vmi, Reach.MIGRATED, "LiveMigratable")
    if trouble.cause is ProblemCause.NO_TARGET:
        gap = no_target.frequency_gap(vmi, cluster)
        if gap is not None and gap.updates and not _keeps_its_ways(cluster):
            return Update(vmi, Reach.MIGRATED, ACCEPTED)
        if UNATTACHED in trouble.reason and not any(
            release < COPIES_TOLERATIONS for release in _next_releases(cluster)
        ):
            return Update(vmi, Reach.MIGRATED, TOLERATED)
    if missing_network_info.is_cause(trouble) and not any(
        release < Feature.TARGET_NETWORK_INFO.since for release in _next_releases(cluster)
    ):  # the virt-controller of the next release makes the target pod
        trouble = no_target.nowhere_to_go(vmi, cluster)
        if trouble is None:
            return Update(vmi, Reach.MIGRATED, ANNOTATED)
    return Update(vmi, Reach.RETRIED, trouble.reason)


def _refused(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why the API server refuses the second pod of a VMI, unless a migration has it already.

    Raises:
        Unseen: a LimitRange, a quota or a priority class may refuse it.
    """
    if any(map(_is_moving, migrations.own(vmi, cluster))):
        return None
    return (
        ending_namespaces.problem(vmi, cluster)
        or priority_classes.problem(vmi, cluster)
        or quotas.refusal(vmi, cluster)
    )


@cached
def _keeps_its_ways(cluster: Cluster) -> bool:
    """Return whether an update is under way to a release that compares TSC frequencies exactly."""
    return any(map(tsc.wants_equal, _next_releases(cluster)))


def _next_releases(cluster: Cluster) -> Iterator[Version]:
    """Yield the releases to which an update is under way."""
    found = configuration.known_or_none(configuration.kubevirt, cluster)
    said = found["status"] if found is not None else Field(None)
    runs = kubevirt_version(cluster)
    goes_to = (parse_version(said[key].text) for key in _GOES_TO)
    yield from (to for to in goes_to if to is not None and to != runs)


_GOES_TO: Final = ("targetKubeVirtVersion", "operatorVersion")
"""The fields of the status of KubeVirt with the release that virt-operator installs."""
