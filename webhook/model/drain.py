"""What a drain of a node does to the VMs on it, and what a workload update does: from facts where there are some.

A fact is what KubeVirt published on the running VMI: its frozen eviction strategy, its condition ``LiveMigratable``,
migrations that failed (virtual-machine.md 8, 9; node-and-machine-health.md 12). Where a migration would go to is
inferred from labels and taints of the nodes, for KubeVirt does not look at them.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from webhook.model import (
    configuration,
    cpu_models,
    effective,
    lifecycle,
    migratability,
    migrations,
    placement,
    selectors,
    virt,
)
from webhook.model.cluster import Cluster, Unseen, gather, more_may_exist
from webhook.model.kinds import NODE, PDB, VM, VMI, VMIM
from webhook.model.lifecycle import Eviction, Then
from webhook.model.objects import Object
from webhook.model.texts import names

READS: Final = (VMI, VM, VMIM, PDB, *placement.READS, *effective.STRATEGY_READS)
"""What the forecast looks up."""

# --- objects that are not running yet -------------------------------------------------------------------------------


def awaits_migration(obj: Object, cluster: Cluster) -> bool:
    """Whether a drain would wait for the VMI of an object to migrate, as KubeVirt sees it: its strategy is
    LiveMigrate, or LiveMigrateIfPossible and nothing is known that rules a migration out.

    Raises:
        Unseen: the strategy is the cluster's, and that is unknown.
    """
    wanted = effective.strategy(obj, cluster).value
    if wanted == "LiveMigrateIfPossible":
        return migratability.verdict(obj, cluster).answer is not migratability.Answer.NO
    return wanted == "LiveMigrate"


# --- facts of a VMI ------------------------------------------------------------------------------------------------


def running(vmi: Object) -> bool:
    """Whether the guest runs and nobody is stopping it."""
    return vmi.at("status", "phase").value == "Running" and not vmi.deleted


def migratable(vmi: Object) -> bool | None:
    """The condition ``LiveMigratable``; None: not known yet."""
    return {"True": True, "False": False}.get(vmi.condition("LiveMigratable")["status"].text or "")


def hindrance(vmi: Object) -> str:
    """Why a VMI that is not known to be migratable cannot migrate: the reason that KubeVirt gives."""
    condition = vmi.condition("LiveMigratable")
    if migratable(vmi) is None:
        return "LiveMigratable not reported yet"
    return condition["reason"].text or "LiveMigratable False"


def eviction(vmi: Object, cluster: Cluster, subject: Object | None = None) -> Eviction:
    """What KubeVirt does if the VMI's pod is evicted.

    Raises:
        Unseen: as ``effective.strategy``.
    """
    return lifecycle.eviction(effective.strategy(vmi, cluster, subject).value, migratable(vmi))


def owner(vmi: Object, kind: str) -> str | None:
    """The name of the owner of that kind, or None."""
    owners = vmi.metadata["ownerReferences"]
    for each in owners.value if owners.is_list else ():  # read for every VMI of a cluster, hence without fields
        if isinstance(each, dict) and each.get("kind") == kind:
            name = each.get("name")
            return name if isinstance(name, str) else None
    return None


def owner_vm(vmi: Object, cluster: Cluster) -> Object | None:
    """The VM that the VMI is an instance of; None if it has none, or it is gone.

    Raises:
        Unseen: it has one that cannot be seen.
    """
    name = owner(vmi, "VirtualMachine")
    return None if name is None else cluster.get(VM, virt.home(vmi), name)


class Return(NamedTuple):
    """Whether something starts a VM again, and why."""

    comes: bool
    why: str
    remedy: str = ""
    """What would make it come back."""


def comes_back(vmi: Object, cluster: Cluster, *, lost: bool = False) -> Return:
    """Whether the VM runs again after a clean shutdown, such as that of a drain, or after its node was ``lost`` (9.2).

    Raises:
        Unseen: its VM, or what its VM wants, cannot be told.
    """
    if owner(vmi, "VirtualMachineInstanceReplicaSet"):
        return Return(True, "its replica set makes another")
    name = owner(vmi, "VirtualMachine")
    if name is None and vmi.controller is not None:
        raise Unseen(f"what {vmi.controller['kind'].text} {vmi.controller['name'].text} does with its VMI")
    if name is None:
        return Return(False, "no VM owns it", "make it a VirtualMachine")
    vm = owner_vm(vmi, cluster)
    if vm is None or vm.deleted:
        return Return(False, f"its VM {name} is gone" if vm is None else "its VM is being deleted")
    wants = virt.run_strategy(virt.vm_spec(vm))
    if wants is None or wants not in lifecycle.RUN_STRATEGY:
        raise Unseen(f"the run strategy of {VM} {vm.full_name}")
    outcomes = lifecycle.RUN_STRATEGY[wants]
    if (outcomes.node_lost if lost else outcomes.drain) is Then.RESTARTED:
        return Return(True, f"runStrategy {wants}")
    return Return(False, f"runStrategy {wants}", "set runStrategy Always, or start it by hand afterwards")


# --- which VMIs are on a node --------------------------------------------------------------------------------------


class _OnNodes(NamedTuple):
    by_node: Mapping[str, tuple[Object, ...]]
    unseen: str
    """What there may be more of; empty: nothing."""


def on_node(cluster: Cluster, node: str) -> Iterator[Object]:
    """The VMIs that have not ended and run on a node; where they are moving, the node that they come from.

    Raises:
        Unseen: after those that are known, if there may be more.
    """
    found = cluster.derive(_on_nodes)
    yield from found.by_node.get(node, ())
    if found.unseen:
        raise Unseen(found.unseen)


def occupied(cluster: Cluster) -> Collection[str]:
    """The names of the nodes on which some known VMI runs."""
    return cluster.derive(_on_nodes).by_node.keys()


def _on_nodes(cluster: Cluster) -> _OnNodes:
    by_node: dict[str, list[Object]] = {}
    unseen = ""
    try:
        for vmi in cluster.list(VMI):
            node = vmi.at("status", "nodeName").text
            if node and vmi.at("status", "phase").text not in migrations.FINAL_PHASES:
                by_node.setdefault(node, []).append(vmi)
    except Unseen as blind:
        unseen = blind.what
    return _OnNodes({node: tuple(vmis) for node, vmis in by_node.items()}, unseen)


class Evictions(NamedTuple):
    """What an eviction does to each VMI on a node that nobody is stopping already."""

    answers: tuple[tuple[Object, Eviction], ...] = ()
    unseen: tuple[Unseen, ...] = ()
    """What of it could not be seen."""

    def having(self, *wanted: Eviction) -> list[Object]:
        """The VMIs whose eviction ends in one of these ways."""
        return [vmi for vmi, answer in self.answers if answer in wanted]

    @property
    def blocking(self) -> list[Object]:
        """The VMIs for which a drain waits in vain."""
        return self.having(Eviction.REFUSED, Eviction.WAITS)


def evictions(cluster: Cluster, node: str) -> Evictions:
    """What evictions do on a node."""
    answers: list[tuple[Object, Eviction]] = []
    blind: list[Unseen] = []
    vmis, unseen = gather(on_node(cluster, node))
    for vmi in vmis:
        if not vmi.deleted:
            try:
                answers.append((vmi, eviction(vmi, cluster)))
            except Unseen as one:
                blind.append(one)
    return Evictions(tuple(answers), (*blind, Unseen(unseen)) if unseen else tuple(blind))


# --- where a migration goes to, and who keeps a pod from going -----------------------------------------------------


class Trouble(NamedTuple):
    """Why something does not happen, and what to do."""

    reason: str
    remedy: str


def no_target(vmi: Object, cluster: Cluster) -> Trouble | None:
    """Why the migration of a VMI that KubeVirt calls migratable will not come to an end; None: it will, or nothing tells.

    Such a migration is given up after five minutes and repeated for ever.
    """
    failed = migrations.failed_in_a_row(vmi, cluster)
    if len(failed) >= migrations.RETRY_LOOP:
        reason = f"its last {len(failed)} migrations failed, so will the next"
        return Trouble(reason, f"see why migration {failed[-1].name} failed")
    return nowhere_to_go(vmi, cluster, moves=True)


def nowhere_to_go(vmi: Object, cluster: Cluster, *, moves: bool) -> Trouble | None:
    """Why no other node can run a VMI just now; None: one can, or nothing tells, for not every node can be seen.

    ``moves``: it migrates; a VMI with ``host-model`` is then bound to what its node's processor can do.
    """
    try:
        places = placement.places(cluster)
    except Unseen:
        return None
    if cluster.derive(_blind_to_nodes):
        return None
    here = vmi.at("status", "nodeName").text or ""
    others = [place for place in places if place.name != here]
    if not others:
        return Trouble("no other node runs KubeVirt", "add one, or set None and restart it") if places else None
    model = _source_model(vmi, cluster, here) if moves else None
    wanted = placement.demand(effective.effective(vmi, cluster), cluster, model)
    busy: list[str] = []
    obstacles: dict[str, None] = {}
    for place in others:
        why = placement.obstacle(wanted, place)
        if why is not None:
            obstacles[why] = None
        elif place.ready:
            return None
        else:
            busy.append(place.name)
    if busy:
        return Trouble(f"no node that could take it is ready: {names(busy)}", "uncordon or repair one of them")
    return Trouble(f"no other node can take it: {names(obstacles)}", "let others take it, or set None and restart it")


def _blind_to_nodes(cluster: Cluster) -> bool:
    return any(more_may_exist(cluster, NODE))


def _source_model(vmi: Object, cluster: Cluster, node: str) -> str | None:
    """The host model that a ``host-model`` VMI took from its node, which its target must be able to run."""
    if vmi.at("spec", "domain", "cpu", "model").value != configuration.HOST_MODEL:
        return None
    return min(cpu_models.host_models(cluster).get(node, ()), default=None)


class _Budget(NamedTuple):
    budget: Object
    selector: selectors.Selector


def launcher_labels(obj: Object) -> Mapping[str, str]:
    """The labels by which others may select the virt-launcher pod of a VMI, or of the VMI that a VM would make
    (pkg/virt-controller/services/template.go)."""
    labels = virt.vmi_template(obj).at("metadata", "labels").texts
    return {**labels, "kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": obj.name}


def users_budget(budget: Object) -> bool:
    """Whether a PodDisruptionBudget is somebody's own, not one that an older KubeVirt made for a VMI."""
    return owner(budget, "VirtualMachineInstance") is None and owner(budget, "VirtualMachineInstanceMigration") is None


def needs_scale(budget: Object) -> bool:
    """Whether a PodDisruptionBudget has a form that asks the pods' owner for its scale, which a VMI has not: then it
    allows no disruption, ever (kubevirt/kubevirt#18063)."""
    least = budget.at("spec", "minAvailable")
    return budget.at("spec", "maxUnavailable").present or (least.text or "").endswith("%")


def forbidding_budget(vmi: Object, cluster: Cluster) -> Object | None:
    """A known PodDisruptionBudget that forbids the eviction of the VMI's pod just now."""
    labels = launcher_labels(vmi)
    for budget, selector in cluster.derive(_budgets).get(virt.home(vmi), ()):
        if selector.matches(labels):
            allowed = budget.at("status", "disruptionsAllowed").integer
            if needs_scale(budget) or (allowed is not None and allowed <= 0):
                return budget
    return None


def _budgets(cluster: Cluster) -> Mapping[str, list[_Budget]]:
    """By namespace. Without a selector a budget covers no pod; an empty one covers all."""
    found: dict[str, list[_Budget]] = {}
    for budget in cluster.known(PDB):
        selector = budget.at("spec", "selector")
        if selector.is_map and users_budget(budget):
            found.setdefault(virt.home(budget), []).append(_Budget(budget, selectors.parse(selector.value)))
    return found


# --- the forecast --------------------------------------------------------------------------------------------------


class Outcome(enum.StrEnum):
    """What a drain of its node does to a VM; the worst first."""

    BLOCKS = "blocks the drain"
    STOPS = "stops for good"
    UNKNOWN = "unknown"
    RESTARTS = "restarts elsewhere"
    MIGRATES = "migrates"


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a drain does to one VM, why, and what to do about it (empty: nothing)."""

    vmi: Object
    outcome: Outcome
    reason: str
    remedy: str = ""


def forecast(vmi: Object, cluster: Cluster) -> Forecast:
    """What a drain of its node would do to the VMI now. Never raises: what cannot be told is ``UNKNOWN``."""
    try:
        return _forecast(vmi, cluster)
    except Unseen as unseen:
        return Forecast(vmi, Outcome.UNKNOWN, f"cannot see {unseen.what}", "let virt-admit read it")


def _forecast(vmi: Object, cluster: Cluster) -> Forecast:
    if vmi.deleted:
        return _shut_down(vmi, cluster, "it is being stopped already")
    said = effective.strategy(vmi, cluster)
    match lifecycle.eviction(said.value, migratable(vmi)):
        case Eviction.REFUSED:
            return Forecast(vmi, Outcome.BLOCKS, f"{said.phrase}, but cannot migrate: {hindrance(vmi)}", _repair(vmi))
        case Eviction.WAITS:
            return Forecast(
                vmi,
                Outcome.BLOCKS,
                f"{said.phrase}: something outside KubeVirt has to move it",
                "see that its controller acts on status.evacuationNodeName, or stop it",
            )
        case Eviction.MIGRATES:
            trouble = no_target(vmi, cluster)
            if trouble is not None:
                return Forecast(vmi, Outcome.BLOCKS, f"{said.phrase}, but {trouble.reason}", trouble.remedy)
            return Forecast(vmi, Outcome.MIGRATES, f"{said.phrase}, LiveMigratable")
    budget = forbidding_budget(vmi, cluster)
    if budget is not None:
        remedy = "write an integer minAvailable" if needs_scale(budget) else "loosen it"
        reason = f"PodDisruptionBudget {budget.name} forbids the eviction of its pod"
        return Forecast(vmi, Outcome.BLOCKS, reason, f"{remedy}, or delete it during the drain")
    hindered = f", cannot migrate: {hindrance(vmi)}" if said.value == "LiveMigrateIfPossible" else ""
    return _shut_down(vmi, cluster, f"{said.phrase}{hindered}")


def _repair(vmi: Object) -> str:
    if migratable(vmi) is None:
        return "wait until KubeVirt has reported LiveMigratable"
    return "repair that, or set LiveMigrateIfPossible or None and restart it, or stop it"


def _shut_down(vmi: Object, cluster: Cluster, why: str) -> Forecast:
    after = comes_back(vmi, cluster)
    if not after.comes:
        return Forecast(vmi, Outcome.STOPS, f"{why}; {after.why}", after.remedy)
    trouble = nowhere_to_go(vmi, cluster, moves=False)
    if trouble is not None:
        return Forecast(vmi, Outcome.RESTARTS, f"{why}; {after.why}, but only later: {trouble.reason}")
    return Forecast(vmi, Outcome.RESTARTS, f"{why}; {after.why}")


# --- workload updates ----------------------------------------------------------------------------------------------


class Reach(enum.StrEnum):
    """How an update of KubeVirt reaches a running VMI."""

    MIGRATED = "migrated"
    RESTARTED = "evicted and restarted"
    STOPPED = "evicted and not restarted"
    RETRIED = "retried for ever"
    NEVER = "never"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Update:
    """Whether and how a workload update reaches one VMI, and why."""

    vmi: Object
    reach: Reach
    reason: str


def update(vmi: Object, methods: Collection[str], cluster: Cluster, subject: Object | None = None) -> Update:
    """How an update reaches a running VMI, with these update methods (``LiveMigrate``, ``Evict``) in force.

    What can migrate migrates if that is listed, else it is evicted if that is listed, through the eviction API: so the
    eviction strategy decides (cluster-configuration.md 7.1, 7.2). ``subject`` is a KubeVirt or HyperConverged under
    review. Never raises: what cannot be told is ``UNKNOWN``, and so is a VMI whose condition is not reported yet.
    """
    try:
        return _update(vmi, methods, cluster, subject)
    except Unseen as unseen:
        return Update(vmi, Reach.UNKNOWN, f"cannot see {unseen.what}")


def _update(vmi: Object, methods: Collection[str], cluster: Cluster, subject: Object | None) -> Update:
    can = migratable(vmi)
    if can is None:
        return Update(vmi, Reach.UNKNOWN, hindrance(vmi))
    if can and "LiveMigrate" in methods:
        return _migrated(vmi, cluster)
    if "Evict" not in methods:
        return Update(vmi, Reach.NEVER, "no update method is listed" if can else f"it cannot migrate: {hindrance(vmi)}")
    said = effective.strategy(vmi, cluster, subject)
    match lifecycle.eviction(said.value, can):
        case Eviction.MIGRATES:
            return _migrated(vmi, cluster)
        case Eviction.REFUSED:
            return Update(
                vmi, Reach.NEVER, f"{said.phrase} refuses the eviction, and it cannot migrate: {hindrance(vmi)}"
            )
        case Eviction.WAITS:
            return Update(vmi, Reach.NEVER, f"{said.phrase} refuses the eviction")
    budget = forbidding_budget(vmi, cluster)
    if budget is not None:
        return Update(vmi, Reach.NEVER, f"PodDisruptionBudget {budget.name} forbids the eviction")
    after = comes_back(vmi, cluster)
    return Update(vmi, Reach.RESTARTED if after.comes else Reach.STOPPED, after.why)


def _migrated(vmi: Object, cluster: Cluster) -> Update:
    trouble = no_target(vmi, cluster)
    if trouble is not None:
        return Update(vmi, Reach.RETRIED, trouble.reason)
    return Update(vmi, Reach.MIGRATED, "LiveMigratable")
