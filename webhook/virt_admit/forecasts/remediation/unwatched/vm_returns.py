"""What brings a VM of a lost node back although no health check acts on that node."""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.drivers import storage_failovers
from virt_admit.forecasts.remediation.unwatched import guest_machines
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union

READS: Final = union(storage_failovers.READS, guest_machines.READS)


class VmReturn(NamedTuple):
    """What brings a VM back."""

    by: str
    """Empty: not certain."""
    unsure: str = ""
    """What could not be read, so that it may not act; empty: it acts."""


def of_vmi(vmi: Object, cluster: Cluster) -> VmReturn | None:
    """Return what brings a VM back after the loss of its node; None: nothing that is known."""
    found = storage_failovers.of_vmi(vmi, cluster)
    if found is not None and not found.unsure:
        return VmReturn(found.by)
    check, unread = replacement(vmi, cluster)
    if check:
        return VmReturn(f"{check} of its tenant cluster, with another VM")
    unsure = unread or (found.unsure if found is not None else "")
    return VmReturn("", unsure) if unsure else None


def replacement(vmi: Object, cluster: Cluster) -> tuple[str, str]:
    """Return the MachineHealthCheck that replaces a VM of a tenant cluster, or what could not be
    read of it. Both are empty: none does.
    """
    try:
        return guest_machines.replaced_by(vmi, cluster), ""
    except Unseen as unseen:
        return "", unseen.what
