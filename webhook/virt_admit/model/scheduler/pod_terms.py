"""The required terms of pod affinities and anti-affinities: which other pods a pod demands or avoids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.objects import Field
from virt_admit.model.kubernetes.selectors import IN, NOT_IN, Requirement, Selector

HOSTNAME: Final = "kubernetes.io/hostname"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class PodTerm(NamedTuple):
    """One required term of a pod affinity or anti-affinity."""

    topology_key: str
    selector: Selector | None
    """None: it selects no pod."""
    namespaces: frozenset[str]
    namespace_selector: Selector | None

    def matches(self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Return whether the term selects a pod with these labels in that namespace."""
        if self.selector is None:
            return False
        here = namespace in self.namespaces or (
            self.namespace_selector is not None and self.namespace_selector.matches(namespace_labels)
        )
        return here and self.selector.matches(labels)


def pod_terms(affinity: Field, namespace: str, labels: Mapping[str, str]) -> tuple[PodTerm, ...]:
    """Return the required terms of a ``podAffinity`` or ``podAntiAffinity`` of a pod in that namespace."""
    return tuple(_term(term, namespace, labels) for term in affinity[REQUIRED].items() if term.is_map)


def _term(term: Field, namespace: str, labels: Mapping[str, str]) -> PodTerm:
    names = frozenset(item.text for item in term["namespaces"].items() if item.text)
    chosen = term["namespaceSelector"]
    if not names and not chosen.is_map:  # pkg/scheduler/framework/types.go#getNamespacesFromPodAffinityTerm
        names = frozenset((namespace,))
    return PodTerm(
        topology_key=term["topologyKey"].text or "",
        selector=with_label_keys(term, labels),
        namespaces=names,
        namespace_selector=selectors.parse(chosen.value) if chosen.is_map else None,
    )


def with_label_keys(term: Field, labels: Mapping[str, str]) -> Selector | None:
    """Return the label selector with ``matchLabelKeys`` and ``mismatchLabelKeys`` merged in, as the API server does
    when a pod is created (pkg/registry/core/pod/strategy.go#applyMatchLabelKeysAndMismatchLabelKeys)."""
    if not term["labelSelector"].is_map:
        return None
    selector = selectors.parse(term["labelSelector"].value)
    extra = [
        Requirement(key.text, operator, frozenset((labels[key.text],)))
        for field_name, operator in (("matchLabelKeys", IN), ("mismatchLabelKeys", NOT_IN))
        for key in term[field_name].items()
        if key.text in labels and key.text
    ]
    return Selector(selector.requirements.union(extra), selector.errors) if extra else selector
