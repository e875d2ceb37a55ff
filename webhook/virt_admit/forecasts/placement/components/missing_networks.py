"""Secondary networks that a VM names and that do not exist: no pod of the VM is made or started, on whichever node.

The guest runs on without its NetworkAttachmentDefinition, so the loss shows at the next migration or start alone.
"""

from __future__ import annotations

from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NAD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import networks
from virt_admit.model.problems import Problem, ProblemCause


def problem(network: str, pod: str) -> Problem:
    """Return that a VM gets no new pod without its network, and what ends it. ``pod``: what it is called."""
    reason = f"no {pod} of it can be made: its network, {NAD.kind} {network}, does not exist"
    return Problem(reason, _way(network), ProblemCause.NETWORK_MISSING)


def _way(network: str) -> str:
    listed = kubectl("get", NAD, "", network.partition("/")[0])
    return typed(f"create {NAD.kind} {network} again, as it was", listed)


def makes_room(fault: str) -> str:
    """Return what lets a pod start that no node takes: its network, if that is its fault, else more room."""
    network = networks.of_fault(fault)
    return _way(network) if network else "free room or add a node"


def of_start(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that a VM which starts gets no pod without its network; None: all networks exist, or that is not known."""
    network = networks.missing(vmi, cluster)
    return problem(network, "pod") if network else None
