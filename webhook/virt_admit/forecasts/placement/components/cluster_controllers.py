"""kube-scheduler and kube-controller-manager where none of them is ready: without the one no pod
gets a node, without the other no volume is attached to a node.

They run as static pods of the control plane. Where they are no pods (k3s, managed and hosted
control planes), nothing is said.
Sources: kubernetes/kubernetes:cmd/kube-scheduler/app/server.go#Run,
:pkg/controller/volume/attachdetach/attach_detach_controller.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.messages import sentence
from virt_admit.model.problems import Problem, ProblemCause, ProblemId

READS: Final[Reads] = union(
    node_health.READS, {POD: ("spec.containers.name", "status.containerStatuses", *CONDITIONS)}
)
SCHEDULER: Final = "kube-scheduler"
MANAGER: Final = "kube-controller-manager"
SYSTEM: Final = "kube-system"


def down(name: str, cluster: Cluster) -> Problem | None:
    """Return that no pod of such a controller has been ready for minutes; None: one is, another may
    be, or there are no such pods.

    ``name``: ``SCHEDULER`` or ``MANAGER``. The reason is a clause:
    ``kube-scheduler has no Ready pod (pod P is not ready for 90 min: CrashLoopBackOff)``.
    """
    pods = _pods(name, cluster)
    if unlisted(cluster, POD) or not all(_is_down(name, pod) for pod in pods):
        return None
    broken = broken_pods.all_down(pods, cluster)
    if broken is None:
        return None
    place = ProblemId(ProblemCause.COMPONENT, broken.pod.namespace, name)
    return Problem(f"{name} has no Ready pod ({broken.words})", sentence(broken.remedy), id=place)


def _pods(name: str, cluster: Cluster) -> Sequence[Object]:
    """Return the pods whose container has the name, where Kubernetes and OpenShift run them."""
    return [
        pod
        for namespace in (SYSTEM, f"openshift-{name}")
        for pod in cluster.known(POD, namespace)
        if not pod.ended
        and any(each["name"].text == name for each in pod.at("spec", "containers").items())
    ]


def _is_down(name: str, pod: Object) -> bool:
    """Return whether the container itself may not be ready: others of its pod only watch over its
    certificates."""
    states = pod.at("status", "containerStatuses").items()
    own = next((each for each in states if each["name"].text == name), None)
    return own is None or own["ready"].boolean is False
