"""How long a drain keeps a guest down, as far as that can be bounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from virt_admit.forecasts.drain.vm_outcomes import SHUT_DOWN, Forecast, VmOutcome
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.objects import Object

READS: Final = {VMI: ("spec.terminationGracePeriodSeconds", "status.phaseTransitionTimestamps")}

START: Final = (5, 30)
"""Seconds until a new virt-launcher pod runs where the last start is not known: scheduling,
attaching volumes, starting the container.
"""
GRACE: Final = 180
"""Seconds that a guest has to shut down, where the VM does not say (KubeVirt's default for
VirtualMachines).
"""


@dataclass(frozen=True, slots=True)
class Downtime:
    """Whole seconds in which a guest does not run, at least and at most.

    ``high`` None: without limit.
    """

    low: int
    high: int | None

    def exceeds(self, seconds: float) -> bool:
        """Whether it may last longer than this."""
        return self.high is None or self.high > seconds


NONE: Final = Downtime(0, 0)


def last_start(vmi: Object) -> int | None:
    """Return the seconds from Scheduling to Running of the last start of a VMI; None: not known."""
    times = {
        each["phase"].text: clock.instant(each["phaseTransitionTimestamp"].text)
        for each in vmi.at("status", "phaseTransitionTimestamps").items()
    }
    begin, end = times.get("Scheduling"), times.get("Running")
    return (
        None
        if begin is None or end is None or end < begin
        else round((end - begin).total_seconds())
    )


def grace(vmi: Object) -> int:
    """Return the seconds that the guest has to shut down."""
    said = vmi.at("spec", "terminationGracePeriodSeconds").integer
    return GRACE if said is None else clock.bounded(said)


def restart(row: Forecast) -> Downtime:
    """Return how long a VM is down that is shut down and starts on another node that has room for
    it; without limit if it may not start there.
    """
    start = last_start(row.vmi)
    longest = grace(row.vmi) + (START[1] if start is None else start)
    return Downtime(start or 0, None if row.doubtful else longest)


def of(row: Forecast) -> Downtime | None:
    """Return the downtime of a VM in a drain of its node alone; None: it cannot be determined.

    A VM that waits for its node is down until its node is uncordoned, and one without room until
    there is some.
    """
    if row.outcome is VmOutcome.MIGRATES:
        return NONE
    if row.outcome not in SHUT_DOWN:
        return None
    found = restart(row)
    goes_on = (
        row.outcome is VmOutcome.RESTARTS
        and row.placement.is_certain
        and row.placement.has_candidate
    )
    return found if goes_on else Downtime(0 if row.outcome is VmOutcome.STOPS else found.low, None)
