"""Operators that would make way for a drain, and of which no pod is ready, or that are scaled to 0:
their budgets stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from virt_admit.forecasts.drain.budgets.operator_eviction import OperatorAnswer, Way
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
    {POD: ("metadata.ownerReferences", "status.containerStatuses", *CONDITIONS)},
)
_WORKLOADS: Final[Mapping[str, frozenset[str]]] = {
    "Longhorn": frozenset(("longhorn-manager",)),
    "Rook": frozenset(("rook-ceph-operator",)),
    "CloudNativePG": frozenset(
        ("cnpg-controller-manager", "cnpg-cloudnative-pg", "cloudnative-pg")
    ),
    "Strimzi": frozenset(("strimzi-cluster-operator",)),
    "ECK": frozenset(("elastic-operator",)),
    "KubeVirt": frozenset(("virt-operator",)),
}
"""What runs an operator, by the names in the manifests and charts of each project."""


def held(name: str, answer: OperatorAnswer | None, cluster: Cluster) -> OperatorAnswer | None:
    """Return what an operator does, unless all of its known pods have not been ready for minutes:
    then it waits until it is repaired.

    ``name``: of the operator, as operator_budgets has it.
    """
    if answer is None or answer.way is not Way.WAITS or unlisted(cluster, POD):
        return answer
    pods = cluster.cached(_pods).get(name, ())
    down = broken_pods.none_works(pods, cluster)
    if down is None:
        stopped = None if pods else workloads.scaled_down(_WORKLOADS.get(name, ()), cluster)
        return _stopped(name, stopped) if stopped is not None else answer
    reason = f"{name} does not make way, as {down.words}"
    return OperatorAnswer(Way.NOW, reason, capital(down.remedy))


def _stopped(name: str, workload: Object) -> OperatorAnswer:
    """Return that an operator was stopped, as for work on what it runs: a person ends that."""
    reason = f"{name} does not make way, as {workload.kind} {workload.full_name} is scaled to 0"
    command = about("scale", workload, kinds.of(workload) or DEPLOYMENT, "--replicas=1")
    words = "Once what it was stopped for is done, scale it up again"
    return OperatorAnswer(Way.NOW, reason, typed(words, command))


@cached
def _pods(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the pods of each operator."""
    found: dict[str, list[Object]] = {}
    for pod in cluster.known(POD):
        workload = node_pods.workload_of(pod)
        for name, known in _WORKLOADS.items():
            if workload in known and not pod.ended:
                found.setdefault(name, []).append(pod)
    return found
