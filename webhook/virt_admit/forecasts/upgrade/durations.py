"""How long a VM takes to move, as a range.

The longer end is what a schedule should be planned with.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from virt_admit.forecasts.drain import vm_downtime
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.drain.vm_downtime import START
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migration_timeouts
from virt_admit.model.kubevirt.settings import configuration, migration_limits
from virt_admit.model.kubevirt.settings.configuration import known_or_none
from virt_admit.model.scheduler.resources import MEMORY, Resources, amount

FAST: Final = 1.25e9
"""Bytes per second of a 10 Gbit/s network:
assumed for the shorter end where no bandwidth is configured.
"""
SLOW: Final = 1.25e8
"""Bytes per second of a 1 Gbit/s network: assumed for the longer end."""
_COPIED: Final = (0.25, 1.5)
"""Share of the memory that is sent: a guest does not use all of it,
or writes to it while it is copied.
"""
_WORSE: Final = 1.5
"""How much longer than the last migration the next one may take."""


@dataclass(frozen=True, slots=True)
class Range:
    """Whole seconds, at least and at most."""

    low: int
    high: int

    def clock(self, start: datetime.datetime) -> str:
        """Return when this is over if it begins at ``start``: ``2026-11-24 22:10 to 22:14``, the
        day only if it differs.
        """
        try:
            low, high = (
                start + datetime.timedelta(seconds=bound) for bound in (self.low, self.high)
            )
        except OverflowError:  # such as a last migration of a thousand years
            return f"after the year {datetime.MAXYEAR}"
        latest = f"{high:%H:%M}" if high.date() == low.date() else f"{high:%Y-%m-%d %H:%M}"
        earliest = f"{low:%Y-%m-%d %H:%M}"
        return earliest if earliest.endswith(latest) else f"{earliest} to {latest}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """The duration of one move and what it rests on."""

    seconds: Range
    basis: str


def migration(vmi: Object, requests: Resources, cluster: Cluster) -> Estimate:
    """Return how long a migration of the VMI takes: like its last one,
    else from its memory and the bandwidth.
    """
    duration = vm_states_times.last_duration(vmi, cluster)
    if duration is not None:
        last = max(1, round(duration.total_seconds()))
        return Estimate(
            Range(last, max(last + 1, round(last * _WORSE))), "the last migration of each VM"
        )
    guest = amount(MEMORY, vmi.at("spec", "domain", "memory", "guest").value)
    memory = guest or requests.get(MEMORY, 0)
    bandwidth = _bandwidth(cluster)
    fast, slow = (bandwidth, bandwidth) if bandwidth else (FAST, SLOW)
    low = START[0] + round(memory * _COPIED[0] / fast)
    high = START[1] + round(memory * _COPIED[1] / slow)
    limit = migration_timeouts.seconds(
        vmi, migration_timeouts.settings(vmi, vmi["-"], cluster), cluster
    )
    longest = high if limit is None else START[1] + limit
    basis = (
        "memory and configured bandwidth"
        if bandwidth
        else "memory and an assumed network of 1 to 10 Gbit/s"
    )
    return Estimate(Range(low, max(low + 1, min(high, max(longest, low + 1)))), basis)


def restart(vmi: Object) -> Estimate:
    """Return how long a VM takes to shut down and to start on another node."""
    first = _GUEST_DRAIN if vmi.at("spec", "evictionStrategy").text == "External" else 0
    longest = START[1] + first + vm_downtime.grace(vmi)
    return Estimate(Range(START[0], longest), "the grace period of each VM")


_GUEST_DRAIN: Final = 600
"""Seconds in which Cluster API provider KubeVirt drains the guest's own node before it deletes the
VMI (pkg/kubevirt/machine.go#drainGracePeriodExceeded).
"""


def _bandwidth(cluster: Cluster) -> float:
    """Return the configured bandwidth of one migration in bytes per second; 0: not limited,
    or unknown.
    """
    found = known_or_none(configuration.kubevirt, cluster)
    if found is None:
        return 0.0
    try:
        bandwidth = migration_limits.bandwidth(found)
    except ValueError:
        return 0.0
    return float(bandwidth or Fraction(0))
