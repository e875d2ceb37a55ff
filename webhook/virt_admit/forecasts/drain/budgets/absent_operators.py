"""Operators that would make way for a drain, and of which no pod is ready: their budgets stay as
they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from virt_admit.forecasts.drain.budgets.operator_eviction import OperatorAnswer, Way
from virt_admit.forecasts.placement.components import broken_pods, node_pods
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.messages import capital

READS: Final[Reads] = union(
    node_pods.READS, {POD: ("metadata.ownerReferences", "status.containerStatuses", *CONDITIONS)}
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
        return answer
    reason = f"{name} does not make way, as {down.words}"
    return OperatorAnswer(Way.NOW, reason, capital(down.remedy))


@cached
def _pods(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the pods of each operator."""
    found: dict[str, list[Object]] = {}
    for pod in cluster.known(POD):
        workload = node_pods.workload_of(pod)
        for name, workloads in _WORKLOADS.items():
            if workload in workloads and not pod.ended:
                found.setdefault(name, []).append(pod)
    return found
