"""Nodes on which no pod starts because the daemon of the pod network does not work: kube-scheduler knows nothing of it.

Only plugins that ask a server in this daemon's pod for each new pod: others, such as calico, go on without theirs. Sources:
k8snetworkplumbingwg/multus-cni:cmd/multus-daemon/main.go; cilium/cilium:plugins/cilium-cni/cmd/cmd.go#Add;
ovn-kubernetes/ovn-kubernetes:go-controller/pkg/cni/cniserver.go; kubeovn/kube-ovn:pkg/daemon/handler.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement import pod_starts
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, each, entry
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.scheduler.pods import FINISHED

READS: Final[Reads] = union(pod_starts.READS, {POD: ("metadata.labels", "spec.containers.image", *CONDITIONS)})

BROKEN: Final = "the pod network on "
"""How each reason begins."""
_DAEMONS: Final = frozenset(
    (
        ("k8s-app", "cilium"),
        ("app", "ovnkube-node"),
        ("app", "kube-ovn-cni"),
    )
)
"""The labels of these pods in the manifests and charts of the projects and of OpenShift."""
_MULTUS: Final = ("app", "multus")
_PATIENCE: Final = timedelta(minutes=5)
"""A restart or an update of the daemon takes less."""


def problem(cluster: Cluster, node: str) -> str:
    """Return why no pod starts on a node; empty: the pod network works there, or that is not known."""
    pod = entry(cluster, _failing, node)
    if pod is None:
        return ""
    why = pod_starts.failure(pod, cluster).replace("; ", ", ")  # one cause
    return f"{BROKEN}{node} does not work, as pod {pod.full_name} is not ready{f': {why}' if why else ''}"


def _failing(cluster: Cluster) -> Mapping[str, Object]:
    """Return the daemon that does not work, by node."""
    pods = (pod for pod in each(cluster, POD, _daemon) if pod is not None)
    return {pod.at("spec", "nodeName").text or "": pod for pod in pods if _has_failed(pod, cluster)}


def _daemon(pod: Object) -> Object | None:
    """Return the pod if it is such a daemon, owned by a DaemonSet, and has not ended."""
    owner = pod.controller
    owned = owner is not None and owner["kind"].text == "DaemonSet"
    ended = pod.deleted or pod.at("status", "phase").text in FINISHED
    labels = pod.labels.items()
    needed = not _DAEMONS.isdisjoint(labels) or (_MULTUS in labels and _is_thick(pod))
    return pod if owned and not ended and needed else None


def _is_thick(pod: Object) -> bool:
    """Return whether this multus is the plugin with a server: the thin one goes on when its pod has failed."""
    images = (container["image"].text or "" for container in pod.at("spec", "containers").items())
    return pod.namespace == "openshift-multus" or any("thick" in image for image in images)


def _has_failed(pod: Object, cluster: Cluster) -> bool:
    ready = pod.condition("Ready")
    since = clock.since(ready["lastTransitionTime"].text, cluster)
    return ready["status"].text == "False" and since is not None and since >= _PATIENCE
