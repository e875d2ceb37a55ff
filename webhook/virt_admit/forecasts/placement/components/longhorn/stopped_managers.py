"""Instance managers of Longhorn that do not run on a node: in their pod its engines and replicas
would run.

Longhorn makes no pod of one on a cordoned node, although such a pod would start there. Source:
longhorn/longhorn-manager:controller/instance_manager_controller.go#handlePod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.forecasts.placement.components.busy_volumes import HeldVolume
from virt_admit.forecasts.placement.components.longhorn import kubelet_refusals, replaced_managers
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import LONGHORN_MANAGER, NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import fields, find, grouped, is_absent

READS: Final[Reads] = union(
    kubelet_refusals.READS,
    replaced_managers.READS,
    {
        LONGHORN_MANAGER: ("spec.dataEngine", "spec.nodeID", "status.currentState"),
        NODE: ("spec.unschedulable",),
    },
)
_RUNNING: Final = "running"


def data_engine(obj: Object) -> str:
    """Return the data engine of a volume, of an instance of it, or of an instance manager."""
    return obj.at("spec", "dataEngine").text or "v1"


def refused(node: str, engine: str, cluster: Cluster) -> HeldVolume | None:
    """Return why the kubelet of a node refuses the instance managers of a data engine; None:
    it does not.
    """
    reason = of_node(node, engine, cluster)
    return reason if reason is not None and reason.refused else None


def of_node(node: str, engine: str, cluster: Cluster) -> HeldVolume | None:
    """Return that no instance manager of a data engine runs on the node, in whose pod the instance
    would run.

    The kubelet refuses none of them if one may still start.
    """
    own = [
        each
        for each in entry(cluster, _by_node, node) or ()
        if data_engine(each) == engine and not replaced_managers.gets_none(each, cluster)
    ]
    if any(_state(each) == _RUNNING for each in own):
        return None
    reasons = (_of_stopped(each, node, cluster) for each in own)
    return min(reasons, key=lambda reason: reason.refused, default=None)


def _by_node(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    managers = cluster.known(LONGHORN_MANAGER)
    return grouped(managers, lambda each: each.at("spec", "nodeID").text or "")


def _of_stopped(manager: Object, node: str, cluster: Cluster) -> HeldVolume:
    begin = f"instance manager {manager.name} does not run"
    pod = find(cluster, POD, manager.namespace, manager.name)
    rejected = kubelet_refusals.of_pod(pod, cluster) if pod is not None else None
    if rejected is not None and (way := replaced_managers.waits(manager, cluster)):
        words = f"{begin}: {rejected.reason}, which that of the former release keeps"
        return HeldVolume(words, way, of_node=True, refused=True)
    if rejected is not None:
        of_cpu = rejected.reason.startswith("OutOfcpu") and rejected.remedy
        ways = f"{rejected.remedy}, or {_LESS_CPU} {node}" if of_cpu else rejected.remedy
        command = shell("kubectl", "describe", "node", argument(node))
        way = typed(ways or f"remove that cause on {node}", command)
        return HeldVolume(f"{begin}: {rejected.reason}", way, of_node=True, refused=True)
    broken = broken_pods.of_pod(pod, cluster) if pod is not None else None
    if broken is not None and broken.why:
        return HeldVolume(f"{begin}: its {broken.words}", broken.remedy, of_node=True)
    cordoned = fields(cluster, NODE, "", node)["spec"]["unschedulable"].boolean
    if cordoned and is_absent(cluster, POD, manager.namespace, manager.name):
        words = f"{begin} ({_state(manager)}), as Longhorn makes no pod of it on a cordoned node"
        way = f"uncordon {node}, once what it was cordoned for has ended"
        command = shell("kubectl", "uncordon", argument(node))
        return HeldVolume(words, typed(way, command), of_node=True)
    command = shell("kubectl", "describe", "pod", argument(manager.name), "-n", manager.namespace)
    return HeldVolume(
        f"{begin} ({_state(manager)})", typed(f"repair the pod of that name on {node}", command)
    )


_LESS_CPU: Final = "set a smaller spec.instanceManagerCPURequest in Longhorn's node"
"""It stands above the setting guaranteed-instance-manager-cpu, whose change makes Longhorn delete
all instance managers (controller/setting_controller.go#updateInstanceManagerCPURequest).
"""


def _state(manager: Object) -> str:
    return manager.at("status", "currentState").text or "not started"
