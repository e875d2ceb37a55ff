"""LINSTOR's satellites that do not run: DRBD goes on there, and nothing changes it.

A pod whose volume has no resource on its node gets one through the satellite of that node. A
migration needs two primaries: LINSTOR's driver sets that option for the volume, and the satellites
of both nodes apply it. Sources: piraeusdatastore/linstor-csi:pkg/client/linstor.go#Attach;
LINBIT/linstor-server:controller/src/main/java/com/linbit/linstor/core/apicallhandler/controller/
CtrlRscMakeAvailableApiCallHandler.java; piraeusdatastore/piraeus-operator:pkg/resources/satellite/
satellite/daemonset.yaml (one DaemonSet for each node).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.forecasts.placement.components.broken_pods import BrokenPod
from virt_admit.forecasts.placement.components.linstor.lost_quorums import DRIVER
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import NODE, POD, PV, PVC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import find, grouped, volume_of
from virt_admit.model.problems import Problem

_COMPONENT: Final = "app.kubernetes.io/component"
_SATELLITE: Final = "linstor-satellite"
"""The component, and its container: drbd-reactor beside it only serves metrics."""
READS: Final[Reads] = union(
    node_health.READS,
    {
        POD: (
            f"metadata.labels.{_COMPONENT}",
            "spec.nodeName",
            "status.containerStatuses",
            *CONDITIONS,
        ),
        PVC: ("spec.volumeName",),
        PV: ("spec.csi.driver", "spec.volumeMode"),
    },
)


def of_driver(driver: str, node: str, cluster: Cluster) -> BrokenPod | None:
    """Return the satellite of a node that does not run, if a CSI driver needs it; None: it runs, or
    is another driver's node."""
    return by_node(cluster).get(node) if driver == DRIVER else None


@cached
def by_node(cluster: Cluster) -> Mapping[str, BrokenPod]:
    """Return the satellites that have not run for minutes, by the nodes that report."""
    satellites = (
        pod
        for pod in cluster.known(POD)
        if pod.labels.get(_COMPONENT) == _SATELLITE and not pod.ended
    )
    found: dict[str, BrokenPod] = {}
    for name, pods in grouped(satellites, _node).items():
        node = find(cluster, NODE, "", name)
        if node is None or not node.is_true("Ready") or node_health.silence_now(name, cluster):
            continue
        if all(map(_is_down, pods)) and (down := broken_pods.all_down(pods, cluster)) is not None:
            found[name] = down
    return found


def doubt(node: str, namespace: str, claims: Iterable[str], cluster: Cluster) -> Problem | None:
    """Return why a guest may not be able to leave a node with its volumes; None: no doubt."""
    down = by_node(cluster).get(node)
    for claim in claims if down is not None else ():
        volume = volume_of(find(cluster, PVC, namespace, claim), cluster)
        if volume is None or volume.at("spec", "csi", "driver").text != DRIVER:
            continue
        if down is not None and volume.at("spec", "volumeMode").text == "Block":
            reason = (
                f"a second node may open claim {claim} only once LINSTOR's satellite on {node} "
                f"allows that, which does not run ({down.words})"
            )
            return Problem(reason, down.remedy)
    return None


def _node(pod: Object) -> str:
    return pod.at("spec", "nodeName").text or ""


def _is_down(pod: Object) -> bool:
    states = pod.at("status", "containerStatuses").items()
    own = next((each for each in states if each["name"].text == _SATELLITE), None)
    return own is not None and own["ready"].boolean is False
