"""The largest VM, or the most replicas, that leave enough room: tried as what decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from virt_admit.forecasts.outage import failover_demand
from virt_admit.forecasts.outage.failover import Shortage
from virt_admit.forecasts.outage.failover_demand import RoomDemand
from virt_admit.model.kubernetes import json_patch
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.json_patch import Patch, PatchError
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.quantities import parse_quantity
from virt_admit.model.scheduler.resources import CPU, MEMORY

_MI: Final = 2**20
_GI: Final = 2**30
_STEP: Final = 2 * _MI
"""Memory that is hotplugged comes in blocks of this size (kubevirt: pkg/liveupdate/memory)."""
_LEAST: Final = 64 * _MI
_TRIES: Final = 4


def largest(
    obj: Object, old: Object | None, short: Shortage, asked: RoomDemand, cluster: Cluster
) -> object:
    """Return the value of the field that decides with which the VM leaves enough room; None: there
    is none, or the field is not a number.
    """
    decisive = failover_demand.field_of(obj, short.resource, asked)
    for value in _smaller(decisive, short, asked):
        try:
            changed = json_patch.apply(obj, [Patch("replace", decisive.path, value)])
            wanted = failover_demand.demand(changed, old, cluster)
        except (PatchError, Unseen):
            return None
        if wanted is None or wanted.requests.get(short.resource, 0) <= short.room:
            return value
    return None


def _smaller(decisive: Field, short: Shortage, asked: RoomDemand) -> Iterator[object]:
    last = str(decisive.path[-1]) if decisive.path else ""
    if last == "replicas" and decisive.integer is not None:
        if asked.number:
            each = asked.requests[short.resource] // asked.number
            fewer = decisive.integer - -(-short.missing // max(each, 1))
            yield from (value for value in (fewer,) if value > decisive.integer - asked.number)
    elif short.resource == MEMORY and decisive.present:
        yield from _quantities(decisive, short.missing, _memory)
    elif short.resource == CPU and last in ("sockets", "cores") and decisive.integer is not None:
        yield from range(decisive.integer - 1, 0, -1)
    elif short.resource == CPU and last == "cpu":
        yield from _quantities(decisive, short.missing, _cpu)


def _quantities(
    decisive: Field, missing: int, written: Callable[[int], str | None]
) -> Iterator[str]:
    try:
        exact = parse_quantity(decisive.value, integers=True)
    except (TypeError, ValueError):
        return
    amount = int(exact * 1000) if written is _cpu else int(exact)
    # what KubeVirt adds grows with the size, mostly by less than it shrinks
    for number in range(1, _TRIES + 1):
        value = written(amount - missing * number)
        if value is None:
            return
        yield value


def _memory(amount: int) -> str | None:
    if amount < _LEAST:
        return None
    whole = amount - amount % _STEP
    return f"{whole // _GI}Gi" if whole % _GI == 0 else f"{whole // _MI}Mi"


def _cpu(amount: int) -> str | None:
    return f"{amount}m" if amount > 0 else None
