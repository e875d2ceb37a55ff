"""Which Node is that of a Machine.

A management cluster has Machines of other clusters, whose nodes may have equal names.

Sources: kubernetes-sigs/cluster-api:core/reconcilers/machine/machine_controller_noderef.go#getNode
(the Node with the same provider id) #CommonNodeAnnotations;
openshift/machine-api-operator:pkg/controller/nodelink/nodelink_controller.go.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find

CAPI_OWNER: Final = "cluster.x-k8s.io/machine"
"""The annotation of a Node with the name of its Cluster API Machine, which Cluster API writes after
it compared the ids.
"""
CAPI_SPACE: Final = "cluster.x-k8s.io/cluster-namespace"
"""The annotation of a Node with the namespace of that Machine."""
OWNER: Final = "machine.openshift.io/machine"
"""The annotation of a Node with ``namespace/name`` of its Machine of OpenShift."""

MACHINE_POOL: Final = "MachinePool"
"""The kind whose infrastructure provider replaces the nodes, and decides whether it drains them."""
_OWNER_KIND: Final = "cluster.x-k8s.io/owner-kind"
_OWNER_NAME: Final = "cluster.x-k8s.io/owner-name"
POOL_READS: Final[Reads] = {
    NODE: tuple(f"metadata.annotations.{key}" for key in (_OWNER_KIND, _OWNER_NAME, CAPI_SPACE))
}
"""The fields that name the MachinePool of a Node."""

READS: Final[Reads] = {
    CAPI_MACHINE: ("spec.clusterName", "spec.providerID", "status.nodeRef.name"),
    MACHINE: ("spec.providerID", "status.nodeRef.name"),
    NODE: (
        "spec.providerID",
        *(f"metadata.annotations.{key}" for key in (CAPI_OWNER, CAPI_SPACE, OWNER)),
    ),
}
"""The fields that say it."""


def node_name(machine: Object, cluster: Cluster) -> str:
    """Return the name of the Node of a Machine; empty: it has none yet,
    or its Node is one of another cluster.
    """
    name = machine.at("status", "nodeRef", "name").text or ""
    node = find(cluster, NODE, "", name)
    return "" if node is not None and _is_of_another(machine, node) else name


def machine_pool(node: Object) -> str:
    """Return namespace and name of the MachinePool of a Node; empty: it has none.

    A Node says it with and without a Machine (machinepool_controller_noderef.go#patchNodes).
    """
    notes = node.annotations
    if notes.get(_OWNER_KIND) != MACHINE_POOL or not (name := notes.get(_OWNER_NAME)):
        return ""
    return "/".join(filter(None, (notes.get(CAPI_SPACE), name)))


def emptied_node(machine: Object, cluster: Cluster) -> str:
    """Return the name of the Node that the deletion of a Machine drains; empty: there is none here.

    Cluster API drains and deletes it by its name. A node that was installed again has another
    Machine by then (machine_controller.go#drainNode #deleteNode; harvester/harvester#7065).
    """
    return node_name(machine, cluster) or (
        _named_as_before(machine, cluster) if machine.deleted else ""
    )


def is_leaving(node: str, cluster: Cluster) -> bool:
    """Return whether the Machine of a node is being deleted, with which its disks go."""
    machines = (each for kind in (CAPI_MACHINE, MACHINE) for each in cluster.known(kind))
    return any(each.deleted and emptied_node(each, cluster) == node for each in machines)


def successor(machine: Object, cluster: Cluster) -> Object | None:
    """Return the Machine that has the Node which a Machine of the same Cluster names as well; None:
    that is not so.
    """
    name = machine.at("status", "nodeRef", "name").text or ""
    node = find(cluster, NODE, "", name) if name and kinds.of(machine) is CAPI_MACHINE else None
    said = node.annotations.get(CAPI_OWNER, "") if node is not None else ""
    if node is None or said in ("", machine.name):
        return None
    if node.annotations.get(CAPI_SPACE, machine.namespace) != machine.namespace:
        return None
    other = find(cluster, CAPI_MACHINE, machine.namespace, said)
    if other is None or other.deleted or other.at("status", "nodeRef", "name").text != name:
        return None
    same = other.at("spec", "clusterName").text == machine.at("spec", "clusterName").text
    return other if same else None


def _named_as_before(machine: Object, cluster: Cluster) -> str:
    return machine.at("status", "nodeRef", "name").text or "" if successor(machine, cluster) else ""


def _is_of_another(machine: Object, node: Object) -> bool:
    """Return whether a Node of that name certainly has another Machine, or none of this cluster."""
    if kinds.of(machine) is CAPI_MACHINE:
        said = node.annotations.get(CAPI_OWNER)
        if said is not None:
            return (
                said != machine.name
                or node.annotations.get(CAPI_SPACE, machine.namespace) != machine.namespace
            )
    elif OWNER in node.annotations:
        return node.annotations[OWNER] != machine.full_name
    ids = {machine.at("spec", "providerID").text, node.at("spec", "providerID").text}
    return None not in ids and "" not in ids and len(ids) == 2
