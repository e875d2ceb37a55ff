"""Device plugins that run on other nodes and have no pod on one, as their DaemonSet skips it.

Such a node offers 0 of the device and looks as if it never had one. It is told only if its kubelet
still counts the device, or if an operator keeps the pod away by the value of a label: other nodes
may have no such device. Sources:
kubernetes/kubernetes:pkg/controller/daemon/daemon_controller.go#NodeShouldRunDaemonPod;
NVIDIA/gpu-operator#2845.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.starts.devices import unreported_devices
from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.components import driver_daemons, node_pods
from virt_admit.forecasts.placement.components.driver_daemons import AbsentPod
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital
from virt_admit.model.node_updates.operators import paused_operands
from virt_admit.model.node_updates.operators.paused_operands import PausedOperand
from virt_admit.model.scheduler.pod_terms import REQUIRED

READS: Final[Reads] = union(unreported_devices.READS, driver_daemons.READS, paused_operands.READS)
_ALIKE: Final = (
    *("kubernetes.io/os", "nvidia.com/gpu.present", "nvidia.com/gpu.workload.config"),
    "nvidia.com/vgpu.config",
)
"""Labels of a node with what its devices are used for: only nodes with the same ones have the same
devices. A kubelet counts 0 of those that it had before."""
_MIG: Final = ("nvidia.com/mig-", "nvidia.com/mig.config")
"""How devices of a MIG profile begin, and the label with the profiles of a node."""
_FOUND: Final = re.compile(
    r"nvidia\.com/gpu\.deploy\.|(?:[\w.-]+\.)?feature\.node\.kubernetes\.io/"
)
"""Labels that the GPU operator and Node Feature Discovery set again by themselves: a node without
one has no such device, or its software is switched off for the node
(NVIDIA/gpu-operator:controllers/state_manager.go#updateGPUStateLabels)."""
_NO: Final = "false"


class KeptOffPlugin(NamedTuple):
    """A device plugin that is kept off a node."""

    node: str
    device: str
    absent: AbsentPod
    paused: PausedOperand | None
    """The label that an operator sets for a time; None: another cause."""

    @property
    def lasts(self) -> bool:
        """Whether it certainly does not end by itself."""
        return self.absent.lasts if self.paused is None else bool(self.paused.left)

    @property
    def words(self) -> str:
        """Return what the node lacks, and why."""
        by = f", {self.paused.by}" if self.paused is not None and self.paused.by else ""
        left = f"; {self.paused.left}" if self.paused is not None and self.paused.left else ""
        return f"{self.brief}{by}{left}"

    @property
    def brief(self) -> str:
        """Return the same without what set it."""
        return f"{self.node} offers 0 of {self.device}: {self.absent.why}"

    @property
    def remedy(self) -> str:
        return self.absent.remedy if self.paused is None else self.paused.remedy


def of_device(node: str, device: str, cluster: Cluster) -> KeptOffPlugin | None:
    """Return why the device plugin of a device that a node does not offer has no pod there; None:
    it has one, or that is not known.
    """
    here, state = find(cluster, NODE, "", node), candidates.scheduler(cluster).state
    if here is None or node not in state.nodes:
        return None
    own = state.nodes[node].allocatable or {}
    if own.get(device) or not (device in own or paused_operands.any_of(here)):
        return None
    if unreported_devices.is_offered_by_kubevirt(device, cluster):
        return None
    alike = (*_ALIKE, _MIG[1]) if device.startswith(_MIG[0]) else _ALIKE
    offerers = (
        name
        for name in cluster.cached(offering).get(device, ())
        if all(state.nodes[name].labels.get(key) == here.labels.get(key) for key in alike)
    )
    daemon = next(_daemons(offerers, device, cluster), None)
    if daemon is None or any(
        node_pods.daemon(pod) == daemon.name and pod.namespace == daemon.namespace
        for pod in node_pods.of_node(node, cluster)
    ):
        return None
    absent = driver_daemons.of_daemon(daemon, "", node, cluster)
    paused = _paused(daemon, here, cluster)
    if absent is None or (paused is None and not (absent.lasts and device in own)):
        return None
    if paused is None and _is_meant(daemon, here):
        return None
    if paused is None and next(unreported_devices.plugins(node, device, cluster), None):
        return None  # another DaemonSet serves it
    return KeptOffPlugin(node, device, absent, paused)


def offering(cluster: Cluster) -> Mapping[str, Sequence[str]]:
    """Return the nodes that offer each device, by name."""
    found: dict[str, list[str]] = {}
    for name, node in sorted(candidates.scheduler(cluster).state.nodes.items()):
        for device, number in (node.allocatable or {}).items():
            if number and "/" in device:
                found.setdefault(device, []).append(name)
    return found


def _is_meant(daemon: Object, node: Object) -> bool:
    """Return whether the labels of a node say that it is to have no pod of a DaemonSet."""
    own = daemon.at("spec", "template", "spec")
    selects = own["nodeSelector"].texts
    terms = own.at("affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms").items()
    expressions = (each for term in terms for each in term["matchExpressions"].items())
    demanded = (*selects, *(each["key"].text or "" for each in expressions))
    return any(node.labels.get(key) == _NO and value != _NO for key, value in selects.items()) or (
        any(_FOUND.match(key) and key not in node.labels for key in demanded)
    )


def _daemons(nodes: Iterable[str], device: str, cluster: Cluster) -> Iterator[Object]:
    """Yield the DaemonSets whose pods probably offer a device on these nodes."""
    for node in nodes:
        pod = next(unreported_devices.plugins(node, device, cluster), None)
        name = node_pods.daemon(pod) if pod is not None else ""
        if pod is not None and (found := find(cluster, DAEMON_SET, pod.namespace, name)):
            yield found


def _paused(daemon: Object, node: Object, cluster: Cluster) -> PausedOperand | None:
    """Return the label that keeps a DaemonSet off a node for the time of a change."""
    selects: Mapping[str, str] = daemon.at("spec", "template", "spec", "nodeSelector").texts
    wrong = (key for key, value in selects.items() if node.labels.get(key) != value)
    found = (paused_operands.of_label(node, key, cluster) for key in wrong)
    return next((each for each in found if each is not None), None)


def note(node: Object, cluster: Cluster) -> str:
    """Return in a sentence that a node lacks devices as their device plugin is kept off it; or
    that it no longer reports devices which its pods use. Empty: neither.
    """
    if told := unreported_devices.note(node.name, cluster):
        return told
    kept = of_node(node, cluster)
    return f"{kept.words}. {capital(kept.remedy)}" if kept is not None else ""


def of_node(node: Object, cluster: Cluster) -> KeptOffPlugin | None:
    """Return why the device plugin of a device that other nodes offer has no pod on a node; None:
    none is known to be kept off.
    """
    nodes = candidates.scheduler(cluster).state.nodes
    own = nodes[node.name].allocatable or {} if node.name in nodes else {}
    may_lack = {device for device, number in own.items() if not number}
    offered = cluster.cached(offering)
    devices = offered.keys() if paused_operands.any_of(node) else offered.keys() & may_lack
    lacked = sorted(device for device in devices if not own.get(device))
    found = (of_device(node.name, device, cluster) for device in lacked)
    return next((each for each in found if each is not None), None)
