"""Host names that the node selector of a VMI has and its VM has not: left of a migration to a node.

Harvester up to 1.6 wrote the target of a migration into the VMI, and a migration that failed could
leave it there. KubeVirt lets no user change the spec of a VMI. The next VMI is made of the VM's
template. Sources: harvester/harvester:pkg/api/vm/handler.go#migrate, issues 8147 and 8212;
kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/vmi-update-admitter.go#Admit,
:pkg/virt-controller/watch/vm/vm.go#setupVMIFromVM.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import VM, VMI
from virt_admit.model.kubernetes.nodes import HOSTNAME
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vmis

if TYPE_CHECKING:  # to load it takes longer than this module
    from virt_admit.model.scheduler.pods import Pod

READS: Final[Reads] = {
    VM: ("spec.template.spec.nodeSelector", "spec.instancetype"),
    VMI: ("metadata.ownerReferences", "spec.nodeSelector", "status.phase"),
}
MIGRATION_TARGET: Final = "harvesterhci.io/migrationTargetNodeName"
"""The annotation with which Harvester marks the target of a migration in the VMI."""


def host(vmi: Object, cluster: Cluster) -> str:
    """Return the host that the selector of a running VMI alone names; empty: its VM names one too,
    it names none, or that is not known."""
    named = vmi.at("spec", "nodeSelector")[HOSTNAME].text or ""
    if not named or kinds.of(vmi) is not VMI or vmi.at("status", "phase").text != "Running":
        return ""
    vm = vmis.known_vm(vmi, cluster)
    if vm is None or vm.at("spec", "instancetype").present:  # an instance type may have a selector
        return ""
    own = vm.at("spec", "template", "spec", "nodeSelector")
    return "" if own[HOSTNAME].present else named


def without(pod: Pod, vmi: Object, cluster: Cluster) -> Pod:
    """Return the next pod of a VM: its next VMI has no host name that this one alone has."""
    if not host(vmi, cluster):
        return pod
    kept = {key: value for key, value in pod.node_selector.items() if key != HOSTNAME}
    return replace(pod, node_selector=kept)
