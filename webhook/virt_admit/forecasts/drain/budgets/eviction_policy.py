"""Whether a budget lets pods go that are not ready: its ``unhealthyPodEvictionPolicy``.

By default such a pod is evicted only while enough others are healthy. With ``AlwaysAllow`` it
always is, whatever the budget counts. The field is alpha in Kubernetes 1.26, on by default from
1.27, stable in 1.31 (KEP-3017). Source:
kubernetes/kubernetes:pkg/registry/core/pod/storage/eviction.go#Create.
"""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.drain.budgets import operator_budgets
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings.versions import Version, parse_version

FIELD: Final = "unhealthyPodEvictionPolicy"
ALWAYS: Final = "AlwaysAllow"
_SINCE: Final = Version(1, 27)
_MANAGED: Final = "app.kubernetes.io/managed-by"


def lets_go(pod: Object, budget: Object) -> bool:
    """Return whether the Eviction API evicts a pod since it is not ready,
    whatever the budget allows otherwise.
    """
    if not is_unready(pod):
        return False
    healthy, desired = (
        budget.at("status", key).integer or 0 for key in ("currentHealthy", "desiredHealthy")
    )
    return is_always(budget) or (desired > 0 and healthy >= desired)


def is_always(budget: Object) -> bool:
    """Return whether a budget lets pods go that are not ready, whatever it counts."""
    return budget.at("spec", FIELD).text == ALWAYS


def is_unready(pod: Object) -> bool:
    """Return whether a pod is known not to be ready: one that runs says it."""
    return pod.condition("Ready")["status"].text not in (None, "True")


def choice(pod: Object, budget: Object, cluster: Cluster) -> str:
    """Return the words after a remedy that name the policy; empty: it would not let this pod go, or
    an operator decides.
    """
    if not is_unready(pod) or is_owned(budget) or not may_exist(cluster):
        return ""
    return f", or set {FIELD}: {ALWAYS} in the budget, which lets pods go that are not ready"


def refusal(pod: Object, budget: Object, cluster: Cluster) -> str:
    """Return the words after a refusal that name the policy where another object writes the budget;
    empty: the pod is ready, or ``choice`` names it.
    """
    if not is_unready(pod) or not is_owned(budget) or not may_exist(cluster):
        return ""
    said = budget.at("spec", FIELD).text
    policy = f"is {said}" if said else "is not set"
    owner = budget.controller
    writes = f", and {owner['kind'].text} {owner['name'].text} writes it" if owner else ""
    return f", although it is not ready ({FIELD} of the budget {policy}{writes})"


def is_owned(budget: Object) -> bool:
    """Return whether an operator or another object writes a budget,
    so that it would take a change back.
    """
    managed = (budget.labels.get(_MANAGED) or "").endswith("operator")
    return (
        managed
        or operator_budgets.operator(budget) is not None
        or budget.metadata["ownerReferences"].present
    )


def may_exist(cluster: Cluster) -> bool:
    """Return whether this release of Kubernetes has the policy, as far as it is known."""
    release = parse_version(cluster.server_version)
    return release is None or release >= _SINCE
