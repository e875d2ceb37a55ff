"""Pods as kube-scheduler sees them: what they demand of nodes and pods, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.selectors import Selector
from virt_admit.model.scheduler.node_selectors import NodeSelector, parse_node_selector
from virt_admit.model.scheduler.pod_terms import (
    MOST_REQUIREMENTS,
    REQUIRED,
    PodTerm,
    Unsearched,
    pod_terms,
    too_many,
    too_many_constraints,
    too_many_for_nodes,
    with_label_keys,
)
from virt_admit.model.scheduler.resources import Resources, is_sized, pod_requests


@dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint with ``whenUnsatisfiable: DoNotSchedule``."""

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
    sized: bool = True
    """Whether its requests are known. A file may hold requests that are not quantities."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_affinity: NodeSelector | None = None
    """None: every node matches."""
    forbidden_labels: tuple[str, ...] = ()
    """Keys of labels that the node must not have: KubeVirt adds them to every affinity term."""
    tolerations: Any = None
    attachment_tolerations: Any = None
    """Those of a second pod that must start on the same node; None: none, or as its own."""
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    unsearched: Unsearched | None = None
    """Its affinity and anti-affinity, if their terms are too many."""
    spread: tuple[Spread, ...] = ()
    claims: tuple[str, ...] = ()
    """Names of the claims that it mounts."""
    fault: str = ""
    """Why no node takes it now: what it names does not exist; empty: nothing."""
    terminating: bool = False
    priority: int = 0
    """``spec.priority``, which the API server sets from the PriorityClass;
    kube-scheduler reads a missing one as 0.
    """
    never_preempts: bool = False
    meanings: Mapping[str, str] = field(default_factory=dict)
    """What some keys of ``node_selector`` and ``forbidden_labels`` stand for, in words."""

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def terms(self) -> tuple[PodTerm, ...]:
        return (*self.affinity, *self.anti_affinity)

    @property
    def pod_selectors(self) -> tuple[Selector, ...]:
        """The selectors of its terms and of its topology spread constraints."""
        selectors = (
            *(each.selector for each in self.terms),
            *(each.selector for each in self.spread),
        )
        return tuple(each for each in selectors if each is not None)

    def with_most(self, terms: int) -> Pod:
        """Return the pod; its affinity or topology spread is not searched with more terms."""
        if len(self.spread) > terms:
            many = too_many_constraints(self.full_name, len(self.spread), terms)
            return replace(self, spread=(), unsearched=many)
        if len(self.affinity) + len(self.anti_affinity) <= terms:
            return self
        many = too_many(self.full_name, self.terms, terms)
        return replace(self, affinity=(), anti_affinity=(), unsearched=many)

    def with_few_demands(self) -> Pod:
        """Return the pod.

        If it demands more of each node than is searched, it demands nothing: then no node certainly
        accepts it, and no node refuses it for these demands.
        """
        affinity = self.node_affinity.terms if self.node_affinity is not None else ()
        tolerations = self.tolerations if isinstance(self.tolerations, list) else ()
        lists = (affinity, tolerations, self.node_selector, self.forbidden_labels)
        count = sum(map(len, lists)) + sum(len(term.labels) + len(term.fields) for term in affinity)
        if count <= MOST_REQUIREMENTS:
            return self
        return replace(
            self,
            node_affinity=None,
            tolerations=[{"operator": "Exists"}],
            node_selector={},
            forbidden_labels=(),
            unsearched=self.unsearched or too_many_for_nodes(self.full_name, count),
        )


def read(pod: Object) -> Pod:
    """Return an object of kind Pod as kube-scheduler sees it."""
    spec = pod["spec"]
    labels = pod.labels
    required = spec.at("affinity", "nodeAffinity", REQUIRED)
    terms = pod_terms(spec["affinity"], pod.namespace or "default", pod.name, labels)
    return Pod(
        namespace=pod.namespace or "default",
        name=pod.name,
        node=spec["nodeName"].text or "",
        labels=labels,
        requests=pod_requests(spec, pod["status"]),
        sized=is_sized(spec),
        node_selector=spec["nodeSelector"].texts,
        node_affinity=parse_node_selector(required.value) if required.is_map else None,
        tolerations=spec["tolerations"].value,
        affinity=terms.affinity,
        anti_affinity=terms.anti_affinity,
        unsearched=terms.unsearched,
        spread=spread_constraints(spec["topologySpreadConstraints"], labels),
        claims=tuple(_claims(pod)),
        terminating=pod.deleted,
        priority=spec["priority"].integer or 0,
        never_preempts=spec["preemptionPolicy"].text == "Never",
    )


def claim_names(pod: Object) -> Iterator[str]:
    """Yield the claims that the volumes of a pod name."""
    for volume in pod.at("spec", "volumes").items():
        if name := volume.at("persistentVolumeClaim", "claimName").text:
            yield name


def claim_users(namespace: str, claim: str, cluster: Cluster) -> Sequence[Object]:
    """Return the known pods that use a claim and have not ended, by name."""
    return entry(cluster, _users, (namespace, claim)) or ()


def _users(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    found: dict[tuple[str, str], list[Object]] = {}
    for pod in sorted(cluster.known(POD), key=lambda each: each.full_name):
        for claim in claim_names(pod) if not pod.ended else ():
            found.setdefault((pod.namespace, claim), []).append(pod)
    return found


def _claims(pod: Object) -> Iterator[str]:
    for volume in pod.at("spec", "volumes").items():
        name = volume.at("persistentVolumeClaim", "claimName").text
        if name:
            yield name
        elif volume["ephemeral"].is_map:
            # a generic ephemeral volume (ephemeral volume controller: pod-volume)
            yield f"{pod.name}-{volume['name'].text or ''}"


def spread_constraints(constraints: Field, labels: Mapping[str, str]) -> tuple[Spread, ...]:
    """Return the topology spread constraints that forbid scheduling."""
    return tuple(
        Spread(
            topology_key=item["topologyKey"].text or "",
            selector=with_label_keys(item, labels),
            max_skew=item["maxSkew"].integer or 1,
            min_domains=item["minDomains"].integer or 1,
            honor_affinity=item["nodeAffinityPolicy"].text != "Ignore",
            honor_taints=item["nodeTaintsPolicy"].text == "Honor",
        )
        for item in constraints.items()
        if item.is_map and item["whenUnsatisfiable"].text in (None, "", "DoNotSchedule")
    )
