"""Pods that demand a node that no longer exists, or a label that no node has: they never start by
waiting.

kube-scheduler says only that no node matches. Source:
kubernetes/kubernetes:pkg/scheduler/framework/plugins/nodeaffinity/node_affinity.go#Filter. A node
of the demanded name may have another label ``kubernetes.io/hostname``: the kubelet writes its
hostname there when it starts (:pkg/kubelet/kubelet_node_status.go#updateDefaultLabels).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import NODE, POD, REPLICA_SET
from virt_admit.model.kubernetes.nodes import HOSTNAME
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.selectors import (
    IN,
    NODE_OPERATORS,
    NOT_IN,
    Requirement,
    allowed_values,
    parse_requirements,
)
from virt_admit.model.lookups import maker_of
from virt_admit.model.messages import names, shorten

READS: Final[Reads] = {
    NODE: ("metadata.labels",),
    POD: ("metadata.ownerReferences", "spec.affinity", "spec.nodeName", "spec.nodeSelector"),
    REPLICA_SET: ("metadata.ownerReferences",),
}
_NAME: Final = "metadata.name"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_Term = frozenset[Requirement]
"""The requirements of one alternative; those on fields have ``metadata.name`` as key."""


class LostPin(NamedTuple):
    """What a pod demands that no node has."""

    words: str
    """``is pinned to node a (nodeSelector kubernetes.io/hostname), which does not exist``."""
    gone: bool
    """Whether it names a node, which does not exist."""
    renamed: str = ""
    """The node that exists under this name with another label of its hostname."""


def of_pod(pod: Object, cluster: Cluster) -> LostPin | None:
    """Return what a pod without a node demands that no node of the cluster has; None: a node has
    it, or not all nodes are known.
    """
    if pod.at("spec", "nodeName").text or pod.deleted or unlisted(cluster, NODE):
        return None
    labels = _labels(cluster)
    for key, value in pod.at("spec", "nodeSelector").texts.items():
        if all(each.get(key) != value for each in labels):
            if key == HOSTNAME:
                return _of_hosts("nodeSelector", HOSTNAME, (value,), labels)
            return LostPin(f"demands label {key}={value} (nodeSelector), which no node has", False)
    terms = _terms(pod)
    if not terms or any(_matches(term, each) for term in terms for each in labels):
        return None
    return _of_affinity(terms, labels)


@cached
def _labels(cluster: Cluster) -> Sequence[Mapping[str, str]]:
    return [{**node.labels, _NAME: node.name} for node in cluster.known(NODE)]


def _terms(pod: Object) -> Sequence[_Term]:
    """Return the alternatives of the node affinity of a pod; empty: it has none, or faulty ones."""
    required = pod.at("spec", "affinity", "nodeAffinity", _REQUIRED)
    found: list[_Term] = []
    for term in required["nodeSelectorTerms"].items():
        labels, faults = parse_requirements(
            term["matchExpressions"].value, NODE_OPERATORS, "matchExpressions"
        )
        fields, more = parse_requirements(term["matchFields"].value, (IN, NOT_IN), "matchFields")
        if faults or more:
            return ()
        found.append(frozenset((*labels, *fields)))
    return found


def _matches(term: _Term, labels: Mapping[str, str]) -> bool:
    return bool(term) and all(each.matches(labels) for each in term)


def _of_affinity(terms: Sequence[_Term], labels: Sequence[Mapping[str, str]]) -> LostPin | None:
    for key in (HOSTNAME, _NAME):
        hosts = [allowed_values(term, key) for term in terms]
        named = frozenset[str]().union(*(each for each in hosts if each is not None))
        if all(hosts) and not named & {each.get(key) for each in labels}:
            return _of_hosts("node affinity", key, sorted(named), labels)
    lacking = [
        [each for each in sorted(term) if not any(each.matches(given) for given in labels)]
        for term in terms
    ]
    if not all(lacking):  # nodes have each label, but none has all of a term
        return None
    every = dict.fromkeys(" and ".join(map(str, some)) for some in lacking)
    demands = shorten(" or ".join(every), 120)
    return LostPin(f"demands {demands} (node affinity), which no node has", gone=False)


def _of_hosts(
    what: str, key: str, hosts: Collection[str], labels: Iterable[Mapping[str, str]]
) -> LostPin:
    for own in labels:
        if (name := own[_NAME]) in hosts:
            given = own.get(HOSTNAME)
            has = f"has {HOSTNAME}={given}" if given else "lacks that label"
            words = f"is pinned to {HOSTNAME}={name} ({what}), but node {name} {has}"
            return LostPin(words, gone=False, renamed=name)
    several = len(hosts) > 1
    which = f"node{'s' * several} {names(hosts)}"
    ends = "none of which exists" if several else "which does not exist"
    return LostPin(f"is pinned to {which} ({what} {key}), {ends}", True)


def remedy(pod: Object, pin: LostPin, cluster: Cluster) -> str:
    """Return where the demand is changed: at the owner, which makes the pod again as it was."""
    owner, described = maker_of(pod, cluster), kubectl("describe", POD, pod.name, pod.namespace)
    if pin.renamed:
        label = shell(
            *("kubectl", "label", "node", argument(pin.renamed)),
            *(f"{HOSTNAME}={pin.renamed}", "--overwrite"),
        )
        return typed(
            f"give node {pin.renamed} its old hostname back (of the host, or --hostname-override), "
            "which its kubelet writes to that label at each start, and then the label, unless "
            "other pods or volumes demand the new one",
            label,
        )
    back = "bring that node back under its name" if pin.gone else "give a node that label"
    if owner is None:
        return typed(f"{back}, or make the pod again", described)
    name, group = owner["name"].text, (owner["apiVersion"].text or "").rpartition("/")[0]
    if kind := kinds.find(group, owner["kind"].text or ""):
        described = kubectl("describe", kind, name or "", pod.namespace)
    words = f"{back}, or change what {owner['kind'].text} {name} or its operator demands"
    return typed(words, described)
