"""Taints that a controller sets while a node is not fit for pods: no pod should tolerate them, and
the controller removes them.

Sources: piraeusdatastore/piraeus-ha-controller:README.md;
cilium/cilium:Documentation/installation/taints.rst;
kubernetes-sigs/cluster-api:api/core/v1beta1/common_types.go#NodeUninitializedTaint;
kubernetes/cloud-provider:api/well_known_taints.go; kubernetes-sigs/karpenter:pkg/apis/v1/taints.go;
kubernetes-sigs/aws-ebs-csi-driver:docs/install.md; medik8s/common:pkg/nodes;
kubernetes/autoscaler:cluster-autoscaler/utils/taints/taints.go, :cluster-autoscaler/FAQ.md
(start-up taints); istio/istio:pilot/pkg/controllers/untaint/nodeuntainter.go;
gardener/gardener:docs/usage/advanced/ node-readiness.md;
kubernetes-sigs/node-readiness-controller:README.md;
kubernetes-sigs/karpenter:pkg/scheduling/taints.go;
dell/karavi-resiliency:internal/monitor/monitor.go#StartPodMonitor, controller.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_OWNERS: Final[Mapping[str, str]] = {
    "cni.istio.io/": "Istio",
    "drbd.linbit.com/": "the high-availability controller of LINSTOR",
    "karpenter.sh/": "Karpenter",
    "medik8s.io/": "a remediator of medik8s",
    "node.cilium.io/": "Cilium",
    "node.cloudprovider.kubernetes.io/": "the cloud controller manager",
    "node.cluster.x-k8s.io/": "Cluster API",
    "node.gardener.cloud/critical-components-not-ready": "Gardener",
    "node.kubernetes.io/": "Kubernetes",
    "readiness.k8s.io/": "the node readiness controller",
    "remediation.medik8s.io/": "a remediator of medik8s",
    "startup-taint.cluster-autoscaler.kubernetes.io/": (
        "the agent that is to run on each node first"
    ),
    "DeletionCandidateOfClusterAutoscaler": "the cluster autoscaler",
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler",
}
"""By the beginning of the key."""
MEDIK8S: Final = ("medik8s.io/", "remediation.medik8s.io/")
"""How the keys of medik8s begin: the second one of remediators released since 2026."""
_AGENT: Final = "/agent-not-ready"
"""The end of the keys of CSI drivers, whose agent removes the taint when it runs on the node."""
_PODMON: Final = ".podmon.storage.dell.com"
"""The end of the keys of podmon, after the driver."""
_OFFLINE: Final = ("offline.", ".storage.dell.com")
"""Begin and end of the keys of podmon, around the driver, while the driver's pod on the node is not
ready, as in each update of it (controller.go#controllerModeDriverPodHandler)."""
_AGENTS: Final[Mapping[str, str]] = {"cni.istio.io/not-ready": "istio.io"}
"""The domain of other agents of the cluster itself, by the key."""


def owner(key: str) -> str:
    """Return which controller sets a taint and removes it; empty: people set it."""
    if key.endswith(_AGENT):
        return f"the agent of {key.removesuffix(_AGENT)}"
    if is_of_podmon(key) or is_of_dell_driver(key):
        return "podmon of Dell CSM Resiliency"
    return next((who for start, who in _OWNERS.items() if key.startswith(start)), "")


def is_of_podmon(key: str) -> bool:
    """Whether Dell CSM Resiliency sets a taint, on a node to which an array lost its connection."""
    return key.endswith(_PODMON)


def is_of_dell_driver(key: str) -> bool:
    """Whether Dell CSM Resiliency sets a taint, on a node whose driver pod is not ready."""
    begin, end = _OFFLINE
    return key.startswith(begin) and key.endswith(end)


def agent_domain(key: str) -> str:
    """Return the domain of the agent that removes a taint, as ``ebs.csi.aws.com``; empty:
    no agent on the node does.
    """
    return key.removesuffix(_AGENT) if key.endswith(_AGENT) else _AGENTS.get(key, "")


def is_removed_by_agent(key: str) -> bool:
    """Whether the agent on the node removes a taint itself. Istio's is removed by its pilot."""
    return key.endswith(_AGENT)


_BY_CONTROLLER: Final = (
    "/uninitialized",
    "karpenter.sh/unregistered",
    "node.gardener.cloud/critical-components-not-ready",
)
_STARTING: Final = ("readiness.k8s.io/", "startup-taint.cluster-autoscaler.kubernetes.io/")


def is_of_registration(key: str) -> bool:
    """Whether a new node has this taint until its controller has seen it,
    which may run outside of the cluster.
    """
    return key.endswith(_BY_CONTROLLER)


def is_of_start(key: str) -> bool:
    """Whether a new node has this taint until its controller or agent has seen it."""
    return is_of_registration(key) or bool(agent_domain(key)) or key.startswith(_STARTING)


_PODS: Final[Mapping[str, tuple[str, str]]] = {
    "node.cluster.x-k8s.io/": ("cluster.x-k8s.io/provider", "cluster-api")
}
"""The label of the pods that remove a taint
(kubernetes-sigs/cluster-api:core/config/default/kustomization.yaml).
"""


def remover(key: str) -> tuple[str, str] | None:
    """Return the label of the pods that remove a taint, if they have one in each installation."""
    return next((label for start, label in _PODS.items() if key.startswith(start)), None)
