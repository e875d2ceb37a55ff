"""Whether nodes are large enough for a pod at all: room that is freed does not make them larger.

Source: kubernetes/kubernetes:pkg/scheduler/framework/plugins/noderesources/fit.go, which compares
the requests of all pods of a node with its ``status.allocatable``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import candidates
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.messages import names
from virt_admit.model.scheduler.resources import CPU, MEMORY, Resources, missing, show


def large_enough(
    target: SchedulingTarget, refusals: Collection[str], cluster: Cluster
) -> tuple[str, ...]:
    """Return which of these nodes could take the pod without their other pods, or do not say."""
    sizes = _sizes(refusals, cluster)
    return tuple(name for name, size in sizes.items() if _fits(target.pod.requests, size))


def remedy(target: SchedulingTarget, refusals: Collection[str], cluster: Cluster) -> str:
    """Return what helps where none of these nodes could take the pod even without other pods;
    empty: one could, or that is unknown.
    """
    found = shortage(target.pod.requests, _sizes(refusals, cluster))
    if found is None:
        return ""
    known = f" ({found.node}, the largest of these, has {found.most})" if found.most else ""
    return f"add a node with at least {found.needed}{known}, or make the VM smaller"


class SizeGap(NamedTuple):
    """No node is large enough for a pod."""

    needed: str
    node: str = ""
    """The largest one; empty: the nodes lack several resources, or have nothing of one."""
    most: str = ""
    """What that has."""


def shortage(requests: Resources, sizes: Mapping[str, Resources | None]) -> SizeGap | None:
    """Return what nodes of these sizes, which all report them, lack for a pod with these requests
    even without other pods; None: one is large enough, or that is unknown.
    """
    known = {name: size for name, size in sizes.items() if size is not None}
    lacking = [{resource for resource, _ in missing(requests, size)} for size in known.values()]
    if not lacking or len(known) < len(sizes) or not all(lacking):
        return None
    common = set.intersection(*lacking)
    decisive = sorted(common or set.union(*lacking))
    needed = names([_told(each, requests[each]) for each in decisive], noun="resource")
    if len(common) != 1:
        return SizeGap(needed)
    name = max(known, key=lambda each: known[each].get(decisive[0], 0))
    most = known[name].get(decisive[0], 0)
    return SizeGap(needed, name, show(decisive[0], most)) if most else SizeGap(needed)


def _fits(requests: Resources, size: Resources | None) -> bool:
    return size is None or not any(missing(requests, size))


def _sizes(refusals: Collection[str], cluster: Cluster) -> Mapping[str, Resources | None]:
    nodes = candidates.scheduler(cluster).state.nodes
    return {name: nodes[name].allocatable for name in sorted(refusals)}


def _told(resource: str, value: int) -> str:
    return f"{show(resource, value)}{_UNITS.get(resource, f' of {resource}')}"


_UNITS: Final = {MEMORY: " of memory", CPU: " of CPU"}
