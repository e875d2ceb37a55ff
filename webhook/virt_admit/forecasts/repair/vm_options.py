"""The ways in which one VM stops keeping its node: each a set of steps, the best first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from virt_admit.forecasts.drain.states import vm_states_failures
from virt_admit.forecasts.placement import candidates, no_target
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.common_model import best_models, lost_features
from virt_admit.forecasts.repair import found_problems, stopped_vms, surviving, vm_steps
from virt_admit.forecasts.repair.causes import (
    disk_copies,
    guest_changes,
    node_constraints,
    node_steps,
    pool_templates,
    shared_objects,
)
from virt_admit.forecasts.repair.causes.guest_changes import GuestChange
from virt_admit.forecasts.repair.repair_plan import (
    CostClass,
    FieldEdit,
    ObjectRef,
    OtherWay,
    PlanStage,
    RepairStep,
    RootProblem,
)
from virt_admit.forecasts.repair.wishes import BY_HAND, Wishes
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import NODE, POOL, VM, VMIRS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import (
    migratability,
    migration_failures,
    migration_timeouts,
    node_local_volumes,
    vmis,
    vms,
)
from virt_admit.model.kubevirt.instances.migratability import Migratable
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.lookups import find
from virt_admit.model.node_updates import cordoners
from virt_admit.model.problems import ProblemCause
from virt_admit.model.remediation import fence_taints

_DISKS: Final = "DisksNotLiveMigratable"
_CLAIM: Final = re.compile(r"^volume of claim (\S+) is ")
"""The words of a node that cannot reach a volume. A claim that is broken cannot be copied."""
_CAPI: Final = "cluster.x-k8s.io"


@dataclass(frozen=True, slots=True)
class Option:
    """One way to repair a VM."""

    id: str
    steps: tuple[RepairStep, ...]
    protection: int
    """0: it migrates at later drains; 1: it stops at each of them."""

    def rank(self, wishes: Wishes) -> tuple[int | str, ...]:
        """Return the key by which the best way is chosen."""
        downtime = sum(one.cost.downtime for one in self.steps)
        copied = sum(one.cost.gib for one in self.steps)
        touched = sum(len(step.changes) for step in self.steps)
        decisions = sum(step.cost.class_ is CostClass.DECISION for step in self.steps)
        if wishes.may_restart is not None and decisions:
            downtime += clock.LONGEST  # the restarts that were allowed come before new hardware
        if wishes.prefer == "restart":
            return copied, self.protection, downtime, touched, self.id
        return downtime, self.protection, copied, touched, self.id


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways to repair a VM, the best first, and why others are not possible."""

    options: tuple[Option, ...] = ()
    refused: tuple[str, ...] = ()


def ways(vmi: Object, found: Sequence[RootProblem], cluster: Cluster, wishes: Wishes) -> Ways:
    """Return how the problems of one running VM can be repaired."""
    vm, why = _vm(vmi, cluster)
    if vm is None:
        return Ways(refused=(why,))
    made: list[Option] = []
    refused: list[str] = []
    for result in _ways(vmi, vm, {problem.cause for problem in found}, cluster, wishes):
        if isinstance(result, Option):
            made.append(result)
        else:
            refused.append(result)
    if not wishes.restarts(vm):
        restarting = [option for option in made if any(step.cost.downtime for step in option.steps)]
        made = [option for option in made if option not in restarting]
        refused += ["--may-restart does not select it"] * bool(restarting)
    made.sort(key=lambda option: option.rank(wishes))
    if pool_templates.is_managed(vm, cluster):
        made = [
            replace(option, steps=tuple(_in_template(step, vm, cluster) for step in option.steps))
            for option in made
        ]
    reasons = tuple(dict.fromkeys(refused))
    return Ways(tuple(_with_others(option, made, reasons) for option in made), reasons)


def _in_template(step: RepairStep, vm: Object, cluster: Cluster) -> RepairStep:
    return pool_templates.moved(step, vm, cluster) if step.subject == ObjectRef.of(VM, vm) else step


def _with_others(option: Option, every: Sequence[Option], refused: Sequence[str]) -> Option:
    """Return a way with the others as alternatives of its first step."""
    others = [
        OtherWay(step.title, step.cost.class_, _lower(other, option))
        for other in every
        if other is not option
        for step in other.steps[:1]
    ]
    others += [
        OtherWay("keep its live migration", CostClass.NOTHING, f"not possible: {why}")
        for why in refused
    ]
    first = option.steps[0]
    alternatives = tuple(dict.fromkeys((*first.alternatives, *others)))
    return replace(option, steps=(replace(first, alternatives=alternatives), *option.steps[1:]))


def _lower(other: Option, chosen: Option) -> str:
    """Return why another way ranks lower."""
    downtime = [sum(step.cost.downtime for step in way.steps) for way in (other, chosen)]
    if downtime[0] > downtime[1]:
        return f"the guest stops for up to {downtime[0]} s"
    if other.protection > chosen.protection:
        return "the guest stops at each later drain"
    if any(step.cost.gib for step in other.steps):
        return "it copies data"
    return "it changes more"


def _vm(vmi: Object, cluster: Cluster) -> tuple[Object | None, str]:
    """Return the VM of a VMI whose template can be changed, or why there is none."""
    owner = vmis.owner(vmi, VMIRS.kind)
    if owner:
        return None, f"{VMIRS.kind} {owner} owns it: change its template and replace the VMI"
    if vmis.owner(vmi, VM.kind) is None:
        return (
            None,
            "no VM owns this VMI: make a VirtualMachine with the same spec, and stop the VMI",
        )
    try:
        vm = vmis.owner_vm(vmi, cluster)
    except Unseen:
        return None, "its VM cannot be read"
    if vm is None or vm.deleted:
        return None, "its VM does not exist any more"
    if not vms.vmi_spec(vm).is_map:
        return None, "its VM has no template"
    if vm.controller is not None and vm.controller["kind"].text != POOL.kind:
        owner_words = f"{vm.controller['kind'].text} {vm.controller['name'].text}"
        return None, f"{owner_words} owns its VM and would revert the change: change its template"
    return vm, ""


def _ways(
    vmi: Object, vm: Object, causes: set[str], cluster: Cluster, wishes: Wishes
) -> Iterator[Option | str]:
    if kept := stopped_vms.kept(vmi, cluster):
        yield kept
    elif ProblemCause.EXTERNAL in causes:
        yield from _external(vmi, vm, cluster)
    elif surviving.WAITS_FOR_NODE in causes:
        yield from _no_target(vmi, vm, cluster, wishes, moves=False)
    elif causes & found_problems.NOWHERE:
        # every node refuses the devices of its old launcher
        refused = vm_states_failures.is_of_launcher(vmi, cluster)
        yield from _failing(vmi, vm, cluster) if refused else _no_target(vmi, vm, cluster, wishes)
    elif found_problems.NOT_SHARED in causes:
        yield from _shared_disk(vmi, vm, cluster, wishes)
    elif ProblemCause.BUDGET in causes:
        yield _migrating(vmi, vm, cluster, wishes, strategy="LiveMigrate")
    elif known := [words for cause, words in BY_HAND.items() if cause in causes]:
        yield known[0]
    elif ProblemCause.MARK_LEFT in causes:
        yield Option("unmark", (vm_steps.unmark(vmi, vm),), 0)
    elif causes & _WAITING:
        yield "wait until it has ended, or look at the events of the VMI"
    elif causes & _NO_CHANGE_OF_VM:
        return
    elif causes & found_problems.FAILING:
        yield from _failing(vmi, vm, cluster)
    else:
        yield _migrating(vmi, vm, cluster, wishes)
        yield _accepting(vm_steps.accepted(vmi, vm, cluster, because=_hardware(causes)))


def _failing(vmi: Object, vm: Object, cluster: Cluster) -> Iterator[Option]:
    if migration_failures.without_post_copy(cluster) and migration_timeouts.may_post_copy(
        vmi, cluster
    ):
        yield Option("post-copy", (shared_objects.without_post_copy(vmi, cluster),), 0)
        return  # nothing is wrong with the VM, and no change of it helps
    if vm_states_failures.is_of_launcher(vmi, cluster):
        yield Option("renew", (vm_steps.restart(vmi, vm, [vm_steps.RENEWED]),), 0)
    yield _accepting(vm_steps.accepted(vmi, vm, cluster, because="its migrations fail"))


_NO_CHANGE_OF_VM: Final = {
    *surviving.NO_CHANGE_OF_VM,
    ProblemCause.QUOTA,
    ProblemCause.LIMIT_RANGE,
    ProblemCause.NO_MIGRATION,
    ProblemCause.NOT_CREATED,  # what refuses its second pod refuses that of a restart too
}
_WAITING: Final = {ProblemCause.STOP_OVERDUE, ProblemCause.POD_NOT_ENDING, ProblemCause.QUEUED}


def _accepting(step: RepairStep) -> Option:
    return Option("accept", (step,), 1)


def _hardware(causes: Iterable[str]) -> str:
    words = (guest_changes.HARDWARE.get(cause, "") for cause in sorted(causes))
    return next(filter(None, words), "")


# --- the VM migrates again ------------------------------------------------------------------------


def _migrating(
    vmi: Object, vm: Object, cluster: Cluster, wishes: Wishes, strategy: str = ""
) -> Option | str:
    """Return the steps after which KubeVirt can migrate a VM, or why that is not possible."""
    steps: list[RepairStep] = []
    changes: list[GuestChange] = []
    for name, words in found_problems.causes(vmi, cluster) if vmis.migratable(vmi) is False else ():
        if name == _DISKS:
            made = _copied(vmi, vm, cluster, wishes)
            if isinstance(made, str):
                return f"{_NOT_COPIED}: {made}"
            steps += made
            continue
        change = guest_changes.change(name, vm, cluster)
        if change is None:
            return guest_changes.HARDWARE.get(name) or f"no change of the VM ends {name}: {words}"
        changes.append(change)
    if strategy and vms.vmi_spec(vm)["evictionStrategy"].text != strategy:
        risk = "KubeVirt answers the eviction with a migration, before the budget is asked"
        changes.append(
            GuestChange(
                f"set evictionStrategy {strategy}", (FieldEdit(vm_steps.STRATEGY, strategy),), risk
            )
        )
    if changes:  # a copy is a live migration, so what else keeps the VM from migrating goes first
        steps = [
            vm_steps.restart(vmi, vm, changes),
            *(replace(step, stage=PlanStage.RESTARTS) for step in steps),
        ]
    if not steps:
        return "nothing known keeps it from migrating"
    return Option("migrate", tuple(steps), 0)


def _shared_disk(
    vmi: Object, vm: Object, cluster: Cluster, wishes: Wishes
) -> Iterator[Option | str]:
    """Yield the ways for a VM with a hostPath volume that its claim calls ReadWriteMany."""
    claims = [
        volume.claim
        for volume in disk_copies.volumes(vm)
        if node_local_volumes.host_path_claim(vms.namespace_of(vmi), [volume.claim], cluster)
    ]
    if claims:
        yield _copying(vmi, vm, claims, cluster, wishes)
    else:
        yield f"{_NOT_COPIED}: no volume of the VM is such a claim"
    yield _accepting(
        vm_steps.accepted(vmi, vm, cluster, "its data may be on one node only", migratable=True)
    )


_NOT_COPIED: Final = "the disks are not copied"


def _copying(
    vmi: Object, vm: Object, claims: Sequence[str], cluster: Cluster, wishes: Wishes
) -> Option | str:
    """Return the way that copies the disks of these claims, or why they are not copied."""
    found = disk_copies.copies(vmi, vm, claims, cluster, wishes)
    if isinstance(found, str):
        return f"{_NOT_COPIED}: {found}"
    return Option("copy", disk_copies.steps(vm, found, cluster), 0)


def _copied(
    vmi: Object, vm: Object, cluster: Cluster, wishes: Wishes
) -> tuple[RepairStep, ...] | str:
    claims: list[str] = []
    for reason in migratability.assess(vmi, cluster).reasons:
        if reason.name == _DISKS:
            if not isinstance(reason.value, str) or not any(
                one.claim == reason.value for one in disk_copies.volumes(vm)
            ):
                return reason.what
            claims.append(reason.value)
    if not claims:
        return "KubeVirt does not say which disk it is"
    found = disk_copies.copies(vmi, vm, claims, cluster, wishes)
    return found if isinstance(found, str) else disk_copies.steps(vm, found, cluster)


# --- other causes ---------------------------------------------------------------------------------


def _external(vmi: Object, vm: Object, cluster: Cluster) -> Iterator[Option | str]:
    owners = [*vm.metadata["ownerReferences"].items(), *vmi.metadata["ownerReferences"].items()]
    if any(_CAPI in (owner["apiVersion"].text or "") for owner in owners) or any(
        key.startswith(_CAPI) or key.startswith("hypershift.openshift.io") for key in vm.labels
    ):
        yield "a cluster-api controller moves it: see why that controller does not act"
        return
    migrates = migratability.assess(vmi, cluster).migratable is Migratable.YES
    strategy = "LiveMigrate" if migrates else versions.if_possible(cluster)
    change = GuestChange(
        f"set evictionStrategy {strategy}",
        (FieldEdit(vm_steps.STRATEGY, strategy),),
        "its owner may revert it",
    )
    yield Option("strategy", (vm_steps.restart(vmi, vm, [change]),), 0 if migrates else 1)


def _no_target(
    vmi: Object, vm: Object, cluster: Cluster, wishes: Wishes, *, moves: bool = True
) -> Iterator[Option | str]:
    target = candidates.target(vmi, cluster, moves=moves)
    others = tuple(_other_nodes(vmi, target, cluster))
    yield from others
    opens = others or "cordoned" in target.placement.refusals.values()
    fresh = stopped_vms.nowhere_to_start(vmi, cluster) if opens else ""
    for number, widening in enumerate(node_constraints.widenings(vm, target, cluster)):
        yield Option(f"widen-{number}", (vm_steps.widened(vmi, vm, widening, cluster),), 0)
    refusals = target.placement.refusals.values()
    causes = [cause for why in refusals for cause in why.split("; ")]
    if any(map(_waits_for_cpu, refusals)) and (not fresh or any(map(fresh.count, _OF_CPU))):
        yield from _processors(vmi, vm, target, causes, cluster)
    local = {match[1] for cause in causes if (match := _CLAIM.search(cause))}
    claims = [volume.claim for volume in disk_copies.volumes(vm) if volume.claim in local]
    if claims:
        yield _copying(vmi, vm, claims, cluster, wishes)
    if moves and (never := stopped_vms.refused_at_home(vmi, cluster)):
        yield f"its own node no longer offers {never}, so it would not start again"
    elif moves and not fresh:
        stays = no_target.is_lasting(candidates.target(vmi, cluster, moves=False), vmi, cluster)
        because = (
            "no other node can take "
            f"it{', so it stays down until its node is uncordoned' if stays else ''}"
        )
        yield _accepting(vm_steps.accepted(vmi, vm, cluster, because, migratable=True))


_OF_CPU: Final = ("host model ", "CPU feature ")


def _waits_for_cpu(why: str) -> bool:
    """Return whether another CPU model may open a node: nothing else that lasts refuses the VM."""
    others = [cause for cause in why.split("; ") if not cause.startswith(_OF_CPU)]
    return others != why.split("; ") and not any(map(_outlasts, others))


def _outlasts(cause: str) -> bool:
    device = "/" in cause.partition(": ")[0] and cause.endswith(" missing")
    return device or cause.startswith(
        (*_NEVER, "volume of claim ", "machine type ", "dedicated CPUs", "network ")
    )


def _other_nodes(vmi: Object, target: SchedulingTarget, cluster: Cluster) -> Iterator[Option]:
    """Yield the nodes that could take a VM if they were not cordoned,
    and the one that has to be added for its size.
    """
    refusals = target.placement.refusals
    known = {node.name: node for node in cluster.known(NODE)}
    closed = (name for name, why in refusals.items() if why == "cordoned" and name in known)
    cordoned = sorted(
        name
        for name in closed
        if not cordoners.is_emptied(name, cluster)
        and shared_objects.may_uncordon(known[name], cluster)
    )
    if cordoned:
        yield Option("uncordon", (shared_objects.uncordon(known[cordoned[0]]),), 0)
    fences = fence_taints.known(cluster)
    fenced = sorted(
        name for name, why in refusals.items() if name in fences and fences[name].is_all(why)
    )
    if fenced:
        yield Option("fence", (node_steps.remediated(known[fenced[0]], cluster),), 0)
    yield from (Option(step.id, (step,), 0) for step in node_steps.bridged(target, cluster))
    here = known.get(vmi.at("status", "nodeName").text or "")
    sized = any(all(map(node_steps.is_size, why.split("; "))) for why in refusals.values())
    if here is not None and sized and not fenced:
        yield Option("room", (node_steps.added(here, 1, cluster),), 0)


def _processors(
    vmi: Object, vm: Object, target: SchedulingTarget, causes: Sequence[str], cluster: Cluster
) -> Iterator[Option | str]:
    features = tuple(
        dict.fromkeys(
            cause.removeprefix("CPU feature ") for cause in causes if cause.startswith("CPU f")
        )
    )
    optional = guest_changes.optional_feature(vm, features)
    if optional is not None:
        yield Option("features", (vm_steps.restart(vmi, vm, [optional]),), 0)
    if vms.vm_spec(vm)["instancetype"].present:
        return
    usable = _usable_nodes(target)
    best = best_models(cluster, {*usable, target.placement.without})
    if not best:
        yield "no CPU model is known that all its nodes offer"
    elif len(best) > 1:
        yield (
            f"all its nodes offer the CPU models {', '.join(best)}, of which none has all features "
            "of the others"
        )
    else:
        here = find(cluster, NODE, "", target.placement.without)
        lost = lost_features(best[0], here) if here is not None else ()
        yield Option(
            "cpu-model", (vm_steps.restart(vmi, vm, [guest_changes.cpu_model(best[0], lost)]),), 0
        )


_NEVER: Final = ("node selector ", "node affinity", "taint ")
"""Causes by which a VM never runs on a node, whatever its processor."""


def _usable_nodes(target: SchedulingTarget) -> Iterator[str]:
    """Yield the nodes that a VM may use as far as it is not for their processors."""
    yield from target.placement.candidates
    for name, why in target.placement.refusals.items():
        if not any(cause.startswith(_NEVER) for cause in why.split("; ")):
            yield name
