"""Secondary networks of a VM: the NetworkAttachmentDefinition of each, how it assigns addresses,
which nodes have it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

from virt_admit.model.kubernetes import json_codec, kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import NAD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms

READS: Final[Reads] = {NAD: ("spec.config",)}

HARVESTER: Final = "network.harvesterhci.io/"
_CLUSTER_NETWORK: Final = f"{HARVESTER}clusternetwork"
"""Label of a NetworkAttachmentDefinition: the cluster network of Harvester whose bridge it uses."""
_NODE_SELECTOR: Final = "k8s.v1.cni.cncf.io/nodeSelector"
"""Annotation of a NetworkAttachmentDefinition: one label, ``key=value`` or ``key``, of the nodes
that have the network.
"""

NODE_LABEL_READS: Final[Reads] = {
    NAD: (f"metadata.labels.{_CLUSTER_NETWORK}", f"metadata.annotations.{_NODE_SELECTOR}")
}
"""The fields that ``node_labels`` reads."""

NODE_LOCAL_IPAM: Final = "host-local"
"""The IPAM plugin that keeps its addresses in files of each node (containernetworking/plugins:
plugins/ipam/host-local).
"""


def secondary(obj: Object, without: Collection[str | None] = ()) -> Iterator[Field]:
    """Yield the name of the NetworkAttachmentDefinition of each secondary network."""
    for network in vms.vmi_spec(obj)["networks"].items():
        name = network["multus"]["networkName"]
        if name.text and network["name"].text not in without:
            yield name


def _at_start(obj: Object) -> Iterator[Field]:
    """Yield the secondary networks, but for those of unplugged interfaces of a VM that has no VMI.

    Its next VMI goes without these
    (kubevirt/kubevirt:pkg/network/controllers/vm.go#VMController.Sync).
    """
    if kinds.of(obj) is kinds.VMI and obj.at("status", "phase").text:
        yield from secondary(obj)
        return
    interfaces = vms.vmi_spec(obj).at("domain", "devices", "interfaces").items()
    absent = {each["name"].text for each in interfaces if each["state"].text == "absent"}
    yield from secondary(obj, absent)


def missing(obj: Object, cluster: Cluster) -> str:
    """Return the full name of a NetworkAttachmentDefinition that a VM names and that certainly does
    not exist; else empty.

    KubeVirt makes no launcher pod then
    (kubevirt/kubevirt:pkg/network/multus/nad.go#NetworkToResource), and where its feature gate
    ExternalNetResourceInjection is on, Multus gives the pod no network, so that it does not start.
    """
    for name in _at_start(obj):
        try:
            definition = _definition(obj, name, cluster)
        except Unseen:
            continue  # ``node_labels`` yields it
        if definition is None:
            return "/".join(full_name(obj, name))
    return ""


_LOST: Final = " does not exist"


def fault(obj: Object, cluster: Cluster) -> str:
    """Return why no node takes a new pod of a VM: a network of it does not exist; else empty."""
    network = missing(obj, cluster)
    return f"{NAD.kind} {network}{_LOST}" if network else ""


def of_fault(said: str) -> str:
    """Return the network that ``fault`` names; empty: it names none."""
    begin = f"{NAD.kind} "
    if said.startswith(begin) and said.endswith(_LOST):
        return said.removeprefix(begin).removesuffix(_LOST)
    return ""


def ipam(obj: Object, name: Field, cluster: Cluster) -> str:
    """Return the IPAM plugin of a network; empty if it has none or does not exist.

    Raises:
        Unseen: the NetworkAttachmentDefinition cannot be read.
    """
    definition = _definition(obj, name, cluster)
    if definition is None:
        return ""
    settings = config(definition)
    plugins: list[Any] = [settings, *settings["plugins"].items()]
    return next((found for plugin in plugins if (found := plugin["ipam"]["type"].text)), "")


def config(definition: Object) -> Field:
    """Return the CNI configuration of a NetworkAttachmentDefinition; empty: it has none that can be
    read."""
    return Field(json_codec.embedded(definition.at("spec", "config").text))


def full_name(obj: Object, name: Field) -> tuple[str, str]:
    """Return the namespace and the name of the NetworkAttachmentDefinition that a VM names."""
    namespace, _, own = (name.text or "").rpartition("/")
    return namespace or vms.namespace_of(obj), own


def _definition(obj: Object, name: Field, cluster: Cluster) -> Object | None:
    return cluster.get(NAD, *full_name(obj, name))


class NodeLabel(NamedTuple):
    """A label of the nodes that have a network."""

    key: str
    value: str
    network: str
    """The name of the network as the VM writes it."""

    @property
    def words(self) -> str:
        return f"network {self.network} (label {self.key})"


def node_labels(obj: Object, cluster: Cluster) -> Iterator[NodeLabel | Unseen]:
    """Yield the labels of the nodes that have the secondary networks of a VM,
    and what could not be read.

    Harvester's agent labels a node after it has set the uplink of a cluster network up, and removes
    the label with it
    (harvester/network-controller-harvester:pkg/controller/agent/vlanconfig/controller.go#addNodeLabel).
    The other label is the one that
    k8snetworkplumbingwg/network-resources-injector:pkg/webhook/webhook.go#parseNetworkAttachDefinition
    writes into pods; it rejects an annotation with several labels.
    """
    for name in secondary(obj):
        try:
            definition = _definition(obj, name, cluster)
        except Unseen as unseen:
            yield unseen
            continue
        if definition is None:
            continue
        cluster_network = definition.labels.get(_CLUSTER_NETWORK)
        if cluster_network:
            yield NodeLabel(f"{HARVESTER}{cluster_network}", "true", name.text or "")
        selector = definition.annotations.get(_NODE_SELECTOR, "")
        if selector.strip() and selector.count("=") < 2:
            key, _, value = selector.partition("=")
            yield NodeLabel(key.strip(), value.strip(), name.text or "")
