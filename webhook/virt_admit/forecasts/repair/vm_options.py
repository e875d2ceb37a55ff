"""The ways in which one VM stops keeping its node: each a set of steps, the best first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.common_model import common_model
from virt_admit.forecasts.repair import found_problems
from virt_admit.forecasts.repair.causes import (
    added_nodes,
    disk_copies,
    guest_changes,
    node_constraints,
    shared_objects,
)
from virt_admit.forecasts.repair.causes.guest_changes import GuestChange
from virt_admit.forecasts.repair.controllers import TEMPLATE
from virt_admit.forecasts.repair.repair_plan import (
    Alternative,
    Change,
    Command,
    Cost,
    CostClass,
    FieldEdit,
    ObjectRef,
    PlanStage,
    RepairStep,
    RootProblem,
    StepCheck,
    TakesEffect,
)
from virt_admit.forecasts.repair.wishes import Wishes
from virt_admit.forecasts.upgrade import durations
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import NODE, POOL, VM, VMI, VMIRS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import expand, migratability, vmis, vms
from virt_admit.model.kubevirt.instances.migratability import Migratable
from virt_admit.model.kubevirt.settings import configuration

STRATEGY: Final = (*TEMPLATE, "evictionStrategy")
_DISKS: Final = "DisksNotLiveMigratable"
_LONG: Final = 10**9
"""Seconds: longer than any restart. Where restarts were named explicitly, they come before new hardware."""
_CAPI: Final = "cluster.x-k8s.io"
_STAGED: Final = "Stage"
_ACCEPTED_RISK: Final = "the guest stops at this and at every later drain of its node"


@dataclass(frozen=True, slots=True)
class Option:
    """One way to repair a VM."""

    id: str
    steps: tuple[RepairStep, ...]
    protection: int
    """0: it migrates at later drains; 1: it stops at each of them."""

    def rank(self, wishes: Wishes) -> tuple[int | str, ...]:
        """Return the key by which the best way is chosen."""
        downtime, copied = sum(one.cost.downtime for one in self.steps), sum(one.cost.gib for one in self.steps)
        touched = sum(len(step.changes) for step in self.steps)
        decisions = sum(step.cost.kind is CostClass.DECISION for step in self.steps)
        if wishes.may_restart is not None and decisions:
            downtime += _LONG
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
    return Ways(tuple(made), tuple(dict.fromkeys(refused)))


def _vm(vmi: Object, cluster: Cluster) -> tuple[Object | None, str]:
    """Return the VM of a VMI whose template can be changed, or why there is none."""
    for kind in (VMIRS, POOL):
        owner = vmis.owner(vmi, kind.kind)
        if owner:
            return None, f"{kind.kind} {owner} owns it: change its template and replace the VMI"
    if vmis.owner(vmi, VM.kind) is None:
        return None, "no VM owns this VMI: make a VirtualMachine with the same spec, and stop the VMI"
    try:
        vm = vmis.owner_vm(vmi, cluster)
    except Unseen:
        return None, "its VM cannot be read"
    if vm is None or vm.deleted:
        return None, "its VM does not exist any more"
    if not vms.vmi_spec(vm).is_map:
        return None, "its VM has no template"
    if vm.controller is not None:
        owner_words = f"{vm.controller['kind'].text} {vm.controller['name'].text}"
        return None, f"{owner_words} owns its VM and would revert the change: change its template"
    return vm, ""


def _ways(vmi: Object, vm: Object, causes: set[str], cluster: Cluster, wishes: Wishes) -> Iterator[Option | str]:
    if found_problems.EXTERNAL in causes:
        yield from _external(vmi, vm, cluster)
    elif causes & found_problems.NOWHERE:
        yield from _no_target(vmi, vm, cluster, wishes)
    elif found_problems.BUDGET in causes:
        yield _migrating(vmi, vm, cluster, wishes, strategy="LiveMigrate")
    elif found_problems.SEVERAL_BUDGETS in causes:
        yield "several budgets select its pod: their owners leave it to one of them"
    elif found_problems.NOT_REPORTED in causes:
        yield "wait until KubeVirt has reported LiveMigratable"
    elif found_problems.STALE_MARK in causes:
        yield _unmark(vmi, vm)
    elif causes & _WAITING:
        yield "wait until it has ended, or look at the events of the VMI"
    elif causes & {found_problems.QUOTA, found_problems.LIMITS, found_problems.NO_MIGRATION}:
        return
    elif found_problems.FAILING in causes:
        yield _accepted(vmi, vm, cluster, because="its migrations fail")
    else:
        yield _migrating(vmi, vm, cluster, wishes)
        yield _accepted(vmi, vm, cluster, because=_hardware(causes))


_WAITING: Final = {found_problems.STUCK, found_problems.OLD_POD, found_problems.QUEUE}


def _hardware(causes: Iterable[str]) -> str:
    words = (guest_changes.HARDWARE.get(cause, "") for cause in sorted(causes))
    return next(filter(None, words), "")


# --- the VM migrates again -----------------------------------------------------------------------------------------


def _migrating(vmi: Object, vm: Object, cluster: Cluster, wishes: Wishes, strategy: str = "") -> Option | str:
    """Return the steps after which KubeVirt can migrate a VM, or why that is not possible."""
    steps: list[RepairStep] = []
    changes: list[GuestChange] = []
    for name, words in found_problems.causes(vmi, cluster) if vmis.migratable(vmi) is False else ():
        if name == _DISKS:
            made = _copied(vmi, vm, cluster, wishes)
            if isinstance(made, str):
                return f"the disks are not copied: {made}"
            steps.append(made)
            continue
        change = guest_changes.change(name, vm)
        if change is None:
            return guest_changes.HARDWARE.get(name) or f"no change of the VM ends {name}: {words}"
        changes.append(change)
    if strategy and vms.vmi_spec(vm)["evictionStrategy"].text != strategy:
        risk = "KubeVirt answers the eviction with a migration, before the budget is asked"
        changes.append(GuestChange(f"set evictionStrategy {strategy}", (FieldEdit(STRATEGY, strategy),), risk))
    if changes:  # a copy is a live migration, so what else keeps the VM from migrating goes first
        steps = [restart(vmi, vm, changes), *(replace(step, stage=PlanStage.RESTARTS) for step in steps)]
    if not steps:
        return "nothing known keeps it from migrating"
    return Option("migrate", tuple(steps), 0)


def _copied(vmi: Object, vm: Object, cluster: Cluster, wishes: Wishes) -> RepairStep | str:
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
    return found if isinstance(found, str) else disk_copies.step(vm, found, cluster)


def restart(vmi: Object, vm: Object, changes: Sequence[GuestChange]) -> RepairStep:
    """Return the one restart in which all these changes take effect."""
    subject = ObjectRef.of(VM, vm)
    edits = tuple(edit for change in changes for edit in change.edits)
    title = ", ".join(change.title for change in changes)
    commands = ("restart", vm.name, "-n", subject.namespace)
    return RepairStep(
        id=f"restart:{subject.full_name}",
        stage=PlanStage.RESTARTS,
        title=f"{title}, and restart it while its node is cordoned",
        subject=subject,
        cost=Cost(CostClass.RESTART, downtime=durations.restart(vmi).seconds.high),
        takes_effect=TakesEffect.RESTART,
        changes=(
            Change(subject, Command.PATCH, edits),
            Change(subject, Command.VIRTCTL, arguments=commands),
        ),
        preconditions=(
            StepCheck(
                "no migration or copy of it runs",
                ("get", "vmi", vm.name, "-n", subject.namespace, "-o=jsonpath={.status.migratedVolumes}"),
            ),
        ),
        verify=(
            StepCheck(
                "the VM runs with the new template",
                _condition("vm", vm, "RestartRequired"),
            ),
            StepCheck(
                "the VM is ready",
                ("get", "vm", vm.name, "-n", subject.namespace, "-o=jsonpath={.status.ready}"),
                "true",
            ),
        ),
        risk="; ".join(dict.fromkeys(change.risk for change in changes if change.risk)),
        alternatives=tuple(one for change in changes for one in change.alternatives),
    )


def _condition(resource: str, vm: Object, kind: str) -> tuple[str, ...]:
    path = f"-o=jsonpath={{.status.conditions[?(@.type=='{kind}')].status}}"
    return ("get", resource, vm.name, "-n", vms.namespace_of(vm), path)


# --- the downtime is accepted --------------------------------------------------------------------------------------


def _accepted(vmi: Object, vm: Object, cluster: Cluster, because: str = "", *, migratable: bool = False) -> Option:
    """Return the step after which a drain shuts the VM down."""
    strategy = (
        "None"
        if migratable or because == "its migrations fail" or not cluster.cached(_has_second_node)
        else "LiveMigrateIfPossible"
    )
    edits = [FieldEdit(STRATEGY, strategy)]
    words = f"accept its downtime: set evictionStrategy {strategy}"
    if vms.vm_spec(vm)["runStrategy"].text in ("Manual", "RerunOnFailure"):
        edits.append(FieldEdit(("spec", "runStrategy"), "Always"))
        words += " and runStrategy Always"
    risk = f"{because}; {_ACCEPTED_RISK}" if because else _ACCEPTED_RISK
    return Option("accept", (restart(vmi, vm, [GuestChange(words, tuple(edits), risk)]),), 1)


def _has_second_node(cluster: Cluster) -> bool:
    try:
        return configuration.highly_available(cluster) is not False
    except Unseen:
        return True


# --- other causes --------------------------------------------------------------------------------------------------


def _external(vmi: Object, vm: Object, cluster: Cluster) -> Iterator[Option | str]:
    owners = [*vm.metadata["ownerReferences"].items(), *vmi.metadata["ownerReferences"].items()]
    if any(_CAPI in (owner["apiVersion"].text or "") for owner in owners) or any(
        key.startswith(_CAPI) or key.startswith("hypershift.openshift.io") for key in vm.labels
    ):
        yield "a cluster-api controller moves it: see why that controller does not act"
        return
    migrates = migratability.assess(vmi, cluster).migratable is Migratable.YES
    strategy = "LiveMigrate" if migrates else "LiveMigrateIfPossible"
    change = GuestChange(
        f"set evictionStrategy {strategy}", (FieldEdit(STRATEGY, strategy),), "its owner may revert it"
    )
    yield Option("strategy", (restart(vmi, vm, [change]),), 0 if migrates else 1)


def _unmark(vmi: Object, vm: Object) -> Option:
    subject = ObjectRef.of(VM, vm)
    arguments = ("evacuate-cancel", "vmi", vmi.name, "-n", subject.namespace)
    step = RepairStep(
        id=f"unmark:{subject.full_name}",
        stage=PlanStage.LIVE,
        title="cancel the evacuation that is left over",
        subject=subject,
        cost=Cost(CostClass.NOTHING),
        takes_effect=TakesEffect.AT_ONCE,
        changes=(Change(found_problems.vmi_subject(vmi), Command.VIRTCTL, arguments=arguments),),
        verify=(
            StepCheck(
                "the mark is gone",
                ("get", VMI.resource, vmi.name, "-n", subject.namespace, "-o=jsonpath={.status.evacuationNodeName}"),
            ),
        ),
    )
    return Option("unmark", (step,), 0)


def _no_target(vmi: Object, vm: Object, cluster: Cluster, wishes: Wishes) -> Iterator[Option | str]:
    target = candidates.target(vmi, cluster, moves=True)
    yield from _other_nodes(vmi, target, cluster)
    for number, widening in enumerate(node_constraints.widenings(vm, target, cluster)):
        yield Option(f"widen-{number}", (_widened(vmi, vm, widening, cluster),), 0)
    causes = [cause for why in target.placement.refusals.values() for cause in why.split("; ")]
    if any(cause.startswith(("host model ", "CPU feature ")) for cause in causes):
        yield from _processors(vmi, vm, causes, cluster)
    local = [cause.split()[1] for cause in causes if cause.startswith(("claim ", "volume "))]
    claims = [volume.claim for volume in disk_copies.volumes(vm) if volume.claim in local]
    if claims:
        found = disk_copies.copies(vmi, vm, claims, cluster, wishes)
        yield (
            f"the disks are not copied: {found}"
            if isinstance(found, str)
            else Option("copy", (disk_copies.step(vm, found, cluster),), 0)
        )
    yield replace(_accepted(vmi, vm, cluster, "no other node can take it", migratable=True), id="accept")


def _other_nodes(vmi: Object, target: SchedulingTarget, cluster: Cluster) -> Iterator[Option]:
    """Yield the nodes that could take a VM if they were not cordoned, and the one that has to be added for its size."""
    refusals = target.placement.refusals
    known = {node.name: node for node in cluster.known(NODE)}
    cordoned = sorted(name for name, why in refusals.items() if why == "cordoned" and name in known)
    if cordoned:
        yield Option("uncordon", (shared_objects.uncordon(known[cordoned[0]]),), 0)
    here = known.get(vmi.at("status", "nodeName").text or "")
    sized = any(all(cause.endswith("missing") for cause in why.split("; ")) for why in refusals.values())
    if here is not None and sized:
        yield Option("room", (added_nodes.step(here, 1, cluster),), 0)


def _processors(vmi: Object, vm: Object, causes: Sequence[str], cluster: Cluster) -> Iterator[Option | str]:
    features = tuple(dict.fromkeys(cause.removeprefix("CPU feature ") for cause in causes if cause.startswith("CPU f")))
    optional = guest_changes.optional_feature(vm, features)
    if optional is not None:
        yield Option("features", (restart(vmi, vm, [optional]),), 0)
    model = common_model(cluster)
    if model and not vms.vm_spec(vm)["instancetype"].present:
        yield Option("cpu-model", (restart(vmi, vm, [guest_changes.cpu_model(model)]),), 0)
    elif not model:
        yield "no CPU model is known that all its nodes offer"


def _widened(vmi: Object, vm: Object, widening: node_constraints.Widening, cluster: Cluster) -> RepairStep:
    """Return the step that widens the placement of a VM: live, or with a restart where nothing takes effect live."""
    title = f"{widening.title}, so that node {widening.node} can run it"
    risk = "the VM may need something that only its node has, such as a licence or a device: ask its owner"
    staged = _is_staged(cluster) or vm.condition("RestartRequired")["status"].text == "True"
    if staged:
        return restart(vmi, vm, [GuestChange(title, widening.edits, risk)])
    subject = ObjectRef.of(VM, vm)
    return RepairStep(
        id=f"place:{subject.full_name}",
        stage=PlanStage.LIVE,
        title=title,
        subject=subject,
        cost=Cost(CostClass.NOTHING),
        takes_effect=TakesEffect.LIVE,
        changes=(Change(subject, Command.PATCH, widening.edits),),
        preconditions=(StepCheck("the VM has no RestartRequired", _condition("vm", vm, "RestartRequired")),),
        verify=(
            StepCheck(
                "the running VMI has the new placement",
                ("get", "vmi", vmi.name, "-n", subject.namespace, "-o=jsonpath={.spec.nodeSelector}{.spec.affinity}"),
            ),
        ),
        risk=risk,
        alternatives=(
            Alternative("accept its downtime: set evictionStrategy None", CostClass.RESTART, "the guest stops"),
        ),
    )


def _is_staged(cluster: Cluster) -> bool:
    found = configuration.known_or_none(configuration.kubevirt, cluster)
    return found is not None and found.at("spec", "configuration", "vmRolloutStrategy").text == _STAGED


def strategy_of(vmi: Object, cluster: Cluster) -> str:
    """Return the eviction strategy of a VMI; empty: it cannot be determined."""
    try:
        return expand.strategy(vmi, cluster).value
    except Unseen:
        return ""
