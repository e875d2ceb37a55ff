"""CSI drivers that crash on a drained node: its pods with their volumes do not end.

A kubelet asks the driver to unmount each volume of a pod that has ended, and the pod exists until
then, also that of a VM that has migrated away. Sources:
kubernetes/kubernetes:pkg/kubelet/kubelet.go#SyncTerminatedPod,
:pkg/volume/csi/csi_mounter.go#TearDownAt; kubernetes/kubectl:pkg/drain/drain.go#waitForDelete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from virt_admit.forecasts.placement.components import node_drivers
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import count, sentence
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.pods import claim_names

READS: Final[Reads] = union(
    node_drivers.READS, {POD: ("spec.volumes.persistentVolumeClaim.claimName",)}
)


def problems(
    node: str, leaving: Sequence[Object], cluster: Cluster
) -> Iterator[tuple[Object, Problem]]:
    """Yield the pods of drivers without which pods that leave a node do not end there, each with
    the problem.

    ``leaving``: the pods that a drain evicts.
    """
    for driver in node_drivers.crashing(cluster).get(node, ()):
        using = [pod for pod in leaving if driver in _drivers(pod, cluster)]
        agent = node_drivers.agent(driver, node, cluster) if using else None
        if agent is None:
            continue
        others = f" and {count(len(using) - 1, 'more pod')}" if using[1:] else ""
        first = min(pod.full_name for pod in using)
        reason = (
            f"CSI driver {driver} does not work on {node} ({agent.words}), so its volumes are not "
            f"unmounted, and evicted pods that use them do not end: {first}{others}"
        )
        cause = ProblemCause.NODE_CANNOT_END_PODS
        yield agent.pod, Problem(reason, sentence(agent.remedy), cause)


def _drivers(pod: Object, cluster: Cluster) -> Sequence[str]:
    return node_drivers.needed_by(pod.namespace or "default", claim_names(pod), cluster)
