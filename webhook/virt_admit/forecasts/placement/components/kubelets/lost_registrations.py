"""CSI drivers that the kubelet of a node has forgotten: its node became Ready again after their
pod there had started. That it lacks the driver tells a new kubelet from a fault of the network.

A kubelet that starts looks for the sockets of drivers again. One that finds the socket stale, or
asks the driver too early, does not always try again, and a pod that runs on does not register by
itself: the next pod does. Sources: kubernetes/kubernetes#118317;
:pkg/kubelet/pluginmanager/reconciler/reconciler.go#reconcile;
kubernetes-csi/node-driver-registrar#206 (some tries come minutes apart).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.workloads import container_statuses
from virt_admit.model.lookups import find

READS: Final[Reads] = union(
    clock.READS,
    {
        NODE: ("status.conditions",),
        POD: ("spec.nodeName", "status.conditions", "status.containerStatuses", "status.phase"),
    },
)
_TRIES: Final = timedelta(minutes=10)
"""So long after its start a kubelet may still register a driver by itself."""


class LostRegistration(NamedTuple):
    """A driver's pod that runs since before its node became Ready again."""

    pod: Object
    node: str
    started: str
    ready: str

    @property
    def words(self) -> str:
        """What is wrong, as a part of a sentence about the driver."""
        return (
            f"its pod {self.pod.name} there runs since {self.started}, but {self.node} became "
            f"Ready again at {self.ready}: the pod has not registered again since then"
        )

    @property
    def advice(self) -> str:
        """What ends it, without a command. A mount that a process of the pod serves would end
        with it.
        """
        return (
            f"if no guest on {self.node} uses a volume with FUSE or rbd-nbd, which it would lose, "
            f"replace pod {self.pod.name} there, so that it registers again"
        )

    @property
    def remedy(self) -> str:
        """What ends it, with its command."""
        return typed(self.advice, kubectl("delete", POD, self.pod.name, self.pod.namespace))


def of_pod(pod: Object, cluster: Cluster) -> LostRegistration | None:
    """Return that a pod which is to register a driver runs since before its node became Ready
    again; None: it does not, or that is not long ago, or not known.
    """
    name = pod.at("spec", "nodeName").text or ""
    node = find(cluster, NODE, "", name)
    if node is None or pod.deleted or not pod.is_true("Ready") or not node.is_true("Ready"):
        return None
    boxes = list(container_statuses(pod))
    running = [each.at("state", "running", "startedAt").text for each in boxes]
    last = max((each for each in running if each), default="")
    since = node.condition("Ready")["lastTransitionTime"].text or ""
    begun, ready, lasts = clock.instant(last), clock.instant(since), clock.since(since, cluster)
    if begun is None or ready is None or lasts is None:
        return None
    return LostRegistration(pod, name, last, since) if begun < ready and lasts > _TRIES else None
