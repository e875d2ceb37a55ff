"""Nodes that are instances of a cloud, whose controller deletes the Node of an instance that is
gone.

That ends its pods, so that VMs start again without a health check. An instance that is hung, or
only stopped, keeps its Node. Source:
kubernetes/kubernetes:staging/src/k8s.io/cloud-provider/controllers/nodelifecycle/
node_lifecycle_controller.go#MonitorNodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.placement.components import node_initializers
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.lookups import find

READS: Final[Reads] = {
    NODE: ("spec.providerID",),
    POD: ("metadata.name", "spec.containers.args", "spec.containers.command", *CONDITIONS),
}
_CLOUDS: Final = frozenset(("aws", "azure", "gce", "openstack", "vsphere"))
"""The schemes of providers that ask their cloud. Those of k3s and RKE2 ask Kubernetes itself."""
_CONTROLLER: Final = "cloud-controller-manager"
_PROVIDER: Final = re.compile(r"--cloud-provider[= ]([\w-]{1,40})")
BY: Final = "the cloud controller, which deletes the Node of an instance that is gone"


def is_deleted_with_instance(name: str, cluster: Cluster) -> bool:
    """Return whether a controller that runs here deletes a Node once its instance is gone."""
    node = find(cluster, NODE, "", name)
    scheme = (node.at("spec", "providerID").text or "").partition("://")[0] if node else ""
    return scheme in _CLOUDS and scheme in cluster.cached(_running)


def _running(cluster: Cluster) -> frozenset[str]:
    """Return the clouds whose controller runs for the nodes of this cluster.

    Those of tenant clusters run in namespaces of their control planes.
    """
    own = (pod for pod in cluster.known(POD) if _CONTROLLER in pod.name)
    ready = (
        pod for pod in own if pod.namespace in node_initializers.HOMES and pod.is_true("Ready")
    )
    return frozenset(cloud for pod in ready for cloud in _clouds(pod))


def _clouds(pod: Object) -> Iterator[str]:
    """Yield the cloud that a controller is told, or else that which its name has."""
    given = " ".join(
        each.text or ""
        for box in pod.at("spec", "containers").items()
        for part in ("command", "args")
        for each in box[part].items()
    )
    told = _PROVIDER.findall(given)
    yield from told or pod.name.replace("gcp", "gce").split("-")
