"""The picture of the memory of the nodes that are left, before and after a loss:
for one possible packing.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Final

from virt_admit.forecasts.outage.outages import Outage
from virt_admit.model.messages import count, names
from virt_admit.model.scheduler.resources import MEMORY, show
from virt_admit.reports.html import svg
from virt_admit.reports.html.page import Figure

_MOST: Final = 12
"""Nodes in the picture."""
_FEWEST: Final = 4
"""Nodes in the picture even if the loss changes fewer."""


def memory(one: Outage) -> Figure | None:
    """Return the picture of a loss after which all pods find a place; None: they do not,
    or no node says what it has.
    """
    if not one.room.fits or not one.room.placed:
        return None
    state, arrived = one.loss.scheduler.state, _arrived(one)
    touched = sorted(arrived, key=lambda name: (-arrived[name], name))
    untouched = (name for name in sorted(state.nodes) if name not in arrived)
    every = [*touched, *islice(untouched, _FEWEST)]
    shown = every[: max(_FEWEST, min(len(touched), _MOST))]
    bars: list[svg.Bar] = []
    for name in shown:
        size = (state.nodes[name].allocatable or {}).get(MEMORY)
        if size is not None:
            used = state.used.get(name, {}).get(MEMORY, 0)
            bars += (_bar(f"{name} before", used, size), _bar("after", used + arrived[name], size))
    if not bars:
        return None
    hidden = len(state.nodes) - len(shown)
    more = f" {count(hidden, 'further node')} not shown." if hidden > 0 else ""
    caption = (
        f"Memory that pods request before and after the loss of {names(one.nodes)}, in one "
        f"possible order.{more}"
    )
    legend = (("used", "requested"), ("free", "free"))
    return Figure("Memory before and after", caption, svg.bars(bars), legend)


def _arrived(one: Outage) -> Counter[str]:
    """Return the memory that arrives on each node."""
    pods = [vm.returning.fresh.pod for vm in one.vms if vm.returning is not None]
    sizes = {pod.full_name: pod.requests.get(MEMORY, 0) for pod in (*pods, *one.loss.others)}
    found: Counter[str] = Counter()
    for name, node in one.room.placed.items():
        found[node] += sizes.get(name, 0)
    return found


def _bar(label: str, used: int, size: int) -> svg.Bar:
    fits = min(used, size)
    parts = (svg.BarPart("used", fits), svg.BarPart("free", size - fits))
    return svg.Bar(label, parts, f"{show(MEMORY, used)} of {show(MEMORY, size)}")
