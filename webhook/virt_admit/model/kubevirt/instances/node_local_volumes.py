"""Claims whose data is on one node, whatever their access mode says.

Sources: kubevirt/hostpath-provisioner; topolvm/topolvm: docs/limitations.md; kubernetes/kubernetes:
pkg/scheduler/framework/plugins/volumebinding.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, first_known
from virt_admit.model.kubernetes.kinds import PV, PVC, STORAGE_CLASS
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.instances.storage import Access
from virt_admit.model.scheduler.node_selectors import NAME_FIELD, parse_node_selector

READS: Final[Reads] = {
    PVC: ("spec.volumeName", "spec.storageClassName"),
    PV: ("spec.local", "spec.hostPath", "spec.nodeAffinity"),
    STORAGE_CLASS: ("provisioner",),
}
"""The fields that ``reason`` reads."""

_PROVISIONERS: Final = frozenset(
    (
        "kubevirt.io.hostpath-provisioner",
        "kubevirt.io/hostpath-provisioner",
        "topolvm.io",
        "topolvm.cybozu.com",
        "rancher.io/local-path",
        "local.csi.openebs.io",
        "zfs.csi.openebs.io",
        "openebs.io/local",
        "hostpath.csi.k8s.io",
        "microk8s.io/hostpath",
        "k8s.io/minikube-hostpath",
        "docker.io/hostpath",
    )
)
"""Provisioners of volumes on the node of the first pod. LVMS of OpenShift is TopoLVM."""

_NODE_KEYS: Final = (
    "kubernetes.io/hostname",
    NAME_FIELD,
    "topology.topolvm.io/node",
    "topology.topolvm.cybozu.com/node",
    "topology.hostpath.csi/node",
)


def reason(obj: Object, claim: str, access: Access, cluster: Cluster) -> str:
    """Return why only one node can mount a claim of a VMI, in words; empty if nothing says so.

    The volume decides where the claim is bound, else the storage class.

    Raises:
        Unseen: the claim, its volume or its storage class cannot be read.
    """
    found = cluster.get(PVC, vms.namespace_of(obj), claim) if not access.storage_class else None
    volume = _volume(found, cluster)
    if volume is not None:
        return _of_volume(volume)
    storage_class = access.storage_class or (
        found.at("spec", "storageClassName").text if found is not None else ""
    )
    definition = cluster.get(STORAGE_CLASS, "", storage_class) if storage_class else None
    provisioner = definition["provisioner"].text if definition is not None else None
    if provisioner and is_local(provisioner):
        return f"storage class {storage_class} of {provisioner}"
    return ""


def is_local(provisioner: str) -> bool:
    """Return whether a provisioner makes every volume on the node of its first pod."""
    return provisioner in _PROVISIONERS


def host_path_claim(namespace: str, claims: Iterable[str], cluster: Cluster) -> str:
    """Return the first of these claims whose volume is a directory of any node that mounts it;
    empty: none.

    Raises:
        Unseen: none is known to be one, and a claim or its volume cannot be read.
    """

    def found(claim: str) -> str | None:
        volume = _volume(cluster.get(PVC, namespace, claim), cluster)
        return claim if volume is not None and volume.at("spec", "hostPath").is_map else None

    return first_known(functools.partial(found, claim) for claim in claims) or ""


def only_node(namespace: str, claim: str, cluster: Cluster) -> str | None:
    """Return the only node that can mount the bound volume of a claim; None: nothing says so.

    Raises:
        Unseen: the claim or its volume cannot be read.
    """
    volume = _volume(cluster.get(PVC, namespace, claim), cluster)
    return (_named_node(volume["spec"]) or None) if volume is not None else None


def _volume(claim: Object | None, cluster: Cluster) -> Object | None:
    """Return the volume that a claim is bound to; None: none, or one of both is missing."""
    name = claim.at("spec", "volumeName").text if claim is not None else None
    return cluster.get(PV, "", name) if name else None


def _of_volume(volume: Object) -> str:
    spec = volume["spec"]
    for kind in ("local", "hostPath"):
        if spec[kind].is_map:
            return f"a {kind} volume"
    node = _named_node(spec)
    return f"a volume of node {node}" if node else ""


def _named_node(spec: Field) -> str:
    """Return the only node that the affinity of a volume names; empty: none, or several."""
    required = spec.at("nodeAffinity", "required")
    terms = parse_node_selector(required.value).terms if required.is_map else ()
    allowed = [[term.allowed_values(key) for key in _NODE_KEYS] for term in terms]
    hosts = [next((values for values in each if values is not None), None) for each in allowed]
    names = frozenset[str]().union(*(values for values in hosts if values is not None))
    if hosts and None not in hosts and len(names) == 1:
        return next(iter(names))
    return ""
