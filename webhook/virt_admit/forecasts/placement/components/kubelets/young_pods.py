"""Whether a pod of a DaemonSet has just been made, as in a roll-out or on a new node, or ends so
that its successor comes: what it serves on its node is back in a moment.

While the pod of a CSI driver is replaced, the CSINode of its node does not list the driver for
seconds. A volume that is attached meanwhile waits: its attachment is tried again. Sources:
kubernetes/kubernetes:pkg/controller/daemon/update.go#rollingUpdate,
:pkg/volume/csi/csi_plugin.go#DeRegisterPlugin,
:pkg/volume/csi/nodeinfomanager/nodeinfomanager.go#UninstallCSIDriver;
kubernetes-csi/external-attacher:pkg/controller/csi_handler.go#getNodeID (an error, and its retry).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from virt_admit.model.evidence import container_states
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.workloads import container_statuses

READS: Final[Reads] = union(
    clock.READS,
    {
        POD: (
            *("metadata.creationTimestamp", "metadata.deletionTimestamp", "status.phase"),
            *container_states.FIELDS,
        )
    },
)
_STARTS_WITHIN: Final = timedelta(minutes=5)
"""An image is pulled, and a driver registered, by then."""
_ENDS_WITHIN: Final = timedelta(minutes=1)
"""The kubelet kills what is left at its deletionTimestamp, and the controller makes its successor
as soon as it is gone."""


def starts(pod: Object, cluster: Cluster) -> bool:
    """Return whether a pod is as a start leaves it for some minutes: nothing in it has failed."""
    if pod.deleted:
        over = clock.since(pod.metadata["deletionTimestamp"].text, cluster)
        return over is not None and over < _ENDS_WITHIN
    age = clock.age(pod, cluster)
    return (
        age is not None
        and age < _STARTS_WITHIN
        and not pod.ended
        and not any(map(_has_failed, container_statuses(pod)))
    )


def _has_failed(status: Field) -> bool:
    waits = status.at("state", "waiting", "reason").text
    ended = status.at("state", "terminated", "exitCode").integer
    restarts = status["restartCount"].integer
    return bool(restarts or ended or (waits and waits not in container_states.OF_STARTS))
