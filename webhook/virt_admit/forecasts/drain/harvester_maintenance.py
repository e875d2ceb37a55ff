"""What Harvester's maintenance mode does to VMs with a label: it stops their guests before it drains the node.

Source: harvester/harvester:pkg/controller/master/nodedrain/nodedrain_controller.go#listVMILabelMaintainModeStrategy,
:pkg/util/constants.go#LabelMaintainModeStrategy. kubectl drain knows nothing of the label.
"""

from __future__ import annotations

from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.node_updates.maintenance_updates import REQUESTED

LABEL: Final = "harvesterhci.io/maintain-mode-strategy"
RESTARTED: Final = "ShutdownAndRestartAfterEnable"
"""Harvester starts the VM on another node as soon as the node is empty."""
KEPT: Final = "ShutdownAndRestartAfterDisable"
"""Harvester starts the VM when the node leaves maintenance mode."""
LEFT_OFF: Final = "Shutdown"
"""Harvester does not start the VM again."""

READS: Final[Reads] = {NODE: (f"metadata.annotations.{REQUESTED}",), VMI: (f"metadata.labels.{LABEL}",)}
"""The fields that decide it."""

_AFTERWARDS: Final = {
    RESTARTED: "and starts it elsewhere once the node is in maintenance",
    KEPT: "and starts it when the node leaves maintenance",
    LEFT_OFF: "and does not start it again",
}


def strategy(vmi: Object) -> str:
    """Return how maintenance mode shuts a VMI down; empty: it migrates like any other."""
    value = vmi.labels.get(LABEL, "")
    return value if value in _AFTERWARDS else ""


def stops(vmi: Object, cluster: Cluster) -> str:
    """Return the strategy by which maintenance mode, that was asked for, stops a VMI; empty: it does not.

    Raises:
        Unseen: the VMI has a strategy, and its node cannot be read.
    """
    found = strategy(vmi)
    node = cluster.get(NODE, "", vmi.at("status", "nodeName").text or "") if found else None
    return found if node is not None and node.annotation(REQUESTED).present else ""


def reason(found: str) -> str:
    """Return what Harvester does to a VM with this strategy."""
    return f"Harvester's maintenance mode shuts it down ({LABEL}: {found}), {_AFTERWARDS[found]}"
