"""What an administrator does with a lost node by hand, in the release of the cluster.

The taint out-of-service ends the pods of a node and detaches its volumes from Kubernetes 1.26 on.
In 1.24 and 1.25 it does so only with the alpha gate NodeOutOfServiceVolumeDetach, before that
never. Otherwise the pods end when the kubelet is back, or when the Node object is gone, and their
volumes are detached by force six minutes after that. The deletion of the Node of a control-plane
node may also end its membership of etcd, so it is not advised. Sources:
kubernetes/kubernetes:pkg/features/kube_features.go#NodeOutOfServiceVolumeDetach,
pkg/controller/podgc/gc_controller.go#gcTerminating, #gcOrphaned,
pkg/controller/volume/attachdetach/reconciler/reconciler.go#reconcile;
k3s-io/k3s:pkg/etcd/member_controller.go.
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find
from virt_admit.model.remediation import fence_taints

READS: Final[Reads] = {NODE: ("metadata.labels", "status.nodeInfo.kubeletVersion")}

_SINCE: Final = (1, 26)
_NOW: Final = "as a decision"
_RELEASE: Final = re.compile(r"v?([0-9]{1,9})\.([0-9]{1,9})")


def taint_works(cluster: Cluster) -> bool:
    """Return whether the taint out-of-service has an effect, or may have: see ``unsure``."""
    release = _release(cluster.server_version)
    return release is None or release >= _SINCE


def unsure(cluster: Cluster) -> str:
    """Return that the taint may have no effect, as the release is not known, in brackets; empty:
    it is.

    No kubelet is newer than its API server (https://kubernetes.io/releases/version-skew-policy/).
    """
    if _release(cluster.server_version) is not None or cluster.cached(_has_later_kubelet):
        return ""
    return " (the taint has an effect from Kubernetes 1.26 on, and the release here is not known)"


def _has_later_kubelet(cluster: Cluster) -> bool:
    kubelets = (
        _release(each.at("status", "nodeInfo", "kubeletVersion").text)
        for each in cluster.known(NODE)
    )
    return any(each is not None and each >= _SINCE for each in kubelets)


def _release(text: str | None) -> tuple[int, int] | None:
    found = _RELEASE.match(text or "")
    return (int(found[1]), int(found[2])) if found is not None else None


def way(node: str, cluster: Cluster, when: str = _NOW) -> str:
    """Return what frees the pods and volumes of a lost node, as an imperative.

    Args:
        node: its name.
        cluster: the cluster.
        when: what comes before a declaration that it is off.
    """
    if taint_works(cluster):
        return f"{when}, {fence_taints.fence(node, unsure(cluster))}"
    first = "" if when == _NOW else f"{when}, "
    words = (
        f"{first}{_start(node)}until then, Kubernetes {cluster.server_version} ends none of its "
        "pods (the taint out-of-service has an effect by default from 1.26 on), and detaches its "
        "volumes 6 minutes after the pods are gone"
    )
    found = find(cluster, NODE, "", node)
    if found is None or not _CONTROL_PLANE.isdisjoint(found.labels):
        return words
    return (
        f"{words}. Only if {node} never comes back: {_NOW}, confirm that it is powered off, then "
        "delete its Node object, with which its pods go"
    )


def is_said(node: str, text: str) -> bool:
    """Return whether a text says already what frees the pods of a node."""
    return fence_taints.fence_command(node) in text or _start(node) in text


def _start(node: str) -> str:
    return f"start {node} again: "


def otherwise(node: str, cluster: Cluster, when: str = _NOW) -> str:
    """Return the same as another way: ``or, as a decision, ...``."""
    comma = "," if taint_works(cluster) or when != _NOW else ""
    return f"or{comma} {way(node, cluster, when)}"


_CONTROL_PLANE: Final = frozenset((*nodes.CONTROL_PLANE, "node-role.kubernetes.io/etcd"))
