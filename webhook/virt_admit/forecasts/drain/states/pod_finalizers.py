"""Which controller removes a finalizer of a pod, and whether it works.

Sources: argoproj/argo-workflows:workflow/common/common.go#FinalizerPodStatus; kubernetes-sigs/kueue:pkg/controller/jobs/pod/
pod_webhook.go#PodFinalizer; kubernetes/kubernetes:pkg/apis/batch/types.go#JobTrackingFinalizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import pod_starts
from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.messages import cut
from virt_admit.model.scheduler.pods import FINISHED

READS: Final[Reads] = union(pod_starts.READS, {POD: ("status.phase", *CONDITIONS)})

_DEPLOYMENTS: Final = {
    "workflows.argoproj.io/status": "workflow-controller",
    "kueue.x-k8s.io/managed": "kueue-controller-manager",
}
"""The Deployment of the controller, by the finalizer."""
_BUILT_IN: Final = frozenset(("batch.kubernetes.io/job-tracking", "foregroundDeletion", "orphan"))
_LONGEST: Final = 120


class KeptFinalizer(NamedTuple):
    """Why a finalizer is still there."""

    why: str
    """Empty: nothing says so."""
    remedy: str


def held(finalizer: str, cluster: Cluster) -> KeptFinalizer:
    """Return why the controller of a finalizer does not remove it, as far as that is known, and what to do."""
    if finalizer in _BUILT_IN:
        return KeptFinalizer("", "Repair kube-controller-manager, which removes the finalizer.")
    name = _DEPLOYMENTS.get(finalizer)
    if name is None:
        return KeptFinalizer("", "Repair the controller of the finalizer.")
    return _of_pods(name, cluster.cached(_controllers).get(name, ()), cluster)


def _controllers(cluster: Cluster) -> dict[str, list[Object]]:
    """Return the pods of each controller that have not ended. A chart may write its name before that of the Deployment."""
    found: dict[str, list[Object]] = {}
    for pod in cluster.known(POD):
        for name in _DEPLOYMENTS.values():
            runs = pod.controller is not None and pod.at("status", "phase").text not in FINISHED
            if f"-{name}-" in f"-{pod.name}" and runs:
                found.setdefault(name, []).append(pod)
    return found


def _of_pods(name: str, pods: Sequence[Object], cluster: Cluster) -> KeptFinalizer:
    then = "which then removes the finalizer by itself"
    if not pods:
        return KeptFinalizer("", f"See that its controller, {name}, runs, {then}.")  # it may have another name
    first = min(pods, key=lambda pod: (not _is_ready(pod), pod.full_name))  # one replica leads
    title = f"Deployment {first.namespace}/{first.name.partition(name)[0]}{name}"
    see = kubectl("describe", POD, first.name, first.namespace)
    if _is_ready(first):
        log = shell("kubectl", "logs", argument(first.name), "-n", first.namespace)
        return KeptFinalizer("", typed(f"See why {title} does not remove it", log))
    said = cut(pod_starts.failure(first, cluster), _LONGEST) or "it is not ready"
    return KeptFinalizer(f"its controller, {title}, does not work ({said})", typed(f"Repair {title}, {then}", see))


def _is_ready(pod: Object) -> bool:
    return pod.condition("Ready")["status"].text == "True"
