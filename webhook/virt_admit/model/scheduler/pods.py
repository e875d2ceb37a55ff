"""Pods as kube-scheduler sees them: what they demand of a node and of other pods, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from virt_admit.model import selectors
from virt_admit.model.objects import Field, Object
from virt_admit.model.scheduler.node_selectors import NodeSelector, parse_node_selector
from virt_admit.model.scheduler.resources import Resources, pod_requests
from virt_admit.model.selectors import IN, NOT_IN, Requirement, Selector

HOSTNAME: Final = "kubernetes.io/hostname"
FINISHED: Final = ("Succeeded", "Failed")
"""Phases of pods that kube-scheduler does not see: its informer leaves them out."""

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class PodTerm:
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


@dataclass(frozen=True, slots=True)
class Spread:
    """One topology spread constraint that forbids scheduling (``whenUnsatisfiable: DoNotSchedule``)."""

    topology_key: str
    selector: Selector | None
    max_skew: int
    min_domains: int
    honor_affinity: bool
    honor_taints: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """What decides where a pod may run, and what it takes from the node that it is on."""

    namespace: str
    name: str = ""
    node: str = ""
    """The node that it is bound to; empty: none yet."""
    labels: Mapping[str, str] = field(default_factory=dict)
    requests: Resources = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_affinity: NodeSelector | None = None
    """None: every node matches."""
    forbidden_labels: tuple[str, ...] = ()
    """Keys of labels that the node must not have: what KubeVirt adds to every term of the node affinity."""
    tolerations: Any = None
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    claims: tuple[str, ...] = ()
    """Names of the claims that it mounts."""
    terminating: bool = False
    meanings: Mapping[str, str] = field(default_factory=dict)
    """What some keys of ``node_selector`` and ``forbidden_labels`` stand for, in words."""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


def read(pod: Object) -> Pod:
    """Return an object of kind Pod as kube-scheduler sees it."""
    spec = pod["spec"]
    labels = pod.labels
    required = spec.at("affinity", "nodeAffinity", REQUIRED)
    return Pod(
        namespace=pod.namespace or "default",
        name=pod.name,
        node=spec["nodeName"].text or "",
        labels=labels,
        requests=pod_requests(spec, pod["status"]),
        node_selector=spec["nodeSelector"].texts,
        node_affinity=parse_node_selector(required.value) if required.is_map else None,
        tolerations=spec["tolerations"].value,
        affinity=pod_terms(spec.at("affinity", "podAffinity"), pod.namespace or "default", labels),
        anti_affinity=pod_terms(spec.at("affinity", "podAntiAffinity"), pod.namespace or "default", labels),
        spread=spread_constraints(spec["topologySpreadConstraints"], labels),
        claims=tuple(_claims(pod)),
        terminating=pod.deleted,
    )


def _claims(pod: Object) -> Iterator[str]:
    for volume in pod.at("spec", "volumes").items():
        name = volume.at("persistentVolumeClaim", "claimName").text
        if name:
            yield name
        elif volume["ephemeral"].is_map:  # a generic ephemeral volume (ephemeral volume controller: pod-volume)
            yield f"{pod.name}-{volume['name'].text or ''}"


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
        selector=_with_label_keys(term, labels),
        namespaces=names,
        namespace_selector=selectors.parse(chosen.value) if chosen.is_map else None,
    )


def _with_label_keys(term: Field, labels: Mapping[str, str]) -> Selector | None:
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


def spread_constraints(constraints: Field, labels: Mapping[str, str]) -> tuple[Spread, ...]:
    """Return the topology spread constraints that forbid scheduling."""
    return tuple(
        Spread(
            topology_key=item["topologyKey"].text or "",
            selector=_with_label_keys(item, labels),
            max_skew=item["maxSkew"].integer or 1,
            min_domains=item["minDomains"].integer or 1,
            honor_affinity=item["nodeAffinityPolicy"].text != "Ignore",
            honor_taints=item["nodeTaintsPolicy"].text == "Honor",
        )
        for item in constraints.items()
        if item.is_map and item["whenUnsatisfiable"].text in (None, "", "DoNotSchedule")
    )
