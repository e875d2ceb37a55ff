"""Nodes that take no pods because the controller that initializes a new node has not removed its
taint.

A kubelet with ``--cloud-provider=external`` registers its node with the taint, and the cloud
controller manager of the provider removes it. Sources:
kubernetes/kubernetes:pkg/kubelet/kubelet_node_status.go#initialNode; kubernetes/cloud-provider:
controllers/node/node_controller.go#syncNode; outscale/cloud-provider-osc#58; rancher/rke2#7822.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.forecasts.placement.components.broken_pods import BrokenPod
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.scheduler import controller_taints

_STATUSES: Final = ("status.containerStatuses", "status.initContainerStatuses")
READS: Final[Reads] = union(
    clock.READS,
    {
        NODE: ("metadata.creationTimestamp", "spec.taints", *CONDITIONS),
        POD: (
            "metadata.labels",
            "spec.containers.name",
            "spec.nodeName",
            "status.phase",
            *CONDITIONS,
        ),
    },
    {POD: ("status.conditions.lastTransitionTime", "status.conditions.message", *_STATUSES)},
)
"""What a scan reads. The webhook keeps less of pods, and says less."""

_OF_CLOUD: Final = "node.cloudprovider.kubernetes.io/"
_MANAGER: Final = re.compile(r"cloud-controller-manager|cloud-provider")
"""The pods of a cloud controller manager are named so by each provider;
they have no label in common.
"""
_OF_TENANTS: Final = re.compile(r"kubevirt-cloud-controller-manager|kubevirt-cloud-provider")
"""It initializes nodes of clusters inside VMs."""
HOMES: Final = ("kube-system", "openshift-cloud-controller-manager")
"""The namespaces of that of the cluster itself.
Hosted control planes have theirs in namespaces of their own.
"""


class WaitingNode(NamedTuple):
    """A node that a controller has not initialized."""

    node: Object
    key: str
    """Of its taint."""
    who: str
    since: timedelta | None
    broken: BrokenPod | None
    """The pod of that controller that is not ready. None: one is, or none is known."""

    @property
    def reason(self) -> str:
        """``the cloud controller manager has not removed taint KEY from NAME for 5 h,
        because pod …``.
        """
        lasts = f" for {duration(self.since)}" if self.since is not None else ""
        broken = self.broken
        because = (
            (
                f", because pod {broken.pod.full_name} "
                f"{broken.words.partition(f'{broken.pod.name} ')[2]}"
            )
            if broken
            else ""
        )
        return f"{self.who} has not removed taint {self.key} from {self.node.name}{lasts}{because}"

    @property
    def remedy(self) -> str:
        if self.broken is not None:
            return self.broken.remedy.replace("repair pod", f"repair {self.who}: pod", 1)
        return typed(f"see why {self.who} does not remove it", about("describe", self.node, NODE))


def of_node(node: Object, cluster: Cluster) -> WaitingNode | None:
    """Return that a new node still has the taint of the controller that initializes it; None:
    it has none.
    """
    for taint in node.at("spec", "taints").items():
        key = taint["key"].text or ""
        who = controller_taints.owner(key)
        if (
            who
            and controller_taints.is_of_registration(key)
            and taint["effect"].text in ("NoSchedule", "NoExecute")
        ):
            begun = taint["timeAdded"].text or node.created
            return WaitingNode(node, key, who, clock.since(begun, cluster), _broken(key, cluster))
    return None


PATIENCE: Final = timedelta(minutes=15)
"""A controller that runs initializes a node within a minute;
a cluster that is installed may first have to start it.
"""


@cached
def first(cluster: Cluster) -> WaitingNode | None:
    """Return a Ready node that has waited for too long; None: there is none.

    Another one that is added would wait as well.
    """
    known = sorted(cluster.known(NODE), key=lambda node: node.name)
    found = (of_node(node, cluster) for node in known if node.is_true("Ready"))
    return next(
        (
            each
            for each in found
            if each is not None and each.since is not None and each.since >= PATIENCE
        ),
        None,
    )


def keeps_off(refusals: Mapping[str, str], cluster: Cluster) -> WaitingNode | None:
    """Return the same, if its taint alone keeps a pod off that node.

    ``refusals``: why each node refuses the pod.
    """
    found = first(cluster)
    if found is not None and refusals.get(found.node.name) == f"taint {found.key}":
        return found
    return None


def _broken(key: str, cluster: Cluster) -> BrokenPod | None:
    pods = [pod for pod in _pods(key, cluster) if not pod.deleted]
    ready = any(pod.is_true("Ready") for pod in pods)
    return None if ready else broken_pods.first(pods, cluster)


def _pods(key: str, cluster: Cluster) -> Iterator[Object]:
    """Yield the pods of the controller that removes a taint."""
    if label := controller_taints.remover(key):
        yield from (pod for pod in cluster.known(POD) if pod.labels.get(label[0]) == label[1])
    elif key.startswith(_OF_CLOUD):
        named = [
            pod
            for pod in cluster.known(POD)
            if _MANAGER.search(pod.name) and not _OF_TENANTS.search(pod.name)
        ]
        yield from [pod for pod in named if pod.namespace in HOMES] or named
