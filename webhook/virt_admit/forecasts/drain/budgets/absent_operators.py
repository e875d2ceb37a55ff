"""Operators that would make way for a drain, and of which no pod is ready, or that are scaled to 0:
their budgets stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from virt_admit.forecasts.drain.budgets.operator_eviction import OperatorAnswer, Way
from virt_admit.forecasts.placement.components.controllers import stopped_workloads
from virt_admit.model.kubernetes.cluster import Cluster, Unseen

READS: Final = stopped_workloads.READS
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

    Raises:
        Unseen: it may be scaled to 0.
    """
    if answer is None or answer.way is not Way.WAITS:
        return answer
    workloads = _WORKLOADS.get(name, frozenset())
    stopped = stopped_workloads.of(workloads, cluster)
    if stopped is None:
        if unread := stopped_workloads.unread(workloads, cluster):
            raise Unseen(unread)
        return answer
    reason = f"{name} does not make way, as {stopped.words}"
    return OperatorAnswer(Way.NOW, reason, stopped.remedy)
