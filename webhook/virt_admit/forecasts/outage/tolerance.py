"""Which losses a cluster must survive, and the fields that decide whether it does.

Rules declare both. They are written here, because importing the models of KubeVirt and kube-scheduler takes as long as
``check`` of a whole file, which mostly knows no node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import (
    CLUSTER_AUTOSCALER,
    CLUSTER_INSTANCETYPE,
    CLUSTER_PREFERENCE,
    CONTROLLER_REVISION,
    CSI_CAPACITY,
    CSI_DRIVER,
    CSI_NODE,
    DATA_SOURCE,
    INSTANCETYPE,
    KARPENTER_NODE_POOL,
    KUBEVIRT,
    LIMIT_RANGE,
    MACHINE_AUTOSCALER,
    NAD,
    NAMESPACE,
    NODE,
    POD,
    PREFERENCE,
    PV,
    PVC,
    RESOURCE_QUOTA,
    STORAGE_CLASS,
    VM,
    VMI,
    VMIRS,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms


@dataclass(frozen=True)
class Tolerance:
    """Which losses the cluster must survive. The strictest one counts."""

    nodes: int = 1
    zones: int = 0
    reserve: int = field(default=0, metadata={"unit": "percent"})
    """Percent of what the nodes offer that must stay free."""


ONE_NODE: Final = Tolerance()
NOTHING: Final = Tolerance(0, 0, 0)

STARTING: Final = ("Always", "RerunOnFailure", "Once")
"""The run strategies with which a new VM starts."""


def may_ask(obj: Object, old: Object | None) -> bool:
    """Return whether anything in the object could ask for room, before anything is looked up."""
    strategy = vms.run_strategy(vms.vm_spec(obj))
    if kinds.of(obj) is not VMIRS and strategy not in (*STARTING, "Manual"):
        return False
    return old is None or obj.data.get("spec") != old.data.get("spec")


READS: Final[Reads] = {
    NODE: (
        "metadata.labels",
        "spec.unschedulable",
        "spec.taints",
        "status.allocatable",
        "status.conditions.type",
        "status.conditions.status",
        "metadata.annotations.node-labeller.kubevirt.io/skip-node",
    ),
    POD: (
        "metadata.labels",
        "metadata.ownerReferences",
        "spec.containers.name",
        "spec.containers.resources",
        "spec.initContainers.name",
        "spec.initContainers.resources",
        "spec.initContainers.restartPolicy",
        "spec.nodeName",
        "spec.overhead",
        "spec.priority",
        "spec.resources.requests",
        "spec.tolerations",
        "status.containerStatuses.name",
        "status.containerStatuses.allocatedResources",
        "status.containerStatuses.resources.requests",
        "status.initContainerStatuses.name",
        "status.initContainerStatuses.allocatedResources",
        "status.initContainerStatuses.resources.requests",
        "status.allocatedResources",
        "status.resources.requests",
        "status.phase",
        "spec.nodeSelector",
        "spec.affinity",
        "spec.preemptionPolicy",
        "spec.topologySpreadConstraints",
        "spec.volumes.persistentVolumeClaim.claimName",
    ),
    VMI: (
        "metadata.ownerReferences",
        "status.nodeName",
        "status.phase",
        "metadata.annotations.hooks.kubevirt.io/hookSidecars",
        "metadata.annotations.alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity",
        "metadata.labels",
        "metadata.creationTimestamp",
        "spec.evictionStrategy",
        "status.evacuationNodeName",
        "status.conditions.type",
        "status.conditions.status",
        "status.conditions.reason",
        "metadata.uid",
        "spec",
        "status.machine.type",
        "status.topologyHints.tscFrequency",
        "status.volumeStatus.name",
        "status.volumeStatus.persistentVolumeClaimInfo.accessModes",
    ),
    VM: (
        "spec.running",
        "spec.runStrategy",
    ),
    CONTROLLER_REVISION: (
        "metadata.labels",
        "data.metadata.name",
        "data.spec.annotations",
        "data.spec.cpu",
        "data.spec.gpus",
        "data.spec.hostDevices",
        "data.spec.ioThreads",
        "data.spec.ioThreadsPolicy",
        "data.spec.launchSecurity",
        "data.spec.memory",
        "data.spec.nodeSelector",
        "data.spec.devices",
        "data.spec.features",
        "data.spec.machine",
        "data.spec.preferSpreadSocketToCoreRatio",
        "data.spec.preferredArchitecture",
        "data.spec.preferredLaunchSecurity",
        "data.spec.volumes",
    ),
    INSTANCETYPE: (),
    CLUSTER_INSTANCETYPE: (),
    PREFERENCE: (),
    CLUSTER_PREFERENCE: (),
    DATA_SOURCE: (
        "metadata.labels.template.kubevirt.io/architecture",
        "spec.source.dataSource",
    ),
    KUBEVIRT: (),
    NAD: (
        "metadata.annotations.k8s.v1.cni.cncf.io/resourceName",
        "metadata.labels.network.harvesterhci.io/clusternetwork",
        "metadata.annotations.k8s.v1.cni.cncf.io/nodeSelector",
    ),
    NAMESPACE: (
        "metadata.annotations.openshift.io/node-selector",
        "metadata.labels",
    ),
    PVC: (
        "metadata.annotations.volume.kubernetes.io/selected-node",
        "spec.accessModes",
        "spec.resources.requests.storage",
        "spec.storageClassName",
        "spec.volumeName",
        "status.phase",
    ),
    PV: (
        "metadata.labels",
        "spec.claimRef.uid",
        "spec.nodeAffinity",
        "spec.csi.driver",
        "spec.csi.volumeHandle",
        "spec.storageClassName",
    ),
    STORAGE_CLASS: ("allowedTopologies", "provisioner", "volumeBindingMode"),
    CSI_DRIVER: ("spec.storageCapacity",),
    CSI_CAPACITY: ("capacity", "maximumVolumeSize", "nodeTopology", "storageClassName"),
    CSI_NODE: (
        "spec.drivers.name",
        "spec.drivers.allocatable",
    ),
    LIMIT_RANGE: ("spec",),
    RESOURCE_QUOTA: (
        "spec",
        "status",
    ),
    CLUSTER_AUTOSCALER: ("metadata.name",),
    MACHINE_AUTOSCALER: ("metadata.name",),
    KARPENTER_NODE_POOL: ("metadata.name",),
}
"""The fields that ``failover`` reads; a test compares."""
