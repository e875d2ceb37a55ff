"""The frequency of the time stamp counter (TSC) that KubeVirt gives to VMIs which need one.

Source: kubevirt/kubevirt:pkg/virt-controller/watch/topology/hinter.go#LowestTSCFrequencyOnCluster.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE, VMI
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.selectors import integer
from virt_admit.model.kubevirt.settings import configuration

TSC_FREQUENCY: Final = "cpu-timer.node.kubevirt.io/tsc-frequency"
"""Label of nodes: the frequency of their time stamp counter in hertz."""

READS: Final[Reads] = {KUBEVIRT: (), NODE: ("metadata.labels",), VMI: ("status.nodeName",)}
"""The fields that ``frequency_is_known`` reads."""


def frequency_is_known(cluster: Cluster) -> bool:
    """Whether KubeVirt finds a frequency: the configured one, else the lowest of the nodes.

    A configured frequency that is not positive is an error in KubeVirt, which then asks no node.

    Raises:
        Unseen: KubeVirt, the nodes or the VMIs cannot be read, and the others show no frequency.
    """
    unseen: Unseen | None = None
    try:
        minimum = configuration.minimum_tsc_frequency(cluster)
        if minimum is not None:
            return minimum > 0
    except Unseen as blind:
        unseen = blind
    if not nodes.every(cluster):
        raise Unseen(str(NODE))
    if cluster.cached(_some_node_shows_it):
        return True
    if unseen is not None:
        raise unseen
    showing = frozenset(node.name for node in nodes.every(cluster) if _shows_it(node))
    return bool(showing) and _run_vmis(showing, cluster)


def _some_node_shows_it(cluster: Cluster) -> bool:
    return any(
        node.labels.get(SCHEDULABLE) == "true" and _shows_it(node) for node in nodes.every(cluster)
    )


def _shows_it(node: Object) -> bool:
    return (integer(node.labels.get(TSC_FREQUENCY)) or 0) > 0


def _run_vmis(names: frozenset[str], cluster: Cluster) -> bool:
    """Whether a VMI in any phase is on one of these nodes, schedulable or not: it counts then."""
    return any(vmi.at("status", "nodeName").text in names for vmi in cluster.list(VMI))
