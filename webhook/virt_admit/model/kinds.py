"""The table of API kinds: everything that virt-admit judges or looks up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from virt_admit.model.objects import Object


@dataclass(frozen=True, order=True, slots=True)
class Kind:
    """One kind of the Kubernetes API. ``versions``: newest first; the first one is registered and listed."""

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    """Sub-resources of the kind that a rule may ask to see (``scale``)."""

    @property
    def resource(self) -> str:
        """``plural.group`` as in RBAC and in snapshots: ``persistentvolumeclaims``, ``virtualmachines.kubevirt.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """``group/version`` with the version that we list and register."""
        return f"{self.group}/{self.versions[0]}" if self.group else self.versions[0]

    def __str__(self) -> str:
        return self.resource


# What is judged
VM: Final = Kind("kubevirt.io", ("v1", "v1alpha3"), "virtualmachines", "VirtualMachine")
VMI: Final = Kind("kubevirt.io", ("v1", "v1alpha3"), "virtualmachineinstances", "VirtualMachineInstance")
VMIRS: Final = Kind(
    "kubevirt.io", ("v1", "v1alpha3"), "virtualmachineinstancereplicasets", "VirtualMachineInstanceReplicaSet"
)
VMIM: Final = Kind(
    "kubevirt.io", ("v1", "v1alpha3"), "virtualmachineinstancemigrations", "VirtualMachineInstanceMigration"
)
POOL: Final = Kind("pool.kubevirt.io", ("v1beta1", "v1alpha1"), "virtualmachinepools", "VirtualMachinePool")
KUBEVIRT: Final = Kind("kubevirt.io", ("v1", "v1alpha3"), "kubevirts", "KubeVirt")
HCO: Final = Kind("hco.kubevirt.io", ("v1", "v1beta1"), "hyperconvergeds", "HyperConverged")
CDI: Final = Kind("cdi.kubevirt.io", ("v1beta1",), "cdis", "CDI", namespaced=False)
STORAGE_PROFILE: Final = Kind("cdi.kubevirt.io", ("v1beta1",), "storageprofiles", "StorageProfile", namespaced=False)
MIGRATION_POLICY: Final = Kind(
    "migrations.kubevirt.io", ("v1alpha1",), "migrationpolicies", "MigrationPolicy", namespaced=False
)
NODE: Final = Kind("", ("v1",), "nodes", "Node", namespaced=False)
MHC: Final = Kind("machine.openshift.io", ("v1beta1",), "machinehealthchecks", "MachineHealthCheck")
MACHINE: Final = Kind("machine.openshift.io", ("v1beta1",), "machines", "Machine")
MACHINE_SET: Final = Kind("machine.openshift.io", ("v1beta1",), "machinesets", "MachineSet", subresources=("scale",))
CAPI_MHC: Final = Kind("cluster.x-k8s.io", ("v1beta2", "v1beta1"), "machinehealthchecks", "MachineHealthCheck")
NHC: Final = Kind("remediation.medik8s.io", ("v1alpha1",), "nodehealthchecks", "NodeHealthCheck", namespaced=False)
NM: Final = Kind("nodemaintenance.medik8s.io", ("v1beta1",), "nodemaintenances", "NodeMaintenance", namespaced=False)
NM_KUBEVIRT: Final = Kind(
    "nodemaintenance.kubevirt.io", ("v1beta1",), "nodemaintenances", "NodeMaintenance", namespaced=False
)
SNR_CONFIG: Final = Kind(
    "self-node-remediation.medik8s.io", ("v1alpha1",), "selfnoderemediationconfigs", "SelfNodeRemediationConfig"
)
SNR_TEMPLATE: Final = Kind(
    "self-node-remediation.medik8s.io",
    ("v1alpha1",),
    "selfnoderemediationtemplates",
    "SelfNodeRemediationTemplate",
)
FAR_TEMPLATE: Final = Kind(
    "fence-agents-remediation.medik8s.io",
    ("v1alpha1",),
    "fenceagentsremediationtemplates",
    "FenceAgentsRemediationTemplate",
)
MDR_TEMPLATE: Final = Kind(
    "machine-deletion-remediation.medik8s.io",
    ("v1alpha1",),
    "machinedeletionremediationtemplates",
    "MachineDeletionRemediationTemplate",
)

# What is only looked up
PVC: Final = Kind("", ("v1",), "persistentvolumeclaims", "PersistentVolumeClaim")
POD: Final = Kind("", ("v1",), "pods", "Pod")
DATA_VOLUME: Final = Kind("cdi.kubevirt.io", ("v1beta1",), "datavolumes", "DataVolume")
STORAGE_CLASS: Final = Kind("storage.k8s.io", ("v1",), "storageclasses", "StorageClass", namespaced=False)
CONTROLLER_REVISION: Final = Kind("apps", ("v1",), "controllerrevisions", "ControllerRevision")
PDB: Final = Kind("policy", ("v1",), "poddisruptionbudgets", "PodDisruptionBudget")
LEASE: Final = Kind("coordination.k8s.io", ("v1",), "leases", "Lease")
INSTANCETYPE: Final = Kind(
    "instancetype.kubevirt.io", ("v1beta1",), "virtualmachineinstancetypes", "VirtualMachineInstancetype"
)
CLUSTER_INSTANCETYPE: Final = Kind(
    "instancetype.kubevirt.io",
    ("v1beta1",),
    "virtualmachineclusterinstancetypes",
    "VirtualMachineClusterInstancetype",
    namespaced=False,
)
PREFERENCE: Final = Kind(
    "instancetype.kubevirt.io", ("v1beta1",), "virtualmachinepreferences", "VirtualMachinePreference"
)
CLUSTER_PREFERENCE: Final = Kind(
    "instancetype.kubevirt.io",
    ("v1beta1",),
    "virtualmachineclusterpreferences",
    "VirtualMachineClusterPreference",
    namespaced=False,
)
NAD: Final = Kind("k8s.cni.cncf.io", ("v1",), "network-attachment-definitions", "NetworkAttachmentDefinition")
CAPI_MACHINE: Final = Kind("cluster.x-k8s.io", ("v1beta2", "v1beta1"), "machines", "Machine")
METAL3_TEMPLATE: Final = Kind(
    "infrastructure.cluster.x-k8s.io", ("v1beta1",), "metal3remediationtemplates", "Metal3RemediationTemplate"
)
INFRASTRUCTURE: Final = Kind("config.openshift.io", ("v1",), "infrastructures", "Infrastructure", namespaced=False)
CLUSTER_VERSION: Final = Kind("config.openshift.io", ("v1",), "clusterversions", "ClusterVersion", namespaced=False)
CONFIG_NODE: Final = Kind("config.openshift.io", ("v1",), "nodes", "Node", namespaced=False)

ALL: Final[tuple[Kind, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Kind))

BUILT_IN_GROUPS: Final = frozenset(("", "apps", "policy", "coordination.k8s.io", "storage.k8s.io"))
"""The groups among ``ALL`` that every API server has; the others come with a CustomResourceDefinition."""

_BY_NAME: Final = {(kind.group, kind.kind): kind for kind in ALL}
_BY_API_VERSION: Final = {
    (f"{kind.group}/{version}" if kind.group else version, kind.kind): kind for kind in ALL for version in kind.versions
}
_BY_RESOURCE: Final = {kind.resource: kind for kind in ALL}


def find(group: str, kind: str) -> Kind | None:
    """The kind of that group and name. Never match by name alone: ``MachineHealthCheck`` exists in four groups."""
    return _BY_NAME.get((group, kind))


def guess(api_version: str, kind: str) -> Kind:
    """A kind that the table does not know, as most such kinds are. Only snapshots can hold objects of it."""
    group, _, version = api_version.rpartition("/")
    return Kind(group, (version,), f"{kind.lower()}s", kind)


def of(obj: Object) -> Kind | None:
    """The kind of an object, or None where the table does not know it."""
    api_version, kind = obj.api_version, obj.kind
    return _BY_API_VERSION.get((api_version, kind)) or _BY_NAME.get((obj.group, kind))


def by_resource(resource: str) -> Kind | None:
    """The kind with that ``plural.group``."""
    return _BY_RESOURCE.get(resource)
