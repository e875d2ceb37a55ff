"""A node that would take a pod, but for the taints of its fencing, which are left although it
reports again.

virt-handler does not tolerate them, so that its labels and devices are missing there as long.
Source: kubevirt/kubevirt:pkg/virt-operator/resource/generate/components/daemonsets.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from virt_admit.forecasts.placement import virt_handlers
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.remediation import fence_taints


class FencedNode(NamedTuple):
    """The node, what is wrong with it, and what opens it."""

    name: str
    reason: str
    remedy: str
    command: str


def first(refusals: Mapping[str, str], cluster: Cluster) -> FencedNode | None:
    """Return the first node that refuses a pod for nothing else; None: there is none.

    ``refusals``: why each node refuses the pod.
    """
    fences = fence_taints.known(cluster)
    for name, why in sorted(refusals.items()):
        left = fences.get(name)
        if left is None:
            continue
        causes = why.split("; ")
        if virt_handlers.pod(cluster, name) is None:
            causes = [each for each in causes if not virt_handlers.is_of_handler(each)]
        if causes and left.is_all("; ".join(causes)):
            waits = fence_taints.waits_for(name, cluster)
            because = f", whose remediator waits for {waits}" if waits else ""
            way = fence_taints.way_out(name, left, cluster)
            return FencedNode(name, f"{name} {left.reason}{because}", *way)
    return None
