"""Nodes that are instances of a cloud, whose controller deletes the Node of an instance that is
gone.

That ends its pods, so that VMs start again without a health check. An instance that is hung, or
only stopped, keeps its Node. Source:
kubernetes/kubernetes:staging/src/k8s.io/cloud-provider/controllers/nodelifecycle/
node_lifecycle_controller.go#MonitorNodes.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find

READS: Final[Reads] = {
    NODE: ("spec.providerID",),
    POD: ("metadata.name", "status.conditions.type", "status.conditions.status"),
}
_CLOUDS: Final = ("aws", "azure", "gce", "openstack", "vsphere")
"""The schemes of providers that ask their cloud. Those of k3s and RKE2 ask Kubernetes itself."""
_CONTROLLER: Final = "cloud-controller-manager"
BY: Final = "the cloud controller, which deletes the Node of an instance that is gone"


def is_deleted_with_instance(name: str, cluster: Cluster) -> bool:
    """Return whether a controller that runs here deletes a Node once its instance is gone."""
    node = find(cluster, NODE, "", name)
    scheme = (node.at("spec", "providerID").text or "").partition("://")[0] if node else ""
    return scheme in _CLOUDS and cluster.cached(_runs)


def _runs(cluster: Cluster) -> bool:
    pods = (pod for pod in cluster.known(POD) if _CONTROLLER in pod.name)
    return any(pod.is_true("Ready") for pod in pods)
