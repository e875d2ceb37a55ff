"""The nodes on which the secondary networks of a VM exist: elsewhere the VM would run out of reach.

kube-scheduler knows nothing of networks. The bridge plugin creates a missing bridge without an
uplink, so such a pod starts
(containernetworking/plugins:plugins/main/bridge/bridge.go#setupBridge). Harvester writes a node
affinity into VMs whose network is bound when they are written, and the network resources injector a
node selector into pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import networks
from virt_admit.model.kubevirt.instances.networks import NodeLabel
from virt_admit.model.scheduler.pod_placement import Placement

READS: Final = union(
    networks.NODE_LABEL_READS, {NODE: ("metadata.labels",), POD: ("spec.nodeSelector",)}
)


class NetworkReach(NamedTuple):
    """The node labels that the networks of a VM demand."""

    enforced: tuple[NodeLabel, ...] = ()
    """Those that kube-scheduler is told of: the running pod selects them,
    and so will the next one.
    """
    ignored: tuple[NodeLabel, ...] = ()
    """Those that nothing known tells kube-scheduler of."""
    unseen: tuple[str, ...] = ()

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks of ``ignored``, in words."""
        return tuple(dict.fromkeys(label.words for label in self.ignored))


def of(vmi: Object, running: Object | None, cluster: Cluster) -> NetworkReach:
    """Return what the networks of a running VMI demand of its next node.

    A label counts only if the VMI's own node carries it: otherwise labels do not say which nodes
    have the network.

    Args:
        vmi: the VMI.
        running: its launcher pod, if it is known.
        cluster: the cluster.
    """
    unseen: list[str] = []
    demanded: list[NodeLabel] = []
    for found in networks.node_labels(vmi, cluster):
        if isinstance(found, Unseen):
            unseen.append(found.what)
        else:
            demanded.append(found)
    if not demanded:
        return NetworkReach(unseen=tuple(unseen))
    try:
        node = cluster.get(NODE, "", vmi.at("status", "nodeName").text or "")
    except Unseen as blind:
        return NetworkReach(unseen=(*unseen, blind.what))
    here = node.labels if node is not None else {}
    selected = running.at("spec", "nodeSelector").texts if running is not None else {}
    present = [label for label in demanded if here.get(label.key) == label.value]
    return NetworkReach(
        tuple(label for label in present if selected.get(label.key) == label.value),
        tuple(label for label in present if selected.get(label.key) != label.value),
        tuple(unseen),
    )


CHOSEN: Final = "whether kube-scheduler chooses "
"""How the sentence begins that names a node which it may choose although the VM has no use for
it.
"""


def chosen(launched: Placement, useful: Placement, what: str) -> Iterator[str]:
    """Yield what decides whether the VM has its networks, or its hotplugged volumes: kube-scheduler
    chooses the node of a launcher pod without them. The pod that attaches the volumes must run on
    the same node (template.go#RenderHotplugAttachmentPodTemplate).
    """
    missed = set(launched.candidates) - set(useful.candidates)
    if missed and useful.candidates:
        yield f"{CHOSEN}a node with {what}, or {min(missed)} without"
    elif missed:
        yield f"{CHOSEN}{min(missed)}, which is without {what}, as is every node that takes the VM"
