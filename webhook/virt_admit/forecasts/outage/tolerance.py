"""Which losses a cluster must survive.

Rules declare it. It is written here, because importing the models of KubeVirt and kube-scheduler
takes as long as ``check`` of a whole file, which mostly knows no node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import VMIRS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms


@dataclass(frozen=True)
class Tolerance:
    """Which losses the cluster must survive. The strictest one counts."""

    nodes: int = 1
    zones: int = 0
    reserve: int = field(default=0, metadata={"unit": "percent"})
    """Percent of what the nodes offer that must stay free."""


ONE_NODE: Final = Tolerance()
NOTHING: Final = Tolerance(0, 0, 0)

STARTING: Final = ("Always", "RerunOnFailure", "Once")
"""The run strategies with which a new VM starts."""


def may_ask(obj: Object, old: Object | None) -> bool:
    """Return whether anything in the object could ask for room, before anything is looked up."""
    strategy = vms.run_strategy(vms.vm_spec(obj))
    if kinds.of(obj) is not VMIRS and strategy not in (*STARTING, "Manual"):
        return False
    return old is None or obj.data.get("spec") != old.data.get("spec")
