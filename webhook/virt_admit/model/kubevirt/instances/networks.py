"""Secondary networks of a VM: the NetworkAttachmentDefinition of each, and how it assigns addresses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NAD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms

READS: Final[Reads] = {NAD: ("spec.config",)}

NODE_LOCAL_IPAM: Final = "host-local"
"""The IPAM plugin that keeps its addresses in files of each node (containernetworking/plugins: plugins/ipam/host-local)."""


def secondary(obj: Object) -> Iterator[Field]:
    """Yield the name of the NetworkAttachmentDefinition of each secondary network."""
    for network in vms.vmi_spec(obj)["networks"].items():
        name = network["multus"]["networkName"]
        if name.text:
            yield name


def ipam(obj: Object, name: Field, cluster: Cluster) -> str:
    """Return the IPAM plugin of a network; empty if it has none or does not exist.

    Raises:
        Unseen: the NetworkAttachmentDefinition cannot be read.
    """
    namespace, _, own = (name.text or "").rpartition("/")
    definition = cluster.get(NAD, namespace or vms.namespace_of(obj), own)
    if definition is None:
        return ""
    try:
        config = Field(json.loads(definition.at("spec", "config").text or "{}"))
    except (ValueError, RecursionError):
        return ""
    plugins: list[Any] = [config, *config["plugins"].items()]
    return next((found for plugin in plugins if (found := plugin["ipam"]["type"].text)), "")
