"""Workloads of which no pod has been ready for minutes, that are scaled to 0, or whose pods cannot
be created.

The controller of a Deployment says so in its conditions, with the error of the API server. Source:
kubernetes/kubernetes:pkg/controller/deployment/sync.go#calculateStatus (ReplicaFailure).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import broken_pods, node_pods
from virt_admit.forecasts.placement.components.controllers import replaced_providers
from virt_admit.forecasts.placement.components.controllers.replaced_providers import (
    ReplacementStage,
)
from virt_admit.forecasts.placement.components.operands import cordoned_homes
from virt_admit.model.commands import about, shell, typed
from virt_admit.model.kubernetes import clock, kinds, workloads
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, POD, STATEFUL_SET
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.messages import capital, cut_middle

READS: Final[Reads] = union(
    node_pods.READS,
    cordoned_homes.READS,
    clock.READS,
    replaced_providers.READS,
    dict.fromkeys((DEPLOYMENT, STATEFUL_SET), ("spec.replicas",)),
    {DEPLOYMENT: ("status.conditions.message", *CONDITIONS)},
    {POD: ("status.containerStatuses", *CONDITIONS)},
)

_LASTING: Final = timedelta(minutes=5)
_LONGEST: Final = 160


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
    if stopped is not None:
        return _scaled(stopped, cluster)
    known = workloads.named(names, cluster)
    found = [_without_pods(each, cluster) for each in known]
    return found[0] if found and all(found) else None


def of_podless(workload: Object, cluster: Cluster) -> StoppedWorkload | None:
    """Return the same for one workload that has no pod; None: it may have one in a moment."""
    if workload.at("spec", "replicas").integer == 0:
        return _scaled(workload, cluster)
    return _without_pods(workload, cluster)


def _without_pods(workload: Object, cluster: Cluster) -> StoppedWorkload | None:
    failed = workload.condition("ReplicaFailure")
    lasts = clock.since(failed["lastTransitionTime"].text, cluster)
    if failed["status"].text != "True" or lasts is None or lasts < _LASTING:
        return None
    said = cut_middle(failed["message"].words, _LONGEST).replace("; ", ", ")
    words = f"{workload.kind} {workload.full_name} cannot create one: {said}"
    described = about("describe", workload, kinds.of(workload) or DEPLOYMENT)
    remedy = typed("Let its pods be created, which the API server refuses with this", described)
    return StoppedWorkload(words, remedy, workload.namespace, scaled=False)


def _scaled(stopped: Object, cluster: Cluster) -> StoppedWorkload | None:
    """Return that a workload is scaled to 0; None: an upgrade installs it again, or may."""
    replaced = replaced_providers.of(stopped, cluster)
    if replaced is not None and replaced.stage in (ReplacementStage.RUNS, ReplacementStage.MAY_RUN):
        return None
    words = f"{stopped.kind} {stopped.full_name} is scaled to 0"
    first = "Once what it was stopped for is done"
    if replaced is not None and replaced.stage in _LEFT:
        words = f"{words} ({replaced.words})"
        way = (
            "If no clusterctl runs any more, begin that upgrade again, which installs it: the old "
            "version does not fit to the new ones of other providers"
        )
        remedy = typed(way, shell("clusterctl", "upgrade", "plan"))
        return StoppedWorkload(words, remedy, stopped.namespace, scaled=True)
    if replaced is not None:
        first = f"{first} and clusterctl has ended ({replaced.words})"
    command = about("scale", stopped, kinds.of(stopped) or DEPLOYMENT, "--replicas=1")
    remedy = typed(f"{first}, scale it up again", command)
    return StoppedWorkload(words, remedy, stopped.namespace, scaled=True)


_LEFT: Final = (ReplacementStage.LEFT, ReplacementStage.MAY_BE_LEFT)


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
