"""What a CSI driver asks on the node of a pod, besides itself: without it no further volume gets
there, while the volumes that are there go on, and are unmounted.

LINSTOR's driver asks the satellite of the node. Longhorn refuses to attach a volume to a node whose
manager does not run, and starts its engine in the instance manager there. Sources:
piraeusdatastore/linstor-csi:pkg/client/linstor.go#Attach;
LINBIT/linstor-server:controller/src/main/java/com/linbit/linstor/core/apicallhandler/controller/
CtrlRscMakeAvailableApiCallHandler.java;
piraeusdatastore/piraeus-operator:pkg/resources/satellite/satellite/daemonset.yaml (one DaemonSet
for each node); longhorn/longhorn-manager:manager/volume.go#Attach,
:controller/node_controller.go#syncNode (Ready), :types/types.go#GetInstanceManagerLabels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.forecasts.placement.components.broken_pods import BrokenPod
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import find, grouped

LINSTOR: Final = "linstor.csi.linbit.com"
LONGHORN: Final = "driver.longhorn.io"


class _Agent(NamedTuple):
    driver: str
    label: str
    value: str
    """Of its pods, and the name of its container: others beside it serve metrics."""


_AGENTS: Final = (
    _Agent(LINSTOR, "app.kubernetes.io/component", "linstor-satellite"),
    _Agent(LONGHORN, "app", "longhorn-manager"),
    _Agent(LONGHORN, "longhorn.io/component", "instance-manager"),
)
READS: Final[Reads] = union(
    node_health.READS,
    {
        POD: (
            *(f"metadata.labels.{each.label}" for each in _AGENTS),
            *("spec.nodeName", "status.containerStatuses"),
            *CONDITIONS,
        )
    },
)


def of_driver(driver: str, node: str, cluster: Cluster) -> BrokenPod | None:
    """Return what a CSI driver asks on a node and has not been ready for minutes; None: it is, or
    the driver asks nothing there."""
    return by_node(cluster).get(node, {}).get(driver)


@cached
def by_node(cluster: Cluster) -> Mapping[str, Mapping[str, BrokenPod]]:
    """Return the agents that have not been ready for minutes, by node and driver, of the nodes that
    report."""
    found: dict[str, dict[str, BrokenPod]] = {}
    for agent in _AGENTS:
        own = [
            pod
            for pod in cluster.known(POD)
            if pod.labels.get(agent.label) == agent.value and not pod.ended
        ]
        for name, pods in grouped(own, _node).items():
            if not _reports(name, cluster) or not all(_is_down(pod, agent) for pod in pods):
                continue
            if (down := broken_pods.all_down(pods, cluster)) is not None:
                found.setdefault(name, {}).setdefault(agent.driver, down)
    return found


def _node(pod: Object) -> str:
    return pod.at("spec", "nodeName").text or ""


def _reports(name: str, cluster: Cluster) -> bool:
    node = find(cluster, NODE, "", name)
    return node is not None and node.is_true("Ready") and not node_health.silence_now(name, cluster)


def _is_down(pod: Object, agent: _Agent) -> bool:
    states = pod.at("status", "containerStatuses").items()
    own = next((each for each in states if each["name"].text == agent.value), None)
    return own is not None and own["ready"].boolean is False
