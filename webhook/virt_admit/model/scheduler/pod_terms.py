"""The required terms of pod affinities and anti-affinities:
which other pods a pod demands or avoids.

Each term of a pod multiplies with all other pods, and the author of a VM writes as many as fit into
an object. Equal terms are one. An object with more different ones than ``MOST_TERMS`` is not
searched: what depends on them is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.objects import Field
from virt_admit.model.kubernetes.selectors import IN, NOT_IN, Requirement, Selector

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
NOT_SEARCHED: Final = "not searched"
"""Words of everything that could be read and has too many terms."""
MOST_TERMS: Final = 100
"""Different terms of one pod that are searched: more than are written by hand."""
MOST_REQUIREMENTS: Final = 1_000
"""And requirements of all of them, on labels of pods or namespaces."""


class PodTerm(NamedTuple):
    """One required term of a pod affinity or anti-affinity."""

    topology_key: str
    selector: Selector | None
    """None: it selects no pod."""
    namespaces: frozenset[str]
    namespace_selector: Selector | None

    def matches(
        self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]
    ) -> bool:
        """Return whether the term selects a pod with these labels in that namespace."""
        return (
            self.reaches(namespace, namespace_labels)
            and self.selector is not None
            and self.selector.matches(labels)
        )

    def reaches(self, namespace: str, namespace_labels: Mapping[str, str]) -> bool:
        """Return whether the term concerns the pods of a namespace with these labels."""
        return namespace in self.namespaces or (
            self.namespace_selector is not None
            and self.namespace_selector.matches(namespace_labels)
        )


class Unsearched(NamedTuple):
    """The terms of a pod that has too many."""

    what: str
    namespaces: frozenset[str] | None
    """Where they may select pods. None: anywhere."""

    def may_select(self, namespace: str) -> bool:
        """Return whether they may select a pod of that namespace."""
        return self.namespaces is None or namespace in self.namespaces


class PodTerms(NamedTuple):
    """The required terms of a pod, or that they are too many."""

    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    unsearched: Unsearched | None = None


def pod_terms(affinity: Field, namespace: str, name: str, labels: Mapping[str, str]) -> PodTerms:
    """Return the required terms of the ``affinity`` of a pod with that name, once each."""
    listed = {kind: _different(affinity[kind]) for kind in ("podAffinity", "podAntiAffinity")}
    both = [term for terms in listed.values() for term in terms]
    if not both:
        return PodTerms()
    size = sum(map(_requirements, both))
    if len(both) > MOST_TERMS or size > MOST_REQUIREMENTS:
        found, most = f"{len(both):,} affinity terms", MOST_TERMS
        if len(both) <= MOST_TERMS:
            found, most = f"{size:,} requirements in its affinity terms", MOST_REQUIREMENTS
        what = f"the affinity of pods: {namespace}/{name} has {found}{_beyond(most)}"
        return PodTerms(unsearched=Unsearched(what, _reach(both, namespace)))
    attracting, repelling = (
        tuple(dict.fromkeys(_term(term, namespace, labels) for term in terms))
        for terms in listed.values()
    )
    return PodTerms(attracting, repelling)


def too_many(full_name: str, terms: tuple[PodTerm, ...], most: int) -> Unsearched:
    """Return that these terms of a pod are more than those that are searched."""
    anywhere = any(term.namespace_selector is not None for term in terms)
    reach = None if anywhere else frozenset(name for term in terms for name in term.namespaces)
    return Unsearched(
        f"the affinity of pods: {full_name} has {len(terms):,} affinity terms{_beyond(most)}", reach
    )


def too_many_for_nodes(full_name: str, count: int) -> Unsearched:
    """Return that what a pod demands of nodes, which concerns no other pod, is too much."""
    what = (
        f"the node affinity of pods: {full_name} has {count:,} demands on "
        f"nodes{_beyond(MOST_REQUIREMENTS)}"
    )
    return Unsearched(what, frozenset())


def too_many_constraints(full_name: str, count: int, most: int) -> Unsearched:
    """Return that the spread constraints of a pod, which concern no other pod, are too many."""
    what = f"the topology spread of pods: {full_name} has {count:,} constraints{_beyond(most)}"
    return Unsearched(what, frozenset())


def _beyond(most: int) -> str:
    if most:
        return f"; more than {most:,} are {NOT_SEARCHED}"
    return f", {NOT_SEARCHED} because there are too many in all"


def _different(affinity: Field) -> list[Field]:
    """Return the terms that are written differently."""
    return list(
        {repr(term.value): term for term in affinity[REQUIRED].items() if term.is_map}.values()
    )


def _requirements(term: Field) -> int:
    """Return roughly how many comparisons the term needs for one pod."""
    selectors = (term["labelSelector"], term["namespaceSelector"])
    lists = [
        term["matchLabelKeys"],
        term["mismatchLabelKeys"],
        *(each["matchExpressions"] for each in selectors),
    ]
    return sum(len(each["matchLabels"].map) for each in selectors) + sum(
        1 for each in lists for _ in each.items()
    )


def _reach(terms: list[Field], namespace: str) -> frozenset[str] | None:
    if any(term["namespaceSelector"].is_map for term in terms):
        return None
    return frozenset(name for term in terms for name in _namespaces(term) or (namespace,))


def _namespaces(term: Field) -> frozenset[str]:
    return frozenset(item.text for item in term["namespaces"].items() if item.text)


def _term(term: Field, namespace: str, labels: Mapping[str, str]) -> PodTerm:
    names = _namespaces(term)
    chosen = term["namespaceSelector"]
    # pkg/scheduler/framework/types.go#getNamespacesFromPodAffinityTerm
    if not names and not chosen.is_map:
        names = frozenset((namespace,))
    return PodTerm(
        topology_key=term["topologyKey"].text or "",
        selector=with_label_keys(term, labels),
        namespaces=names,
        namespace_selector=selectors.parse(chosen.value) if chosen.is_map else None,
    )


def with_label_keys(term: Field, labels: Mapping[str, str]) -> Selector | None:
    """Return the label selector with ``matchLabelKeys`` and ``mismatchLabelKeys`` merged in, as the
    API server does when a pod is created
    (pkg/registry/core/pod/strategy.go#applyMatchLabelKeysAndMismatchLabelKeys).
    """
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
