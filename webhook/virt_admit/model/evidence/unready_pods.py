"""Which pod of a Deployment is not ready, and why: its condition says neither.

Source: kubernetes/kubernetes:pkg/controller/deployment/progress.go (MinimumReplicasUnavailable).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.model.evidence import lost_pins, status_errors
from virt_admit.model.evidence.lost_pins import LostPin
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, POD, REPLICA_SET
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import cut_middle, scheduler_words

READS: Final[Reads] = union(
    clock.READS,
    lost_pins.READS,
    {
        DEPLOYMENT: ("spec.replicas", "status.readyReplicas"),
        POD: (
            *("metadata.creationTimestamp", "spec.schedulingGates"),
            *("status.conditions", "status.phase"),
        ),
    },
)
UNAVAILABLE: Final = "MinimumReplicasUnavailable"
_TELLING: Final = (
    *(*events.OF_VOLUMES, "FailedScheduling", "FailedCreatePodSandBox"),
    *("Failed", "BackOff", "Unhealthy"),
)
"""The reasons of the events that say why a pod does not become ready, the most telling first."""
_RECENT: Final = timedelta(minutes=30)
_LONGEST: Final = 200


def words(deployment: Object, cluster: Cluster) -> str:
    """Return how many pods of a Deployment are ready, and why the first other one is not; empty:
    no such pod is known.
    """
    pods = of(deployment, cluster)
    if not pods:
        return ""
    told = ((pod, why(pod, cluster)) for pod in pods)
    pod, reason = next((each for each in told if each[1]), (pods[0], ""))
    wanted, ready = deployment.at("spec", "replicas").integer, deployment["status"]["readyReplicas"]
    counted = f"{ready.integer or 0} of {1 if wanted is None else wanted} ready, "
    age = clock.age(pod, cluster)
    old = f", made {clock.duration(age)} ago," if age is not None else ""
    return f"{counted}pod {pod.name}{old} {reason or 'is not'}"


def of(deployment: Object, cluster: Cluster) -> Sequence[Object]:
    """Return the pods of a Deployment that are not ready, in the order of their names."""
    return _by_deployment(cluster).get((deployment.namespace, deployment.name), ())


def pinned(deployment: Object, cluster: Cluster) -> tuple[Object, LostPin] | None:
    """Return the first pod of a Deployment that demands what no node has, with that."""
    found = ((pod, lost_pins.of_pod(pod, cluster)) for pod in of(deployment, cluster))
    return next(((pod, pin) for pod, pin in found if pin is not None), None)


def why(pod: Object, cluster: Cluster) -> str:
    """Return why a pod is not ready, as what it does or has; empty: nothing says so."""
    if (pin := lost_pins.of_pod(pod, cluster)) is not None:
        return pin.words
    gates = [
        text for each in pod.at("spec", "schedulingGates").items() if (text := each["name"].text)
    ]
    if gates:
        return f"waits until scheduling gate {', '.join(gates)} is removed"
    recent = clock.ago(_RECENT, cluster)
    said = dict(reversed(list(events.warnings(pod, recent, cluster))))
    reason = next((each for each in _TELLING if said.get(each)), "")
    placed = pod.condition("PodScheduled")
    if not reason and placed["status"].text == "False" and placed["message"].text:
        reason, said = "FailedScheduling", {"FailedScheduling": placed["message"].words}
    if not reason:
        return ""
    text = said[reason]
    short = scheduler_words if reason == "FailedScheduling" else cut_middle
    return f"reports {reason}: {short(status_errors.plain(text).rstrip('. '), _LONGEST)}"


@cached
def _by_deployment(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    """Return the pods that are not ready by namespace and name of their Deployment, in the order of
    names."""
    sets = {each.full_name: each.owned_by(DEPLOYMENT.kind) for each in cluster.known(REPLICA_SET)}
    pods = sorted(cluster.known(POD), key=lambda each: each.full_name)
    return grouped(
        (pod for pod in pods if not (pod.is_true("Ready") or pod.ended)),
        lambda pod: (
            pod.namespace,
            sets.get(f"{pod.namespace}/{pod.owned_by(REPLICA_SET.kind)}", ""),
        ),
    )
