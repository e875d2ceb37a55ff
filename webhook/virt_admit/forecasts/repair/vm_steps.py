"""Steps on one VM: a restart for all changes that need one, placement that takes effect at once, a
mark that is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from virt_admit.forecasts.repair import found_problems
from virt_admit.forecasts.repair.causes import node_constraints, pool_templates
from virt_admit.forecasts.repair.causes.guest_changes import GuestChange
from virt_admit.forecasts.repair.controllers import TEMPLATE
from virt_admit.forecasts.repair.repair_plan import (
    Command,
    CostClass,
    FieldEdit,
    ObjectChange,
    ObjectRef,
    PlannedCheck,
    PlanStage,
    RepairStep,
    StepCost,
    TakesEffect,
)
from virt_admit.forecasts.upgrade import durations
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.settings import configuration, live_updates, versions

STRATEGY: Final = (*TEMPLATE, "evictionStrategy")
_ACCEPTED_RISK: Final = "the guest stops at this and at every later drain of its node"


RENEWED: Final = GuestChange("give the guest the devices of the present virt-launcher", (), "")
"""The change that every restart makes."""


def restart(vmi: Object, vm: Object, changes: Sequence[GuestChange]) -> RepairStep:
    """Return the one restart in which all these changes take effect."""
    subject = ObjectRef.of(VM, vm)
    edits = tuple(edit for change in changes for edit in change.edits)
    title = ", ".join(change.title for change in changes)
    commands = ("restart", vm.name, "-n", subject.namespace)
    patches = (ObjectChange(subject, Command.PATCH, edits),) if edits else ()
    return RepairStep(
        id=f"restart:{subject.full_name}",
        stage=PlanStage.RESTARTS,
        title=f"{title}, and restart it while its node is cordoned",
        subject=subject,
        cost=StepCost(CostClass.RESTART, downtime=durations.restart(vmi).seconds.high),
        takes_effect=TakesEffect.RESTART,
        changes=(*patches, ObjectChange(subject, Command.VIRTCTL, arguments=commands)),
        preconditions=(
            PlannedCheck("no migration or copy of it runs", _status("vmi", vm, "migratedVolumes")),
        ),
        verify=(
            _needs_no_restart(vm),
            PlannedCheck("the VM is ready", _status("vm", vm, "ready"), "true"),
        ),
        risk="; ".join(dict.fromkeys(change.risk for change in changes if change.risk)),
        alternatives=tuple(one for change in changes for one in change.alternatives),
    )


def _status(resource: str, obj: Object, field: str) -> tuple[str, ...]:
    """Return the arguments of ``kubectl`` that read a field of the status."""
    path = f"-o=jsonpath={{.status.{field}}}"
    return "get", resource, obj.name, "-n", vms.namespace_of(obj), path


def _needs_no_restart(vm: Object) -> PlannedCheck:
    field = "conditions[?(@.type=='RestartRequired')].status"
    return PlannedCheck("the VM has no RestartRequired", _status("vm", vm, field))


def accepted(
    vmi: Object, vm: Object, cluster: Cluster, because: str = "", *, migratable: bool = False
) -> RepairStep:
    """Return the step after which a drain shuts the VM down."""
    strategy = (
        "None"
        if migratable or because == "its migrations fail" or not cluster.cached(_has_second_node)
        else versions.if_possible(cluster)
    )
    edits = [FieldEdit(STRATEGY, strategy)]
    words = f"accept its downtime: set evictionStrategy {strategy}"
    if vms.vm_spec(vm)["runStrategy"].text in ("Manual", "RerunOnFailure"):
        edits.append(FieldEdit(("spec", "runStrategy"), "Always"))
        words += " and runStrategy Always"
    risk = f"{because}; {_ACCEPTED_RISK}" if because else _ACCEPTED_RISK
    return restart(vmi, vm, [GuestChange(words, tuple(edits), risk)])


def _has_second_node(cluster: Cluster) -> bool:
    try:
        return configuration.highly_available(cluster) is not False
    except Unseen:
        return True


def unmark(vmi: Object, vm: Object) -> RepairStep:
    subject = ObjectRef.of(VM, vm)
    arguments = ("evacuate-cancel", "vmi", vmi.name, "-n", subject.namespace)
    return RepairStep(
        id=f"unmark:{subject.full_name}",
        stage=PlanStage.LIVE,
        title="cancel the evacuation that is left over",
        subject=subject,
        changes=(
            ObjectChange(found_problems.vmi_subject(vmi), Command.VIRTCTL, arguments=arguments),
        ),
        verify=(
            PlannedCheck("the mark is gone", _status(VMI.resource, vmi, "evacuationNodeName")),
        ),
    )


def widened(
    vmi: Object, vm: Object, widening: node_constraints.Widening, cluster: Cluster
) -> RepairStep:
    """Return the step that widens the placement of a VM: live,
    or with a restart where nothing takes effect live.
    """
    title = f"{widening.title}, so that node {widening.node} can run it"
    risk = (
        "the VM may need something that only its node has, such as a licence or a device: ask its "
        "owner"
    )
    staged = live_updates.is_staged(cluster) or vm.is_true("RestartRequired")
    if staged or pool_templates.restarts(vm, cluster):
        return restart(vmi, vm, [GuestChange(title, widening.edits, risk)])
    subject = ObjectRef.of(VM, vm)
    return RepairStep(
        id=f"place:{subject.full_name}",
        stage=PlanStage.LIVE,
        title=title,
        subject=subject,
        takes_effect=TakesEffect.LIVE,
        changes=(ObjectChange(subject, Command.PATCH, widening.edits),),
        preconditions=(_needs_no_restart(vm),),
        risk=risk,
    )
