"""How many pods let a budget allow an eviction, and what sets their number.

A share of the pods is rounded up, so that one pod more is often not enough: 80 % of two, three and
four pods is all of them. The operator of Portworx writes all storage nodes but one; before 24.1.0
it counted those of the other site of a stretched cluster too, which has pods in another Kubernetes.
Sources: kubernetes/kubernetes:pkg/controller/disruption/disruption.go#getExpectedPodCount;
libopenstorage/operator:drivers/storage/portworx/util/util.go#CountStorageNodes (23.10.3, 24.1.0),
pull request 1463.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.budgets import pod_budgets
from virt_admit.forecasts.drain.budgets.operator_eviction import OperatorAnswer, PodEviction, Way
from virt_admit.model.commands import argument, kubectl, merge_patch, shell, typed
from virt_admit.model.kubernetes import kinds, workloads
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import (
    AUTOSCALER,
    DEPLOYMENT,
    NODE,
    POD,
    REPLICA_SET,
    SCALED_OBJECT,
    STATEFUL_SET,
    Kind,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import NAME, Reads
from virt_admit.model.kubevirt.settings.versions import Version, parse_version
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, names

_ANNOTATIONS: Final = {
    ("core.libopenstorage.org", "px-storage"): "portworx.io/storage-pdb-min-available"
}
"""What sets minAvailable of a budget at its owner, by the API group of that and the name of the
budget (libopenstorage/operator:drivers/storage/portworx/component/disruption_budget.go).
"""
_OPERATOR, _OWN_DOMAIN = "portworx-operator", Version(24, 1)
"""The Deployment of the operator of Portworx, and its release that counts the nodes of its own
cluster domain alone."""
_ARGUMENTS: Final = "portworx.io/misc-args"
_DOMAIN: Final = re.compile(r"-cluster_domain[ =]\S{1,63}")
_STORAGE_NODE: Final = Kind("core.libopenstorage.org", ("v1",), "storagenodes", "StorageNode")
READS: Final[Reads] = {
    NODE: NAME,
    POD: ("metadata.labels", "metadata.ownerReferences"),
    AUTOSCALER: ("spec.scaleTargetRef", "spec.minReplicas", "spec.maxReplicas"),
    SCALED_OBJECT: ("spec.scaleTargetRef", "spec.minReplicaCount", "spec.maxReplicaCount"),
    **dict.fromkeys(
        (DEPLOYMENT, STATEFUL_SET, REPLICA_SET),
        ("metadata.ownerReferences", "spec.replicas", "spec.template.spec.containers.image"),
    ),
}
ONE_AT_A_TIME: Final = "set maxUnavailable: 1 instead of minAvailable"
"""What the owner of a budget may decide."""
_WORKLOADS: Final = {each.kind: each for each in (DEPLOYMENT, STATEFUL_SET, REPLICA_SET)}
_HASH: Final = "pod-template-hash"
"""The label of the pods of a Deployment: the name of their ReplicaSet is that of the Deployment and
this hash.
"""


class PodOwner(NamedTuple):
    """What sets the number of pods of one kind."""

    kind: str
    name: str
    obj: Object | None
    """None: it is not known, or its kind is not."""
    scaler: Object | None
    """The autoscaler that changes its replicas; None: none is known."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def limits(self) -> tuple[str, str]:
        """The fields of the autoscaler with the least and the most replicas."""
        keda = self.scaler is not None and kinds.of(self.scaler) is SCALED_OBJECT
        return ("minReplicaCount", "maxReplicaCount") if keda else ("minReplicas", "maxReplicas")


def owner(pod: Object, cluster: Cluster) -> PodOwner | None:
    """Return what sets the number of pods like this one; None: no controller does."""
    found: PodOwner | None = None
    above: Object | None = pod
    while above is not None and above.controller is not None:
        kind, name = above.controller["kind"].text or "", above.controller["name"].text or ""
        above = find(cluster, _WORKLOADS[kind], pod.namespace, name) if kind in _WORKLOADS else None
        suffix = f"-{pod.labels.get(_HASH, '')}"
        if above is None and kind == REPLICA_SET.kind and len(suffix) > 1 and name.endswith(suffix):
            kind, name = DEPLOYMENT.kind, name.removesuffix(suffix)
            above = find(cluster, DEPLOYMENT, pod.namespace, name)
        found = PodOwner(
            kind, name, above, workloads.autoscaler(kind, pod.namespace, name, cluster)
        )
    return found


def remedy(budget: Object, found: PodOwner | None) -> str:
    """Return what makes a budget allow an eviction that it never allows by its form,
    as a sentence without its end.
    """
    number = pod_budgets.enough(budget)
    if not number:
        return "No number of pods is enough, so let its owner set maxUnavailable: 1"
    return f"{_more(number, found)}, or {ONE_AT_A_TIME}"


def _more(number: int, found: PodOwner | None) -> str:
    if found is None:
        return f"Run at least {number} pods"
    if found.scaler is None:
        verb = "Run" if found.kind in _WORKLOADS else "Ask for"
        return f"{verb} at least {number} pods of {found}"
    least, most = found.limits
    known = found.scaler.at("spec", most).integer
    both = f" and {most}" if known is not None and known < number else ""
    return (
        f"Set {least}{both} to {number} in {found.scaler.kind} {found.scaler.name}, which scales "
        f"{found}"
    )


def command(budget: Object, found: PodOwner | None, cluster: Cluster) -> str:
    """Return the command that runs as many pods as let one go; empty: no number does,
    or something else sets it.

    An autoscaler that cannot be read would take a number back that is written in the workload.
    """
    number = pod_budgets.enough(budget)
    if not number or found is None:
        return ""
    if found.scaler is not None:
        kind, (least, most) = kinds.of(found.scaler), found.limits
        known = found.scaler.at("spec", most).integer
        limits = {least: number} | ({most: number} if known is not None and known < number else {})
        spec = {"spec": limits}
        return (
            merge_patch(kind, found.scaler.name, budget.namespace, spec) if kind is not None else ""
        )
    if found.obj is None or found.kind not in _WORKLOADS or unlisted(cluster, AUTOSCALER):
        return ""
    replicas = found.obj.at("spec", "replicas").integer
    if replicas is None or replicas >= number:
        return ""
    namespace = ("-n", argument(budget.namespace)) if budget.namespace else ()
    workload = argument(f"{found.kind.lower()}/{found.name}")
    return shell("kubectl", "scale", workload, *namespace, f"--replicas={number}")


def commanded(remedy: str, told: str) -> str:
    """Return a remedy whose first way has this command."""
    first, _, others = remedy.rstrip(".").partition(", or ")
    return typed(first, told, f"or {others}" if others else "")


def annotated(eviction: PodEviction, owner: Object, kind: Kind) -> OperatorAnswer | None:
    """Return that an annotation of its owner has set a budget that can never allow an eviction;
    None: none has.
    """
    budget, key = eviction.budget, _ANNOTATIONS.get((kind.group, eviction.budget.name), "")
    least = budget.at("spec", "minAvailable").integer
    pods = budget.at("status", "expectedPods").integer
    if least is None or not pods or not key or owner.annotations.get(key) != str(least):
        return None
    above = f"{owner.kind} {owner.name}"
    command = kubectl("annotate", kind, owner.name, owner.namespace or "", f"{key}-")
    return OperatorAnswer(
        Way.NEVER,
        f"{eviction.never}, as annotation {key} of {above} is {least}, from which its operator "
        "takes minAvailable",
        typed(
            f"Remove that annotation of {above}; or set it to {pods - 1}",
            command,
            "the operator then writes a budget that lets one pod go, and it reverts any other "
            "change of it. Portworx operator 24.1.0 and later ignores such a value.",
        ),
    )


def stretched(eviction: PodEviction, owner: Object, kind: Kind) -> OperatorAnswer | None:
    """Return that the operator of Portworx demands pods for the storage nodes of another cluster,
    too, as one StorageCluster of two sites has them; None: nothing says so.
    """
    budget, cluster = eviction.budget, eviction.cluster
    key = _ANNOTATIONS.get((kind.group, budget.name), "")
    least = budget.at("spec", "minAvailable").integer
    pods = budget.at("status", "expectedPods").integer
    if not key or key in owner.annotations or least is None or not pods or unlisted(cluster, NODE):
        return None
    every = [each for each in cluster.known(_STORAGE_NODE) if _has_storage(each, owner)]
    others = [each.name for each in every if find(cluster, NODE, "", each.name) is None]
    runs = _release(cluster)
    if len(every) != least + 1 or len(every) - len(others) != pods:
        return None
    if runs is not None and runs >= _OWN_DOMAIN:
        return None
    domain = _DOMAIN.search(owner.annotations.get(_ARGUMENTS, ""))
    of = f", of cluster domain {domain[0].split()[-1]}" if domain else ""
    above, which = f"{owner.kind} {owner.name}", f"its operator{f' ({runs})' if runs else ''}"
    reason = (
        f"{eviction.never}, as {which} takes all {len(every)} StorageNodes of {above} but one, and "
        f"{len(others)} of them ({names(others, 80)}) are in another cluster; here "
        f"{pods} pods run{of}"
    )
    if pods < _WRITTEN:
        return OperatorAnswer(Way.NEVER, reason, _third(eviction, owner, kind, key))
    told = kubectl("annotate", kind, owner.name, owner.namespace or "", f"{key}={pods - 1}")
    counts = f"{_OWN_DOMAIN} or later, which counts those of its domain only"
    update = f"update the operator of Portworx to {counts}"
    if runs is not None and runs < _ANNOTATED:
        described = kubectl("describe", DEPLOYMENT, _OPERATOR, budget.namespace or "")
        return OperatorAnswer(Way.NEVER, reason, typed(capital(update), described))
    words = f"Set annotation {key} of {above} to {pods - 1}, which lets one pod go"
    return OperatorAnswer(Way.NEVER, reason, typed(words, told, f"or {update}"))


_ANNOTATED: Final = Version(23, 10, 2)
_WRITTEN: Final = 3
"""The operator of Portworx writes no budget for fewer pods, and leaves the one that there is
(disruption_budget.go#createPortworxPodDisruptionBudget, also of 24.1.0)."""


def _third(eviction: PodEviction, owner: Object, kind: Kind, key: str) -> str:
    """Return how its operator writes a budget again for a site of one or two storage nodes."""
    runs = _release(eviction.cluster)
    then = f"set annotation {key} of {owner.kind} {owner.name} to {_WRITTEN - 1}"
    if runs is not None and runs < _ANNOTATED:
        then = f"update the operator of Portworx to {_OWN_DOMAIN} or later"
    words = (
        f"Let Portworx have storage on {_WRITTEN} nodes here and {then}: for fewer its operator "
        "writes no budget, and leaves this one whatever its release"
    )
    return typed(words, kubectl("describe", kind, owner.name, owner.namespace or ""))


def _has_storage(node: Object, owner: Object) -> bool:
    """Return whether a StorageNode of a StorageCluster counts for its budget."""
    of = node.controller
    own = of is not None and of["name"].text == owner.name and node.namespace == owner.namespace
    return own and node.at("status", "nodeAttributes", "storage").boolean is True


def _release(cluster: Cluster) -> Version | None:
    """Return the release of the operator of Portworx; None: not known."""
    found = {
        parse_version(workloads.image_tag(box["image"].text or ""))
        for each in workloads.named((_OPERATOR,), cluster)
        for box in each.at("spec", "template", "spec", "containers").items()
    }
    return found.pop() if len(found) == 1 else None


_HYPERSHIFT: Final = "hypershift.openshift.io"
_HOSTED: Final = f"{_HYPERSHIFT}/hosted-control-plane"
"""Label of the pods of a hosted control plane, and of no VM of its nodes
(openshift/hypershift:support/controlplane-component/defaults.go).
"""


def hosted(eviction: PodEviction, owner: Object | None, name: str, kind: Kind) -> OperatorAnswer:
    """Return that HyperShift wrote a budget for the single pod of a hosted control plane.

    A HostedControlPlane is overwritten from its HostedCluster, whose controllerAvailabilityPolicy
    is immutable: SingleReplica gives ``minAvailable: 1``, HighlyAvailable ``maxUnavailable: 1``.
    Sources: openshift/hypershift:support/controlplane-component/common.go#AdaptPodDisruptionBudget,
    :hypershift-operator/controllers/hostedcluster/hostedcluster_controller.go
    #reconcileHostedControlPlane, :api/hypershift/v1beta1/hostedcluster_types.go; pull request 9394.

    Args:
        owner: the HostedControlPlane; None: it is not known.
        name: its name.
        kind: its kind.
    """
    space, node = eviction.budget.namespace, eviction.node
    above = _hosted_cluster(owner, name)
    reason = (
        f"{eviction.never}, as controllerAvailabilityPolicy of {above} is SingleReplica, and "
        "HyperShift writes such budgets for it. That policy is immutable, and HyperShift reverts "
        "changes of the HostedControlPlane and of its budgets"
    )
    update = typed(
        "Update HyperShift once a release leaves these budgets out (OCPBUGS-112277)",
        kubectl("describe", kind, name, space),
    )
    where = ("--field-selector", f"spec.nodeName={node}")
    label = f"{_HOSTED}={eviction.pod.labels.get(_HOSTED, '')}"
    delete = shell("kubectl", "delete", "pod", "-n", space, "-l", label, *where)
    words = (
        f"or, as a decision, once {node} is cordoned, delete the pods of this control plane there "
        "by hand: it is away until they run on another node"
    )
    known = _HOSTED in eviction.pod.labels
    way = delete if known else kubectl("get", POD, "", space, *where)
    return OperatorAnswer(Way.NEVER, reason, f"{update}; {typed(words, way)}")


_CONTROL_PLANE: Final = "HostedControlPlane"


def _hosted_cluster(control_plane: Object | None, name: str) -> str:
    notes = control_plane.annotations if control_plane is not None else {}
    cluster = notes.get(f"{_HYPERSHIFT}/cluster", "")
    return (
        f"HostedCluster {cluster}" if cluster else f"the HostedCluster of {_CONTROL_PLANE} {name}"
    )


def hosted_by(budget: Object, cluster: Cluster) -> str:
    """Return the HostedCluster that configures the pods of a budget, with its kind; empty: none."""
    name = budget.owned_by(_CONTROL_PLANE)
    if not name:
        return ""
    kind = kinds.guess(f"{_HYPERSHIFT}/", _CONTROL_PLANE)
    return _hosted_cluster(find(cluster, kind, budget.namespace, name), name)


def is_hosted(budget: Object, group: str, kind: str) -> bool:
    """Return whether HyperShift wrote a budget for a control plane with one pod of each kind."""
    of_hypershift = (group, kind) == (_HYPERSHIFT, _CONTROL_PLANE)
    return of_hypershift and budget.at("spec", "minAvailable").integer == 1
