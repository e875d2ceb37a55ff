"""What repairs migrations between two nodes that no repetition helps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from virt_admit.forecasts.drain.failed_migrations import small_targets
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migration_failures, vmis

PAIR_REMEDY: Final = "set a CPU model and a machine type that all nodes have, and restart the VM"
NAMED_MODEL: Final = "set a named CPU model that all nodes have"
"""How a remedy begins where host-model is the fault, and the nodes are not."""
RESTART_REMEDY: Final = "restart the VM"
"""How remedies begin that a restart completes."""
_DEVICE_REMEDY: Final = (
    f"{RESTART_REMEDY}, and give all nodes the same kernel and firmware if its migrations fail "
    "again"
)
_LAUNCHER_REMEDY: Final = (
    f"{RESTART_REMEDY}: its guest has the devices of an older virt-launcher, and no retry helps"
)
CPU_LAUNCHER_REMEDY: Final = (
    f"{RESTART_REMEDY} when that suits: its CPU settings can stay, and no retry helps"
)


def of(texts: Iterable[str]) -> str:
    """Return what helps against failures that every repetition between two nodes has: none of them
    is about the node if the new claim of a disk is too small.
    """
    if any(map(migration_failures.is_of_devices, texts := tuple(texts))):
        return _DEVICE_REMEDY
    return small_targets.SIZE_REMEDY if small_targets.is_of_size(texts) else PAIR_REMEDY


def of_devices(vmi: Object) -> str:
    """Return what helps against devices that QEMU of no other node takes:
    they stay as long as the guest runs.
    """
    return _LAUNCHER_REMEDY if vmis.OUTDATED in vmi.labels else _DEVICE_REMEDY
