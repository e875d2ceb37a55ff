"""VMs that should run, and whether their guests do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, Unseen, each
from virt_admit.model.kubernetes.kinds import VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.lookups import is_absent

HALTED: Final = "harvesterhci.io/insufficient-resource-quota"
"""The annotation with the reason why Harvester has set a VM to ``Halted``."""
RESTORED: Final = "restore.harvesterhci.io/name"
"""The annotation with the restore to which Harvester has changed a VM. It stays afterwards."""

READS: Final[Reads] = {
    VM: (
        *CONDITIONS,
        "spec.running",
        "spec.runStrategy",
        "status.conditions.reason",
        "status.printableStatus",
    ),
    VMI: ("status.phase",),
}


def runs(cluster: Cluster) -> Mapping[tuple[str, str], bool]:
    """Return for each known VM that should run whether it does, by namespace and name.

    A VM should run with ``Always``, and with ``RerunOnFailure`` unless its guest has shut down.
    With the other run strategies a user decides each time. VMs whose VMI could not be read are
    missing.
    """
    phases = dict(each(cluster, VMI, _phase))
    found: dict[tuple[str, str], bool] = {}
    for name in filter(None, each(cluster, VM, _should_run)):
        phase = phases.get(name)
        if phase is None and _may_exist(name, cluster):
            continue
        found[name] = phase == "Running"
    return found


def _phase(vmi: Object) -> tuple[tuple[str, str], str]:
    return (vms.namespace_of(vmi), vmi.name), vmi.at("status", "phase").text or ""


def _may_exist(name: tuple[str, str], cluster: Cluster) -> bool:
    try:
        cluster.get(VMI, *name)
    except Unseen:
        return True
    return False


def is_stopped(vm: Object, cluster: Cluster) -> bool:
    """Whether a VM is not to run, and is known to have no VMI."""
    return not should_run(vm) and is_absent(cluster, VMI, vms.namespace_of(vm), vm.name)


def _should_run(vm: Object) -> tuple[str, str] | None:
    return (vms.namespace_of(vm), vm.name) if should_run(vm) else None


def should_run(vm: Object) -> bool:
    """Whether a VM should run, by its run strategy: see ``runs``.

    KubeVirt calls a VM Stopped, too, for which it tries in vain to create a VMI. It takes the
    condition back once it has nothing to create
    (pkg/virt-controller/watch/vm/vm.go#processFailureCondition).
    """
    if vm.deleted:
        return False
    strategy = vms.run_strategy(vms.vm_spec(vm))
    failure = vm.condition("Failure")
    tries = failure["status"].text == "True" and failure["reason"].text == "FailedCreate"
    shut_down = vm.at("status", "printableStatus").text == "Stopped" and not tries
    return strategy == "Always" or (strategy == "RerunOnFailure" and not shut_down)


def halted_by_quota(vm: Object) -> str:
    """Return why Harvester has halted a VM that was to start; empty: it has not."""
    halted = vms.run_strategy(vms.vm_spec(vm)) == "Halted" and not vm.deleted
    return (vm.annotation(HALTED).text or "") if halted else ""


def restored(vm: Object) -> str:
    """Return the restore for which Harvester has set a VM to ``Halted``, which may be over; empty:
    it has not (harvester/harvester:pkg/controller/master/backup/restore.go#updateExistingVM).
    """
    halted = vms.run_strategy(vms.vm_spec(vm)) == "Halted" and not vm.deleted
    return (vm.annotation(RESTORED).text or "") if halted else ""
