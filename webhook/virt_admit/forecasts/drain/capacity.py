"""Whether the VMs of a node find room on the other nodes at the same time: for drain,
and for rules at admission.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.forecasts.drain.vmi_evictions import Effect
from virt_admit.forecasts.placement import candidates, quotas
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.settings import parallel_migrations
from virt_admit.model.messages import count, names, shorten
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler.filters import FilterPipeline
from virt_admit.model.scheduler.packing import Item, Packing, one_by_one, pack

READS: Final = union(candidates.READS, quotas.READS, vmi_evictions.EVICTION_READS, vmis.OWNER_READS)

MOST_PODS: Final = 3_000
"""Rules at admission read no more pods: 0.2 milliseconds each, and all requests wait meanwhile."""

MOST_PAIRS: Final = 100_000
"""They try at most so many pairs of a VM and a node: 5 microseconds each."""

MOST_LINKED_PAIRS: Final = 1_000
"""And so many of a VM that other pods attract, keep off or spread:
up to half a millisecond each.
"""


class Leaving(NamedTuple):
    """A VMI that leaves its node, and where it could go."""

    vmi: Object
    target: SchedulingTarget


def packing(leaving: Sequence[Leaving], cluster: Cluster) -> Packing:
    """Return whether all these VMIs find a place at the same time.

    None also where preemption may make room.
    """
    items = [_item(each) for each in leaving]
    packed = pack(items, candidates.scheduler(cluster))
    if packed.fits is False and candidates.preemption(cluster).may_fit(items):
        return replace(packed, fits=None, preempting=True)
    return (
        _in_turn(packed, leaving, cluster)
        if packed.fits and any(item.pod.spread for item in items)
        else packed
    )


def _in_turn(packed: Packing, leaving: Sequence[Leaving], cluster: Cluster) -> Packing:
    """Return whether these VMIs also find a place if KubeVirt does not migrate all of them at the
    same time.

    It certainly migrates one after the other only if its limit is 1. Unknown limits are doubted
    elsewhere.
    """
    try:
        limit = parallel_migrations.limits(cluster).node
    except Unseen:
        return packed
    if len(leaving) <= limit:
        return packed
    sources = {each.vmi.at("status", "nodeName").text or "" for each in leaving}
    scheduler = candidates.scheduler(cluster).cordoned(sources)
    items = []
    for each in leaving:
        item = _item(each)
        own = candidates.own_pods(each.vmi, scheduler.state.pods.get(item.source, ()))
        items.append(replace(item, follows=tuple(pod for pod in own if pod not in item.gone)))
    found = one_by_one(items, scheduler)
    if found.fits is not False:
        return packed
    return found if limit == 1 else replace(found, fits=None)


def _item(leaving: Leaving) -> Item:
    target = leaving.target
    return Item(
        target.pod,
        target.placement.candidates,
        uncertain=not target.placement.is_certain,
        source=leaving.vmi.at("status", "nodeName").text or "",
        gone=target.gone,
    )


def shortage(cluster: Cluster, node: str) -> Problem | None:
    """Return which VM of a node would find no place if it were drained now, and what is short on
    which node: ``room for shop/db: on b 3Gi missing``. The remedy is the beginning of a sentence.

    None: all of them find room, or that cannot be determined, because the node, pods or anything
    else that decides on it cannot be read, or there are more than ``MOST_PODS`` or ``MOST_PAIRS``.
    VMs whose eviction is refused are left out.

    Raises:
        Unseen: it depends on affinity that has too many terms.
    """
    try:
        moving = list(_moving(cluster, node))
        if not moving or cluster.get(NODE, "", node) is None:
            return None
        if sum(1 for _ in itertools.islice(cluster.list(POD), MOST_PODS + 1)) > MOST_PODS:
            return None
        if len(moving) * len(cluster.known(NODE)) > MOST_PAIRS:
            return None
    except Unseen:
        return None
    for vmi, moves in moving:
        refused = quotas.refusal(vmi, cluster) if moves else None
        if refused is not None:
            return Problem(
                f"room in a quota for {vmi.full_name}: {refused.reason}", "Raise the quota first"
            )
    if sum(_is_linked(vmi) for vmi, _ in moving) * len(cluster.known(NODE)) > MOST_LINKED_PAIRS:
        return None
    leaving = [Leaving(vmi, candidates.target(vmi, cluster, moves=moves)) for vmi, moves in moving]
    packed = packing(leaving, cluster)
    if packed.fits is None:
        for each in leaving:
            for what in candidates.scheduler(cluster).unsearched(each.target.pod, each.target.gone):
                raise Unseen(what)
    return _explain(packed, leaving, cluster) if packed.fits is False else None


def _is_linked(vmi: Object) -> bool:
    """Return whether other pods decide where a VMI can go, in ways that are judged node by node."""
    spec = vmi["spec"]
    spread = spec["topologySpreadConstraints"].present or spec.at("affinity", "podAffinity").present
    return spread or (
        spec["priorityClassName"].present and spec.at("affinity", "podAntiAffinity").present
    )


def _moving(cluster: Cluster, node: str) -> Iterator[tuple[Object, bool]]:
    """Yield the VMIs of a node that a drain moves, and whether they migrate."""
    for vmi, evicted in vmi_evictions.evictions(cluster, node).reactions:
        if evicted.effect is Effect.MIGRATES:
            yield vmi, True
        elif evicted.effect is Effect.SHUTS_DOWN and vmis.comes_back(vmi, cluster).comes:
            yield vmi, False


def _explain(packed: Packing, leaving: Sequence[Leaving], cluster: Cluster) -> Problem:
    """Return the first VM without a place, and the node on which the fewest causes keep it off once
    the others are placed.
    """
    (vmi, target), *others = _left(packed, leaving)
    scheduler = _after(packed, leaving, cluster)
    refusals = _refusals(vmi, target, scheduler)
    hosts = {
        name: why
        for name, why in refusals.items()
        if SCHEDULABLE in scheduler.state.nodes[name].labels
    }
    more = f" and {count(len(others), 'more VM')}" if others else ""
    if not hosts:
        return Problem(
            f"node for {vmi.full_name}{more}: no other one runs KubeVirt", "Add one first"
        )
    name, why = min(
        hosts.items(),
        key=lambda item: (not item[1].endswith("missing"), item[1].count("; "), item[0]),
    )
    if all("missing" in cause for cause in why.split("; ")):
        return Problem(
            f"room for {vmi.full_name}{more}: on {name} {shorten(why, 80)}",
            "Free or add room first",
        )
    return Problem(
        f"node for {vmi.full_name}{more}: on {name} {shorten(why, 80)}", _first(name, why)
    )


def _first(name: str, why: str) -> str:
    """Return what lets a node take a VM, from the first cause that keeps it off."""
    cause = why.partition("; ")[0]
    if cause in ("cordoned", "not Ready"):
        return f"Uncordon or repair {name} first"
    return (
        f"Remove {cause} from {name} first"
        if cause.startswith("taint ")
        else f"Let {name} take it first"
    )


def _left(packed: Packing, leaving: Sequence[Leaving]) -> list[Leaving]:
    lost = {id(pod) for pod in packed.left}
    return [each for each in leaving if id(each.target.pod) in lost]


def _after(packed: Packing, leaving: Sequence[Leaving], cluster: Cluster) -> FilterPipeline:
    """Return kube-scheduler's filters once the VMs that found a place are there."""
    scheduler = candidates.scheduler(cluster).fork()
    for each in leaving:
        name = packed.placed.get(each.target.pod.full_name)
        if name:
            scheduler.state.bind(replace(each.target.pod, node=name))
    return scheduler


def _refusals(vmi: Object, target: SchedulingTarget, scheduler: FilterPipeline) -> dict[str, str]:
    return scheduler.place(
        target.pod, without=vmi.at("status", "nodeName").text or "", gone=target.gone
    ).refusals


def waiting(
    packed: Packing, leaving: Sequence[Leaving], cluster: Cluster
) -> Iterator[tuple[Object, str]]:
    """Yield the VMs that find no place once the others of their node are placed,
    each with what the other nodes lack.

    One that finds none although the others are away has a reason of its own.
    """
    left = _left(packed, leaving) if packed.fits is False and not packed.in_turn else []
    scheduler = _after(packed, leaving, cluster) if left else candidates.scheduler(cluster)
    for vmi, target in left:
        refusals = _refusals(vmi, target, scheduler)
        lacking = {name: refusals[name] for name in target.placement.candidates if name in refusals}
        if lacking:
            yield vmi, names(_shortages(lacking, candidates.scheduler(cluster)), _WORDS)


_WORDS: Final = 200
_VOLUMES: Final = "volumes of "


def _shortages(lacking: Mapping[str, str], now: FilterPipeline) -> Iterator[str]:
    """Yield what the nodes lack, each cause with its nodes.

    For volumes that is what a driver attaches to one of them.
    """
    by_driver: dict[tuple[str, int], list[str]] = {}
    for name, why in sorted(lacking.items()):
        for cause in why.split("; "):
            driver = (
                cause.removeprefix(_VOLUMES).partition(":")[0] if cause.startswith(_VOLUMES) else ""
            )
            if driver:
                limit, attached = now.volumes.limits(name)[driver], now.attached(name, driver)
                by_driver.setdefault((driver, limit), []).append(f"{name} has {attached}")
            else:
                yield f"{cause} on {name}"
    for (driver, limit), has in by_driver.items():
        yield f"{driver} attaches at most {limit} volumes to a node, and {names(has)} already"
