"""The machine type of a VMI, which its pod demands of a node.

Sources: kubevirt/kubevirt:pkg/virt-controller/services/nodeselectorrenderer.go,
pkg/virt-handler/node-labeller/node_labeller.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubevirt.instances.expand import ExpandedVmi
from virt_admit.model.kubevirt.settings.versions import Version, has_release

LABEL: Final = "machine-type.node.kubevirt.io/"
"""How the label of a node begins that offers a machine type."""
_SINCE: Final = Version(1, 6)
"""The first release whose virt-handler writes such labels and whose virt-controller demands one."""


def of(vmi: ExpandedVmi) -> str:
    """Return the machine type with which a VMI runs, else the one that it names; empty: none."""
    return vmi.obj.at("status", "machine", "type").text or named(vmi)


def named(vmi: ExpandedVmi) -> str:
    """Return the machine type that a VMI or its preference names; empty: none."""
    machine = vmi.spec.at("domain", "machine", "type").text
    if not machine and vmi.preference is not None:
        machine = vmi.preference.spec.at("machine", "preferredMachineType").text
    return machine or ""


def are_demanded(cluster: Cluster) -> bool:
    """Return whether launcher pods demand the machine type of their VMI.

    A release that does is not enough: a build may not. It shows that by no node with such a label
    and no launcher pod that selects one.
    """
    if not has_release(cluster, _SINCE):
        return False
    if any(any_in(node.metadata["labels"].map) for node in cluster.known(NODE)):
        return True
    pods = (pod for pod in cluster.known(POD) if pod.labels.get("kubevirt.io") == "virt-launcher")
    selectors = [found.map for pod in pods if (found := pod.at("spec", "nodeSelector")).is_map]
    return not selectors or any(map(any_in, selectors))


def any_in(labels: Iterable[str]) -> bool:
    """Return whether one of these labels is about a machine type."""
    return any(key.startswith(LABEL) for key in labels)
