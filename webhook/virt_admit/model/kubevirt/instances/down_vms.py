"""VMs that should run, and whether their guests do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms

READS: Final[Reads] = {
    VM: ("spec.running", "spec.runStrategy", "status.printableStatus"),
    VMI: ("status.phase",),
}


def runs(cluster: Cluster) -> Mapping[tuple[str, str], bool]:
    """Return for each known VM that should run whether it does, by namespace and name.

    A VM should run with ``Always``, and with ``RerunOnFailure`` unless its guest has shut down. With the other run
    strategies a user decides each time. VMs whose VMI could not be read are missing.
    """
    found: dict[tuple[str, str], bool] = {}
    for vm in cluster.known(VM):
        if not vm.deleted and _should_run(vm):
            namespace = vms.namespace_of(vm)
            try:
                vmi = cluster.get(VMI, namespace, vm.name)
            except Unseen:
                continue
            found[namespace, vm.name] = vmi is not None and vmi.at("status", "phase").text == "Running"
    return found


def _should_run(vm: Object) -> bool:
    strategy = vms.run_strategy(vms.vm_spec(vm))
    shut_down = vm.at("status", "printableStatus").text == "Stopped"
    return strategy == "Always" or (strategy == "RerunOnFailure" and not shut_down)
