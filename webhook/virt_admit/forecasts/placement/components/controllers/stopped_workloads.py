"""Workloads of which no pod has been ready for minutes, or that are scaled to 0."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import broken_pods, node_pods
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import kinds, workloads
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, POD, STATEFUL_SET
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.messages import capital

READS: Final[Reads] = union(
    node_pods.READS,
    dict.fromkeys((DEPLOYMENT, STATEFUL_SET), ("spec.replicas",)),
    {POD: ("status.containerStatuses", *CONDITIONS)},
)


class StoppedWorkload(NamedTuple):
    """A workload that does nothing now."""

    words: str
    """A clause: ``pod P is not ready for 90 min``, or ``Deployment N/D is scaled to 0``."""
    remedy: str
    namespace: str
    scaled: bool
    """Whether it was stopped, as for work on what it runs: a person ends that."""

    def named(self, name: str) -> str:
        """Return the clause with the name of the workload:
        ``D has no Ready pod (pod P is not ready for 90 min)``.
        """
        return self.words if self.scaled else f"{name} has no Ready pod ({self.words})"


def of(names: Collection[str], cluster: Cluster) -> StoppedWorkload | None:
    """Return that no workload of these names works; None: one may, or none is known."""
    if unlisted(cluster, POD):
        return None
    pods = pods_of(names, cluster)
    if pods:
        down = broken_pods.none_works(pods, cluster)
        if down is None:
            return None
        return StoppedWorkload(down.words, capital(down.remedy), down.pod.namespace, scaled=False)
    stopped = workloads.scaled_down(names, cluster)
    if stopped is None:
        return None
    command = about("scale", stopped, kinds.of(stopped) or DEPLOYMENT, "--replicas=1")
    remedy = typed("Once what it was stopped for is done, scale it up again", command)
    words = f"{stopped.kind} {stopped.full_name} is scaled to 0"
    return StoppedWorkload(words, remedy, stopped.namespace, scaled=True)


def of_one(name: str, cluster: Cluster) -> StoppedWorkload | None:
    """Return the same for one name. None also where it runs in several namespaces: one of them is
    that of a hosted or another cluster.
    """
    if len({pod.namespace for pod in pods_of((name,), cluster)}) > 1:
        return None
    return of((name,), cluster)


def unread(names: Collection[str], cluster: Cluster) -> str:
    """Return what could not be read and may be a workload of these names that is scaled to 0;
    empty: pods or a workload of them are known, or all workloads are.
    """
    if not names or pods_of(names, cluster) or workloads.is_known(names, cluster):
        return ""
    return next(filter(None, (unlisted(cluster, kind) for kind in (DEPLOYMENT, STATEFUL_SET))), "")


def pods_of(names: Collection[str], cluster: Cluster) -> list[Object]:
    """Return the pods of the workloads of these names that have not ended."""
    return [pod for name in sorted(names) for pod in _by_workload(cluster).get(name, ())]


@cached
def _by_workload(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    found: dict[str, list[Object]] = {}
    for pod in cluster.known(POD):
        if not pod.ended and (name := node_pods.workload_of(pod)):
            found.setdefault(name, []).append(pod)
    return found
