"""Which PodDisruptionBudgets select a pod, and which of them never allow an eviction.

Source: k8s.io/kubernetes pkg/controller/disruption/disruption.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.model.kubernetes import clock, selectors
from virt_admit.model.kubernetes.cluster import Cluster, each, entry, gather
from virt_admit.model.kubernetes.kinds import PDB, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.selectors import IN, Selector
from virt_admit.model.messages import count


def selecting(pod: Object, cluster: Cluster) -> Sequence[Object]:
    """Return the known budgets that select a pod, by name."""
    by_label = entry(cluster, _all_budgets, pod.namespace) or {}
    labels = pod.labels
    known = (budget for label in (None, *labels.items()) for budget in by_label.get(label, ()))
    return sorted(
        (budget for budget, selector in known if selector.matches(labels)),
        key=lambda budget: budget.name,
    )


_ByLabel = dict[tuple[str, str] | None, list[tuple[Object, Selector]]]
"""Budgets by a label that the pods must have; None: by none.
A namespace may have a budget for each of its VMs.
"""


def _all_budgets(cluster: Cluster) -> Mapping[str, _ByLabel]:
    """Return the budgets by namespace.

    One without a selector selects no pod, one with an empty selector all.
    """
    found: dict[str, _ByLabel] = {}
    for namespace, label, selecting in filter(None, each(cluster, PDB, _indexed)):
        found.setdefault(namespace, {}).setdefault(label, []).append(selecting)
    return found


def _indexed(budget: Object) -> tuple[str, tuple[str, str] | None, tuple[Object, Selector]] | None:
    """Return the namespace of a budget, the label under which it is found, and the budget; None:
    it selects no pod.
    """
    given = budget.at("spec", "selector")
    if not given.is_map:
        return None
    selector = selectors.parse(given.value)
    return budget.namespace, _demanded(selector), (budget, selector)


def _demanded(selector: Selector) -> tuple[str, str] | None:
    """Return a label without which the selector matches nothing; None:
    it demands no single value.
    """
    exact = (
        each for each in selector.requirements if each.operator == IN and len(each.values) == 1
    )
    return min(((each.key, next(iter(each.values))) for each in exact), default=None)


def never_allows(budget: Object, cluster: Cluster) -> str:
    """Return why a budget can never allow an eviction, whatever the health of its pods;
    empty if it can.
    """
    return refuses_all(budget, _expected(budget, cluster)) or (
        "its pods have a controller without a scale" if lacks_scale(budget) else ""
    )


def refuses_all(budget: Object, expected: int) -> str:
    """Return why a budget never allows an eviction if it counts on this many pods; 0:
    their number is not known.
    """
    spec = budget["spec"]
    most, least = spec["maxUnavailable"], spec["minAvailable"]
    if most.value in (0, "0", "0%"):
        return f"maxUnavailable is {most.value}"
    if least.text == "100%":
        return "minAvailable is 100%"
    if least.integer is not None and expected and least.integer >= expected:
        return f"minAvailable is {least.integer} for {count(expected, 'pod')}"
    desired = budget.at("status", "desiredHealthy").integer or share(least.text or "", expected)
    if least.text and desired and expected and desired >= expected:
        of = f"{least.text} of {count(expected, 'pod')}"
        return f"minAvailable is {of}, which is all of them (rounded up)"
    return ""


def share(percentage: str, number: int) -> int:
    """Return a percentage of pods, rounded up as the disruption controller does; 0: it is none."""
    return -(-_percent(percentage) * number // 100)


def _percent(text: str) -> int:
    digits = text.removesuffix("%")
    return int(digits) if digits.isdecimal() and len(digits) < 4 and digits != text else 0


def enough(budget: Object) -> int:
    """Return the smallest number of pods of which a budget lets one go; 0: no number is enough,
    or it has none.
    """
    least = budget.at("spec", "minAvailable")
    if budget.at("spec", "maxUnavailable").present or not least.present:
        return 0
    if least.integer is not None:
        return least.integer + 1
    kept = _percent(least.text or "")
    return -(-100 // (100 - kept)) if 0 < kept < 100 else 0


def lacks_scale(budget: Object) -> bool:
    """Whether the disruption controller cannot count the pods:
    only an integer ``minAvailable`` needs no scale.
    """
    return budget.condition("DisruptionAllowed")["reason"].text == "SyncFailed"


def allows(budget: Object) -> bool:
    """Return whether a budget is known to allow an eviction now."""
    return (budget.at("status", "disruptionsAllowed").integer or 0) > 0


def suffices(budget: Object, more: int) -> bool:
    """Return whether a budget allows an eviction once so many more of its pods are healthy."""
    healthy, desired = (
        budget.at("status", key).integer for key in ("currentHealthy", "desiredHealthy")
    )
    return healthy is not None and desired is not None and healthy + more > desired


def refuses_since(budget: Object) -> str | None:
    """Return since when a budget allows no disruption, RFC 3339; None: it does,
    or does not say it.

    The time changes when a disruption becomes allowed, or no longer is. Older releases renewed it
    at each write of the status, so it may be too late, but not too early
    (kubernetes/kubernetes:pkg/controller/disruption/disruption.go#updatePdbStatus,
    staging/src/k8s.io/component-helpers/apps/poddisruptionbudget/helpers.go
    #UpdateDisruptionAllowedCondition).
    """
    told = budget.condition("DisruptionAllowed")
    return told["lastTransitionTime"].text if told["status"].text == "False" else None


def lasting(since: str | None, cluster: Cluster) -> str:
    """Return for how long a budget has allowed no disruption; empty: that is not long."""
    age = clock.since(since, cluster)
    return (
        f"; it has allowed none for {clock.duration(age)}"
        if age is not None and age >= _LONG
        else ""
    )


_LONG: Final = timedelta(minutes=10)
"""A pod that was evicted or restarted is ready elsewhere by then."""


def _expected(budget: Object, cluster: Cluster) -> int:
    """Return how many pods the budget counts on; 0 if unknown."""
    expected = budget.at("status", "expectedPods").integer
    if expected is not None:
        return expected
    pods, unseen = gather(selected(budget, cluster.list(POD, budget.namespace)))
    return 0 if unseen else sum(not pod.deleted for pod in pods)


def selected(budget: Object, pods: Iterable[Object]) -> Iterator[Object]:
    """Yield those of the pods in the namespace of a budget that it selects.

    Raises what ``pods`` raises.
    """
    selector = selectors.parse(budget.at("spec", "selector").value)
    return (pod for pod in pods if selector.matches(pod.labels))
