"""What an administrator allows and prefers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.selectors import Selector
from virt_admit.model.problems import ProblemCause


@dataclass(frozen=True, slots=True)
class Wishes:
    """The flags of the command."""

    may_restart: Selector | None = None
    """The VMs that may be restarted. None: all of them, but none is stopped to make room."""
    may_copy: Selector | None = None
    """The VMs whose disks may be copied. None: all of them."""
    prefer: Literal["copy", "restart"] = "copy"
    storage_class: str = ""
    """The storage class of copies; empty: chosen by the storage profiles."""

    def restarts(self, vm: Object) -> bool:
        return self.may_restart is None or self.may_restart.matches(vm.labels)

    def copies(self, vm: Object) -> bool:
        return self.may_copy is None or self.may_copy.matches(vm.labels)


BY_HAND: Final = {
    ProblemCause.MOVER_IDLE: "repair the controller that has to move it, or migrate it by hand",
    ProblemCause.SEVERAL_BUDGETS: (
        "several budgets select its pod: their owners leave it to one of them"
    ),
    ProblemCause.NOT_REPORTED: "wait until KubeVirt has reported LiveMigratable",
}
"""What no step of a plan does."""
