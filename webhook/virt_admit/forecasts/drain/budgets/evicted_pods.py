"""Which pods of a node ``kubectl drain`` evicts, and for which it waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.lookups import find, grouped

MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation of pods that the kubelet runs from a file: a drain leaves them alone."""


def is_of_vm(pod: Object) -> bool:
    """Return whether the pod runs a VM or attaches its volumes:
    KubeVirt moves these with the VM.
    """
    return pod.labels.get("kubevirt.io") in ("virt-launcher", "hotplug-disk")


def keeps_no_data(pod: Object) -> bool:
    """Return whether the emptyDir volumes of a pod have no data of value: those of KubeVirt have
    sockets and profiles.

    Source:
    kubevirt/kubevirt:pkg/virt-operator/resource/generate/components/deployments.go#attachProfileVolume.
    """
    return is_of_vm(pod) or pod.labels.get("kubevirt.io", "").startswith("virt-")


def by_node(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the known pods by their node."""
    placed = (pod for pod in cluster.known(POD) if pod.at("spec", "nodeName").text)
    return grouped(placed, lambda pod: pod.at("spec", "nodeName").text or "")


def has_nothing_to_evict(node: str, cluster: Cluster) -> bool:
    """Return whether a drain of a node is known to evict no pod and to wait for none."""
    here = entry(cluster, by_node, node) or ()
    return not unlisted(cluster, POD) and not any(is_evicted(pod) or lingers(pod) for pod in here)


def is_evicted(pod: Object) -> bool:
    """Return whether a drain evicts the pod: not those of DaemonSets, of files,
    and those that have ended.
    """
    return not is_left_alone(pod) and not pod.ended


def lingers(pod: Object) -> bool:
    """Return whether a pod has ended and is being deleted:
    ``kubectl drain`` waits until it is gone, too.
    """
    return pod.deleted and pod.ended and not is_left_alone(pod)


def is_left_alone(pod: Object) -> bool:
    """Return whether no drain touches the pod: it is of a DaemonSet,
    or the kubelet runs it from a file.
    """
    return MIRROR in pod.annotations or bool(pod.owned_by("DaemonSet"))


def only_ends(pod: Object) -> bool:
    """Return whether a pod is being deleted, and nothing but its kubelet has to confirm its end."""
    return pod.deleted and not any(item.text for item in pod.metadata["finalizers"].items())


def is_on_silent_node(pod: Object, cluster: Cluster) -> bool:
    """Return whether the node of a pod is known not to be Ready:
    nothing there can report that the pod has ended.
    """
    node = find(cluster, NODE, "", pod.at("spec", "nodeName").text)
    return node is not None and node.condition("Ready")["status"].text in ("False", "Unknown")
