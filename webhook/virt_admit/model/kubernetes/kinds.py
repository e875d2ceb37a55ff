"""The table of API kinds: everything that virt-admit judges or looks up."""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model.kubernetes.objects import Object


class Kind(NamedTuple):
    """One kind of the Kubernetes API, and everything virt-admit knows about it:
    a new kind is one record here.
    """

    group: str
    versions: tuple[str, ...]
    """Newest first. The first one is registered and listed."""
    plural: str
    kind: str
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    """Sub-resources of the kind that a rule may judge (``scale``)."""
    entry: str = ""
    """The entry of the webhook configurations (``install/manifests.py``). Empty:
    no rule judges it at admission.
    """
    every_version: bool = False
    """Whether rules judge the version that was sent, so that each one is registered;
    else the API server converts.
    """
    never_denied: bool = False
    """Whether findings lead to warnings at most, whatever the policy says, and to no fix."""
    created_only: bool = False
    """Whether updates are never judged."""
    judged_metadata: tuple[str, ...] = ()
    """Parts of the metadata of which every change makes an update be judged. Of others the keys in
    ``Rule.metadata`` do.
    """
    status_from_elsewhere: bool = False
    """Whether rules trust the status, so that one sent on CREATE is ignored: output of
    ``kubectl get`` has an earlier one.
    """
    numerous: bool = False
    """Whether it has so many objects that the cache keeps JSON text, decoded on each look-up."""
    lookup_namespace: str = ""
    """The only namespace in which rules look at admission. Empty: every namespace."""
    snapshot_filtered: bool = False
    """Whether a snapshot file holds only the fields that rules read:
    most objects belong to other applications.
    """
    not_at_admission: bool = False
    """Whether the webhook never looks the kind up, because the objects would fill its memory.
    The command line does.
    """

    @property
    def resource(self) -> str:
        """``plural.group`` as in RBAC and in snapshots: ``virtualmachines.kubevirt.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """``group/version`` with the version that we list and register."""
        return f"{self.group}/{self.versions[0]}" if self.group else self.versions[0]

    def __str__(self) -> str:
        return self.resource


class _Api(NamedTuple):
    """A group of the API with the versions of its kinds."""

    group: str
    versions: tuple[str, ...]

    def __call__(self, kind: str, plural: str = "") -> tuple[str, tuple[str, ...], str, str]:
        """Return the first fields of a kind; most plurals are regular."""
        return self.group, self.versions, plural or f"{kind.lower()}s", kind


_ADMISSION: Final = _Api("admissionregistration.k8s.io", ("v1",))
_APPS: Final = _Api("apps", ("v1",))
_CAPI: Final = _Api("cluster.x-k8s.io", ("v1beta2", "v1beta1"))
_CDI: Final = _Api("cdi.kubevirt.io", ("v1beta1",))
_CORE: Final = _Api("", ("v1",))
_FAR: Final = _Api("fence-agents-remediation.medik8s.io", ("v1alpha1",))
_HARVESTER: Final = _Api("harvesterhci.io", ("v1beta1",))
_KUBEVIRT: Final = _Api("kubevirt.io", ("v1", "v1alpha3"))
_LONGHORN: Final = _Api("longhorn.io", ("v1beta2",))
_MACHINE_API: Final = _Api("machine.openshift.io", ("v1beta1",))
_MCO: Final = _Api("machineconfiguration.openshift.io", ("v1",))
_MDR: Final = _Api("machine-deletion-remediation.medik8s.io", ("v1alpha1",))
_METAL3: Final = _Api("infrastructure.cluster.x-k8s.io", ("v1beta1",))
_OLM: Final = _Api("operators.coreos.com", ("v1alpha1",))
_OPENSHIFT_CONFIG: Final = _Api("config.openshift.io", ("v1",))
_ROOK: Final = _Api("ceph.rook.io", ("v1",))
_SNAPSHOTS: Final = _Api("snapshot.kubevirt.io", ("v1beta1", "v1alpha1"))
_CONTROL_PLANE: Final = _Api("controlplane.cluster.x-k8s.io", ("v1beta2", "v1beta1"))
_SNR: Final = _Api("self-node-remediation.medik8s.io", ("v1alpha1",))
_SRIOV: Final = _Api("sriovnetwork.openshift.io", ("v1",))
_STORAGE: Final = _Api("storage.k8s.io", ("v1",))
_VLANS: Final = _Api("network.harvesterhci.io", ("v1beta1",))
_TYPES: Final = _Api("instancetype.kubevirt.io", ("v1beta1",))

_ANNOTATIONS: Final = ("annotations",)

# What is judged. The order is that of the kinds within an entry of the webhook configurations.
VM: Final = Kind(
    *_KUBEVIRT("VirtualMachine"),
    entry="virtual-machines",
    judged_metadata=("annotations", "labels"),
    numerous=True,
    status_from_elsewhere=True,
)
POOL: Final = Kind(
    "pool.kubevirt.io",
    ("v1beta1", "v1alpha1"),
    "virtualmachinepools",
    "VirtualMachinePool",
    entry="virtual-machines",
    judged_metadata=("annotations", "labels"),
)
VMIRS: Final = Kind(
    *_KUBEVIRT("VirtualMachineInstanceReplicaSet"),
    entry="virtual-machines",
    judged_metadata=("annotations", "labels"),
)
VM_CLONE: Final = Kind(
    "clone.kubevirt.io",
    ("v1beta1", "v1alpha1"),
    "virtualmachineclones",
    "VirtualMachineClone",
    entry="clones",
)
VMI: Final = Kind(
    *_KUBEVIRT("VirtualMachineInstance"),
    entry="instances",
    never_denied=True,  # a rejected VMI keeps its VM from starting
    # no status sub-resource: each heartbeat and each step of a migration is an update
    created_only=True,
    numerous=True,
    status_from_elsewhere=True,
)
MHC: Final = Kind(*_MACHINE_API("MachineHealthCheck"), entry="health-checks")
CAPI_MHC: Final = Kind(*_CAPI("MachineHealthCheck"), entry="health-checks", every_version=True)
NHC: Final = Kind(
    "remediation.medik8s.io",
    ("v1alpha1",),
    "nodehealthchecks",
    "NodeHealthCheck",
    namespaced=False,
    entry="health-checks",
)
MACHINE: Final = Kind(*_MACHINE_API("Machine"), entry="machines")
MACHINE_SET: Final = Kind(*_MACHINE_API("MachineSet"), subresources=("scale",), entry="machines")
NM: Final = Kind(
    "nodemaintenance.medik8s.io",
    ("v1beta1",),
    "nodemaintenances",
    "NodeMaintenance",
    namespaced=False,
    entry="maintenance",
)
NM_KUBEVIRT: Final = NM._replace(group="nodemaintenance.kubevirt.io")
SNR_TEMPLATE: Final = Kind(*_SNR("SelfNodeRemediationTemplate"), entry="templates")
SNR_CONFIG: Final = SNR_TEMPLATE._replace(
    plural="selfnoderemediationconfigs", kind="SelfNodeRemediationConfig"
)
FAR_TEMPLATE: Final = Kind(*_FAR("FenceAgentsRemediationTemplate"), entry="templates")
MDR_TEMPLATE: Final = Kind(*_MDR("MachineDeletionRemediationTemplate"), entry="templates")
SNR: Final = Kind(*_SNR("SelfNodeRemediation"))
FAR: Final = Kind(*_FAR("FenceAgentsRemediation"))
MDR: Final = Kind(*_MDR("MachineDeletionRemediation"))
NODE: Final = Kind(
    *_CORE("Node"),
    namespaced=False,
    entry="nodes",
    never_denied=True,  # a rejected Node update stops drains and upgrades
)
HCO: Final = Kind(
    "hco.kubevirt.io",
    ("v1", "v1beta1"),
    "hyperconvergeds",
    "HyperConverged",
    entry="hyperconverged",
    every_version=True,
    judged_metadata=_ANNOTATIONS,
)
KUBEVIRT: Final = Kind(*_KUBEVIRT("KubeVirt"), entry="configuration", judged_metadata=_ANNOTATIONS)
CDI: Final = Kind(
    *_CDI("CDI"), namespaced=False, entry="configuration", judged_metadata=_ANNOTATIONS
)
MIGRATION_POLICY: Final = Kind(
    "migrations.kubevirt.io",
    ("v1alpha1",),
    "migrationpolicies",
    "MigrationPolicy",
    namespaced=False,
    entry="configuration",
    judged_metadata=_ANNOTATIONS,
)
STORAGE_PROFILE: Final = Kind(
    *_CDI("StorageProfile"), namespaced=False, entry="configuration", judged_metadata=_ANNOTATIONS
)
VMIM: Final = Kind(
    *_KUBEVIRT("VirtualMachineInstanceMigration"),
    entry="configuration",
    judged_metadata=_ANNOTATIONS,
)

# What only check and scan judge
VALIDATING_CONFIGURATION: Final = Kind(
    *_ADMISSION("ValidatingWebhookConfiguration"), namespaced=False
)
MUTATING_CONFIGURATION: Final = Kind(*_ADMISSION("MutatingWebhookConfiguration"), namespaced=False)
API_SERVICE: Final = Kind(
    "apiregistration.k8s.io", ("v1",), "apiservices", "APIService", namespaced=False
)
KUBE_DESCHEDULER: Final = Kind(
    "operator.openshift.io", ("v1",), "kubedeschedulers", "KubeDescheduler"
)

# What is only looked up
PVC: Final = Kind(*_CORE("PersistentVolumeClaim"), numerous=True)
POD: Final = Kind(*_CORE("Pod"), numerous=True, snapshot_filtered=True)
PV: Final = Kind(*_CORE("PersistentVolume"), namespaced=False, numerous=True)
CSI_NODE: Final = Kind(*_STORAGE("CSINode"), namespaced=False)
NAMESPACE: Final = Kind(*_CORE("Namespace"), namespaced=False)
RESOURCE_QUOTA: Final = Kind(*_CORE("ResourceQuota"))
LIMIT_RANGE: Final = Kind(*_CORE("LimitRange"))
MACHINE_CONFIG_POOL: Final = Kind(*_MCO("MachineConfigPool"), namespaced=False)
MACHINE_CONFIG_NODE: Final = Kind(*_MCO("MachineConfigNode"), namespaced=False)
KUBELET_CONFIG: Final = Kind(*_MCO("KubeletConfig"), namespaced=False, not_at_admission=True)
VM_SNAPSHOT: Final = Kind(
    *_SNAPSHOTS("VirtualMachineSnapshot"), numerous=True, not_at_admission=True
)
VM_SNAPSHOT_CONTENT: Final = VM_SNAPSHOT._replace(
    plural="virtualmachinesnapshotcontents", kind="VirtualMachineSnapshotContent"
)
VM_RESTORE: Final = VM_SNAPSHOT._replace(
    plural="virtualmachinerestores", kind="VirtualMachineRestore"
)
VOLUME_SNAPSHOT: Final = Kind(
    "snapshot.storage.k8s.io",
    ("v1",),
    "volumesnapshots",
    "VolumeSnapshot",
    numerous=True,
    not_at_admission=True,
)
DATA_VOLUME: Final = Kind(*_CDI("DataVolume"), numerous=True)
DATA_SOURCE: Final = Kind(*_CDI("DataSource"))
STORAGE_CLASS: Final = Kind(*_STORAGE("StorageClass", "storageclasses"), namespaced=False)
CSI_DRIVER: Final = Kind(*_STORAGE("CSIDriver"), namespaced=False, not_at_admission=True)
CSI_CAPACITY: Final = Kind(
    *_STORAGE("CSIStorageCapacity", "csistoragecapacities"), numerous=True, not_at_admission=True
)
CONTROLLER_REVISION: Final = Kind(
    *_APPS("ControllerRevision"), numerous=True, snapshot_filtered=True
)
PRIORITY_CLASS: Final = Kind(
    "scheduling.k8s.io",
    ("v1",),
    "priorityclasses",
    "PriorityClass",
    namespaced=False,
    not_at_admission=True,
)
PDB: Final = Kind("policy", ("v1",), "poddisruptionbudgets", "PodDisruptionBudget")
LEASE: Final = Kind(
    "coordination.k8s.io", ("v1",), "leases", "Lease", lookup_namespace="medik8s-leases"
)
INSTANCETYPE: Final = Kind(*_TYPES("VirtualMachineInstancetype"))
CLUSTER_INSTANCETYPE: Final = Kind(*_TYPES("VirtualMachineClusterInstancetype"), namespaced=False)
PREFERENCE: Final = Kind(*_TYPES("VirtualMachinePreference"))
CLUSTER_PREFERENCE: Final = Kind(*_TYPES("VirtualMachineClusterPreference"), namespaced=False)
CSR: Final = Kind(
    *_Api("certificates.k8s.io", ("v1",))("CertificateSigningRequest"), namespaced=False
)
NAD: Final = Kind(
    "k8s.cni.cncf.io", ("v1",), "network-attachment-definitions", "NetworkAttachmentDefinition"
)
CAPI_MACHINE: Final = Kind(*_CAPI("Machine"))
MACHINE_DRAIN_RULE: Final = Kind(*_CAPI("MachineDrainRule"))
CAPI_CLUSTER: Final = Kind(*_CAPI("Cluster"))
MACHINE_DEPLOYMENT: Final = Kind(*_CAPI("MachineDeployment"))
METAL3_TEMPLATE: Final = Kind(*_METAL3("Metal3RemediationTemplate"))
METAL3_REMEDIATION: Final = Kind(*_METAL3("Metal3Remediation"))
METAL3_MACHINE_TEMPLATE: Final = Kind(
    *_Api(_METAL3.group, ("v1beta2", "v1beta1"))("Metal3MachineTemplate")
)
SERVICE: Final = Kind(*_CORE("Service"), not_at_admission=True)
ENDPOINT_SLICE: Final = Kind(
    *_Api("discovery.k8s.io", ("v1",))("EndpointSlice"), numerous=True, not_at_admission=True
)
DEPLOYMENT: Final = Kind(
    *_APPS("Deployment"), numerous=True, snapshot_filtered=True, not_at_admission=True
)
DAEMON_SET: Final = Kind(*_APPS("DaemonSet"), snapshot_filtered=True, not_at_admission=True)
STATEFUL_SET: Final = Kind(
    *_APPS("StatefulSet"), numerous=True, snapshot_filtered=True, not_at_admission=True
)
REPLICA_SET: Final = DEPLOYMENT._replace(plural="replicasets", kind="ReplicaSet")
JOB: Final = Kind(
    "batch", ("v1",), "jobs", "Job", numerous=True, snapshot_filtered=True, not_at_admission=True
)
WORKFLOW: Final = JOB._replace(
    group="argoproj.io", versions=("v1alpha1",), plural="workflows", kind="Workflow"
)
SCALED_OBJECT: Final = Kind(
    *_Api("keda.sh", ("v1alpha1",))("ScaledObject"), snapshot_filtered=True, not_at_admission=True
)
AUTOSCALER: Final = SCALED_OBJECT._replace(
    group="autoscaling",
    versions=("v2", "v1"),
    plural="horizontalpodautoscalers",
    kind="HorizontalPodAutoscaler",
)
CLUSTER_AUTOSCALER: Final = Kind(
    "autoscaling.openshift.io", ("v1",), "clusterautoscalers", "ClusterAutoscaler", namespaced=False
)
MACHINE_AUTOSCALER: Final = Kind(
    "autoscaling.openshift.io", ("v1beta1",), "machineautoscalers", "MachineAutoscaler"
)
KARPENTER_NODE_POOL: Final = Kind(
    "karpenter.sh", ("v1", "v1beta1"), "nodepools", "NodePool", namespaced=False
)
KARPENTER_NODE_CLAIM: Final = KARPENTER_NODE_POOL._replace(plural="nodeclaims", kind="NodeClaim")
INFRASTRUCTURE: Final = Kind(*_OPENSHIFT_CONFIG("Infrastructure"), namespaced=False)
CLUSTER_VERSION: Final = Kind(*_OPENSHIFT_CONFIG("ClusterVersion"), namespaced=False)
CLUSTER_OPERATOR: Final = Kind(*_OPENSHIFT_CONFIG("ClusterOperator"), namespaced=False)
CONFIG_NODE: Final = Kind(*_OPENSHIFT_CONFIG("Node"), namespaced=False)
CONTROL_PLANE_SET: Final = Kind(
    "machine.openshift.io", ("v1",), "controlplanemachinesets", "ControlPlaneMachineSet"
)
CAPI_MACHINE_SET: Final = Kind(*_CAPI("MachineSet"))
KUBEADM: Final = Kind(*_CONTROL_PLANE("KubeadmControlPlane"))
RKE2_CONTROL_PLANE: Final = Kind(*_CONTROL_PLANE("RKE2ControlPlane"))
K0SMOTRON_CONTROL_PLANE: Final = Kind(*_CONTROL_PLANE("K0smotronControlPlane"))
TALOS_CONTROL_PLANE: Final = KUBEADM._replace(
    versions=("v1alpha3",), plural="taloscontrolplanes", kind="TalosControlPlane"
)
IP_CLAIM: Final = Kind(
    "ipam.cluster.x-k8s.io", ("v1beta2", "v1beta1", "v1alpha1"), "ipaddressclaims", "IPAddressClaim"
)
BARE_METAL_HOST: Final = Kind("metal3.io", ("v1alpha1",), "baremetalhosts", "BareMetalHost")
HARVESTER_UPGRADE: Final = Kind(*_HARVESTER("Upgrade"))
HARVESTER_SETTING: Final = Kind(*_HARVESTER("Setting"), namespaced=False)
HARVESTER_RESTORE: Final = Kind(
    *_HARVESTER("VirtualMachineRestore"), numerous=True, not_at_admission=True
)
HARVESTER_BACKUP: Final = Kind(
    *_HARVESTER("VirtualMachineBackup"), numerous=True, not_at_admission=True
)
HARVESTER_SCHEDULE: Final = Kind(*_HARVESTER("ScheduleVMBackup"), not_at_admission=True)
HARVESTER_VERSION: Final = Kind(*_HARVESTER("Version"), not_at_admission=True)
HARVESTER_ADDON: Final = Kind(*_HARVESTER("Addon"), not_at_admission=True)
UPGRADE_PLAN: Final = Kind(
    "management.harvesterhci.io", ("v1beta1",), "upgradeplans", "UpgradePlan", namespaced=False
)
PLAN: Final = Kind("upgrade.cattle.io", ("v1",), "plans", "Plan")
FORKLIFT_PLAN: Final = Kind("forklift.konveyor.io", ("v1beta1",), "plans", "Plan")
FORKLIFT_PROVIDER: Final = FORKLIFT_PLAN._replace(plural="providers", kind="Provider")
RANCHER_CLUSTER: Final = Kind("provisioning.cattle.io", ("v1",), "clusters", "Cluster")
FLEET_BUNDLE: Final = Kind("fleet.cattle.io", ("v1alpha1",), "bundles", "Bundle")
FLEET_CLUSTER: Final = FLEET_BUNDLE._replace(plural="clusters", kind="Cluster")
MANAGED_CHART: Final = Kind("management.cattle.io", ("v3",), "managedcharts", "ManagedChart")
TALOS_UPGRADE: Final = Kind(
    "tuppr.home-operations.com", ("v1alpha1",), "talosupgrades", "TalosUpgrade", namespaced=False
)
KUBERNETES_UPGRADE: Final = TALOS_UPGRADE._replace(
    plural="kubernetesupgrades", kind="KubernetesUpgrade"
)
SUBSCRIPTION: Final = Kind(*_OLM("Subscription"))
INSTALL_PLAN: Final = Kind(*_OLM("InstallPlan"))
VOLUME_ATTACHMENT: Final = Kind(
    *_STORAGE("VolumeAttachment"),
    namespaced=False,
    numerous=True,
    snapshot_filtered=True,
    not_at_admission=True,
)
LONGHORN_SETTING: Final = Kind(*_LONGHORN("Setting"))
LONGHORN_VOLUME: Final = Kind(*_LONGHORN("Volume"), numerous=True)
LONGHORN_REPLICA: Final = Kind(*_LONGHORN("Replica"), numerous=True)
LONGHORN_ATTACHMENT: Final = Kind(*_LONGHORN("VolumeAttachment"), numerous=True)
LONGHORN_ENGINE: Final = Kind(*_LONGHORN("Engine"), numerous=True)
LONGHORN_BACKUP: Final = Kind(*_LONGHORN("Backup"), numerous=True, not_at_admission=True)
LONGHORN_NODE: Final = Kind(*_LONGHORN("Node"))
LONGHORN_IMAGE: Final = Kind(*_LONGHORN("EngineImage"))
LONGHORN_BACKING_IMAGE: Final = Kind(*_LONGHORN("BackingImage"))
LONGHORN_MANAGER: Final = Kind(*_LONGHORN("InstanceManager"))
CEPH_CLUSTER: Final = Kind(*_ROOK("CephCluster"))
CEPH_BLOCK_POOL: Final = Kind(*_ROOK("CephBlockPool"))
TRIDENT_BACKEND: Final = Kind(
    "trident.netapp.io", ("v1",), "tridentbackends", "TridentBackend", not_at_admission=True
)
NETWORK_FENCE: Final = Kind(
    *_Api("csiaddons.openshift.io", ("v1alpha1",))("NetworkFence"),
    namespaced=False,
    not_at_admission=True,
)
CNPG_CLUSTER: Final = Kind("postgresql.cnpg.io", ("v1",), "clusters", "Cluster")
NOOBAA_CLUSTER: Final = Kind("postgresql.cnpg.noobaa.io", ("v1",), "clusters", "Cluster")
_NNC: Final = "NodeNetworkConfiguration"
NNCP: Final = Kind(
    "nmstate.io", ("v1",), f"{_NNC}Policies".lower(), f"{_NNC}Policy", namespaced=False
)
NNCE: Final = Kind(
    "nmstate.io", ("v1beta1",), f"{_NNC}Enactments".lower(), f"{_NNC}Enactment", namespaced=False
)
NODE_NETWORK: Final = Kind(
    *_Api("nmstate.io", ("v1beta1",))("NodeNetworkState"), namespaced=False, not_at_admission=True
)
SRIOV_POLICY: Final = Kind(
    *_SRIOV("SriovNetworkNodePolicy", "sriovnetworknodepolicies"), not_at_admission=True
)
VLAN_CONFIG: Final = Kind(*_VLANS("VlanConfig"), namespaced=False, not_at_admission=True)
ELASTICSEARCH: Final = Kind(
    "elasticsearch.k8s.elastic.co", ("v1",), "elasticsearches", "Elasticsearch"
)

ALL: Final[tuple[Kind, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Kind)
)

BUILT_IN_GROUPS: Final = frozenset(
    ("", "apps", "autoscaling", "batch", "policy", "certificates.k8s.io")
) | {
    f"{group}.k8s.io"
    for group in (
        "admissionregistration",
        "apiregistration",
        "coordination",
        "discovery",
        "scheduling",
        "storage",
    )
}
"""The groups among ``ALL`` that every API server has; the others come with a
CustomResourceDefinition.
"""

_BY_NAME: Final = {(kind.group, kind.kind): kind for kind in ALL}
_BY_API_VERSION: Final = {
    (f"{kind.group}/{version}" if kind.group else version, kind.kind): kind
    for kind in ALL
    for version in kind.versions
}
_BY_RESOURCE: Final = {kind.resource: kind for kind in ALL}


def find(group: str, kind: str) -> Kind | None:
    """The kind of that group and name.

    Never match by name alone: ``MachineHealthCheck`` exists in four groups.
    """
    return _BY_NAME.get((group, kind))


def guess(api_version: str, kind: str) -> Kind:
    """A kind that the table does not know, as most such kinds are. Discovery finds its objects."""
    group, _, version = api_version.rpartition("/")
    return Kind(group, (version,), f"{kind.lower()}s", kind)


def of(obj: Object) -> Kind | None:
    """The kind of an object, or None where the table does not know it."""
    # asked 30 times in a review
    api_version, kind = obj.data.get("apiVersion"), obj.data.get("kind")
    if isinstance(api_version, str) and isinstance(kind, str):
        found = _BY_API_VERSION.get((api_version, kind))
        if found is not None:
            return found
    return _BY_NAME.get((obj.group, obj.kind))  # another version of a known kind


def by_resource(resource: str) -> Kind | None:
    """The kind with that ``plural.group``."""
    return _BY_RESOURCE.get(resource)
