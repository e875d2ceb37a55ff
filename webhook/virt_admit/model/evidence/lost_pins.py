"""Pods that demand a node that no longer exists, or labels that no node has, or none has together:
they never start by waiting.

A pod needs its nodeSelector and its node affinity at once. kube-scheduler says only that no node
matches. The Operator Lifecycle Manager puts ``spec.config.nodeSelector`` of a Subscription in place
of the nodeSelector of each Deployment of its operator, and leaves their affinity, unless
``spec.config.affinity`` is set as well (operator-framework/operator-lifecycle-manager:
pkg/controller/operators/olm/overrides/inject/inject.go #InjectNodeSelectorIntoDeployment
#OverrideDeploymentAffinity). Source:
kubernetes/kubernetes:pkg/scheduler/framework/plugins/nodeaffinity/node_affinity.go#Filter. A node
of the demanded name may have another label ``kubernetes.io/hostname``: the kubelet writes its
hostname there when it starts (:pkg/kubelet/kubelet_node_status.go#updateDefaultLabels).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import about, argument, kubectl, merge_patch, nested, shell, typed
from virt_admit.model.evidence import writers
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import (
    DEPLOYMENT,
    NODE,
    POD,
    REPLICA_SET,
    STATEFUL_SET,
    SUBSCRIPTION,
)
from virt_admit.model.kubernetes.nodes import HOSTNAME
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.selectors import (
    IN,
    NODE_OPERATORS,
    NOT_IN,
    Requirement,
    allowed_values,
    parse_requirements,
)
from virt_admit.model.lookups import find, maker_of
from virt_admit.model.messages import names, shorten

READS: Final[Reads] = {
    NODE: ("metadata.labels",),
    POD: ("metadata.ownerReferences", "spec.affinity", "spec.nodeName", "spec.nodeSelector"),
    REPLICA_SET: ("metadata.ownerReferences",),
    **dict.fromkeys(
        (DEPLOYMENT, STATEFUL_SET),
        (*writers.READ, *("metadata.ownerReferences", "spec.template.spec.nodeSelector")),
    ),
}
SUBSCRIBED_READS: Final[Reads] = union(
    READS,
    {
        DEPLOYMENT: ("metadata.ownerReferences",),
        SUBSCRIPTION: ("spec.config", "status.currentCSV", "status.installedCSV"),
    },
)
"""The fields that ``subscribed`` reads."""
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
    selected: frozenset[str] = frozenset()
    """The labels of its nodeSelector that keep it from all nodes, or from those of its affinity."""


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
            words = f"demands label {key}={value} (nodeSelector), which no node has"
            return LostPin(words, gone=False, selected=frozenset((key,)))
    terms = _terms(pod)
    if not terms or any(_matches(term, each) for term in terms for each in labels):
        return _together(pod, terms, labels)
    return _of_affinity(terms, labels)


def _together(
    pod: Object, terms: Sequence[_Term], labels: Sequence[Mapping[str, str]]
) -> LostPin | None:
    """Return that no node has all labels of a pod's nodeSelector, or none of those that have them
    is one of its node affinity; None: a node is."""
    selector = pod.at("spec", "nodeSelector").texts
    chosen = [each for each in labels if selector.items() <= each.items()]
    taken = [each for each in chosen if any(_matches(term, each) for term in terms)]
    if not labels or taken or (chosen and not terms):
        return None
    telling = {
        key: value
        for key, value in sorted(selector.items())
        if any(each.get(key) != value for each in labels)
    }
    demands = " and ".join(f"{key}={value}" for key, value in telling.items())
    demands = f"{shorten(demands, 120)} (nodeSelector)"
    if chosen:
        every = dict.fromkeys(" and ".join(map(str, sorted(term))) for term in terms)
        demands = f"{demands} and {shorten(' or '.join(every), 160)} (node affinity)"
    words = f"demands {demands}, which no node has together"
    return LostPin(words, gone=False, selected=frozenset(telling))


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
    if own := _unselected(pod, owner, pin, cluster):
        return own
    name, group = owner["name"].text, (owner["apiVersion"].text or "").rpartition("/")[0]
    if kind := kinds.find(group, owner["kind"].text or ""):
        described = kubectl("describe", kind, name or "", pod.namespace)
    words = f"{back}, or change what {owner['kind'].text} {name} or its operator demands"
    return typed(words, described)


def way(pod: Object, pin: LostPin, cluster: Cluster) -> str:
    """Return the same, where a Subscription makes the demand, at that."""
    by = subscribed(pod, pin, cluster)
    return by.remedy if by is not None else remedy(pod, pin, cluster)


def _unselected(pod: Object, owner: Field, pin: LostPin, cluster: Cluster) -> str:
    """Return how a workload drops a label of its nodeSelector that no node has; empty: it does not
    demand it there, or is written by an owner of its own.
    """
    group = (owner["apiVersion"].text or "").rpartition("/")[0]
    kind = next(
        (each for each in _TEMPLATED if (each.group, each.kind) == (group, owner["kind"].text)),
        None,
    )
    made = find(cluster, kind, pod.namespace, owner["name"].text) if kind is not None else None
    if kind is None or made is None or _is_operated(made):
        return ""
    own = made.at("spec", "template", "spec", "nodeSelector").texts
    if len(pin.selected) != 1 or not pin.selected <= own.keys():
        return ""
    (key,) = pin.selected
    label = f"{key}={own[key]}"
    told = merge_patch(kind, made.name, made.namespace or "", nested((*_SELECTOR, key), None))
    writer = writers.of(made)
    source = writer.source if writer is not None and writer.tool != _HELM else ""
    if made.labels.get(_MANAGED) == _HELM or (writer is not None and writer.tool == _HELM):
        source = "the values of its Helm release"
    again = f", and in {source}, which else writes it again" if source else ""
    words = f"take {label} out of the nodeSelector of {made.kind} {made.name}{again}"
    return typed(words, told, f"or bring a node with label {label} back")


def _is_operated(workload: Object) -> bool:
    """Return whether an operator writes a workload, and so takes a change back. Those of KubeVirt
    and CDI have a label alone (kubevirt/kubevirt:pkg/virt-operator/resource/apply/reconcile.go
    #injectOperatorMetadata)."""
    owned = any(True for _ in workload.metadata["ownerReferences"].items())
    return owned or (workload.labels.get(_MANAGED) or "").endswith("operator")


_TEMPLATED: Final = (DEPLOYMENT, STATEFUL_SET)
_SELECTOR: Final = ("spec", "template", "spec", "nodeSelector")
_MANAGED, _HELM = "app.kubernetes.io/managed-by", "Helm"


# --- operators of a Subscription ------------------------------------------------------------------


class SubscribedPin(NamedTuple):
    """What a Subscription makes the pods of its operator demand that no node has."""

    subscription: Object
    words: str
    """``spec.config.nodeSelector of Subscription hco sets node-role.kubernetes.io/infra``."""
    remedy: str


def subscribed(pod: Object, pin: LostPin, cluster: Cluster) -> SubscribedPin | None:
    """Return which Subscription makes a pod demand a label; None: none is known to."""
    owner = maker_of(pod, cluster)
    name = owner["name"].text if owner is not None else None
    deployment = find(cluster, DEPLOYMENT, pod.namespace, name)
    releases = _releases(deployment) if deployment is not None else frozenset()
    for each in cluster.known(SUBSCRIPTION, pod.namespace) if releases else ():
        own = each.at("spec", "config", "nodeSelector").texts
        keys = sorted(pin.selected & own.keys())
        status = each["status"]
        if keys and releases & {status["currentCSV"].text, status["installedCSV"].text}:
            words = f"spec.config.nodeSelector of Subscription {each.name} sets {names(keys, 80)}"
            return SubscribedPin(each, words, _resubscribed(pod, each, keys))
    return None


def _releases(deployment: Object) -> frozenset[str | None]:
    """Return the ClusterServiceVersions that own a Deployment. None of them is its controller."""
    owners = deployment.metadata["ownerReferences"].items()
    return frozenset(each["name"].text for each in owners if each["kind"].text == _RELEASE)


_RELEASE: Final = "ClusterServiceVersion"


def _resubscribed(pod: Object, subscription: Object, keys: Sequence[str]) -> str:
    """Return how a Subscription places its operator on nodes that exist."""
    out = f"take {names(keys, 80)} out of spec.config.nodeSelector of Subscription"
    words = f"{out} {subscription.name}"
    if _terms(pod):
        words = (
            f"set spec.config.affinity.nodeAffinity of Subscription {subscription.name} to the "
            "nodes of its nodeSelector, which replaces the node affinity of the release; or "
            f"{out.removesuffix(' of Subscription')}, if the pod tolerates the other nodes"
        )
    return typed(words, about("edit", subscription, SUBSCRIPTION))
