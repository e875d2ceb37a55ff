"""What does not happen while no pod of virt-controller is ready, and a VM that waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.lookups import find

READS: Final[Reads] = union(
    clock.READS,
    {
        VM: (
            *("metadata.creationTimestamp", "spec.runStrategy", "spec.running"),
            "status.printableStatus",
        ),
        VMI: ("metadata.creationTimestamp",),
    },
)
_USUAL: Final = timedelta(minutes=10)
_RUNS: Final = ("Always", "RerunOnFailure")


def effect(pods: Sequence[Object], cluster: Cluster) -> str:
    """Return what nothing does meanwhile, as a sentence, with a VM that virt-controller has not
    looked at; empty: a pod of it is ready, or none is known.
    """
    own = [pod for pod in pods if pod.labels.get("kubevirt.io") == "virt-controller"]
    if not own or any(pod.is_true("Ready") for pod in own):
        return ""
    waiting = [] if unlisted(cluster, VMI) else _waiting(cluster)
    such = f" (VM {waiting[0].full_name} has no status yet)" if waiting else ""
    return f"Meanwhile no VM is started or migrated{such}."


def _waiting(cluster: Cluster) -> Sequence[Object]:
    return [
        vm
        for vm in sorted(cluster.known(VM), key=lambda each: each.full_name)
        if vms.run_strategy(vms.vm_spec(vm)) in _RUNS
        and not vm.at("status", "printableStatus").present
        and clock.has_lasted(vm.created, _USUAL, cluster)
        and find(cluster, VMI, vm.namespace, vm.name) is None
    ]
