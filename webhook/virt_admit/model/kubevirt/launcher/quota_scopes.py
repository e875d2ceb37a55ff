"""Which pods a ResourceQuota with scopes counts
(k8s.io/kubernetes pkg/quota/v1/evaluator/core/pods.go#podMatchesScopeFunc).
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.kubernetes.objects import Field, Object

_NOT_OF_LAUNCHERS: Final = frozenset(("Terminating", "BestEffort"))
"""Scopes that leave out launcher pods: these have no deadline, and they request CPU and memory."""


def counts_pods_of(quota: Object, priority_class: str) -> bool:
    """Return whether a quota counts the pods of a VM with this priority class; empty: it has none.

    Quotas for pods with affinity to other namespaces are left out.
    """
    scopes = {item.text for item in quota.at("spec", "scopes").items()}
    expressions = list(quota.at("spec", "scopeSelector", "matchExpressions").items())
    names = scopes | {item["scopeName"].text for item in expressions}
    if names & _NOT_OF_LAUNCHERS or _OTHER_NAMESPACES in names:
        return False
    if _PRIORITY in scopes and not priority_class:
        return False
    return all(
        _selects(item, priority_class)
        for item in expressions
        if item["scopeName"].text == _PRIORITY
    )


_PRIORITY: Final = "PriorityClass"
_OTHER_NAMESPACES: Final = "CrossNamespacePodAffinity"


def _selects(expression: Field, priority_class: str) -> bool:
    """Return whether a scope selector selects pods of a priority class
    (pods.go#podMatchesSelector).
    """
    values = {item.text for item in expression["values"].items()}
    match expression["operator"].text:
        case "In":
            return priority_class in values
        case "NotIn":
            return priority_class not in values
        case "DoesNotExist":
            return not priority_class
    return bool(priority_class)
