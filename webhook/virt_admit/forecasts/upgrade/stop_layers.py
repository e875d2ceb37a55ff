"""All stops of an upgrade, also those that others hide:
each layer is run as if the stops before it were fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.upgrade import assumed_fixes, rehearsal, rollouts
from virt_admit.forecasts.upgrade.assumed_fixes import MOST_LAYERS, IfFixed
from virt_admit.forecasts.upgrade.rehearsal import Options, Rehearsal, Stop
from virt_admit.model.in_order import InOrder
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.problems import ProblemId


def rehearse(
    cluster: Cluster,
    options: Options,
    wanted: Sequence[str],
    of_rule: Callable[[str], Collection[str] | None],
    *,
    every: bool,
    in_order: InOrder = map,
) -> Rehearsal:
    """Rehearse an upgrade, and say how it would go if problems were fixed.

    Args:
        cluster: the cluster.
        options: as for ``rehearsal.rehearse``.
        wanted: the problems that are taken as fixed: ids, rules, or ``namespace/name`` of what has
            them.
        of_rule: returns the ids of the problems that a rule finds; None: there is no such rule.
        every: whether to take each stop as fixed too and to look for those behind it.
        in_order: does the drains and the runs.

    Raises:
        ValueError: ``max_unavailable`` is not a number or a percentage.
        LookupError: a word names no problem.
    """
    plan = drain_plan.plan(cluster, in_order=in_order)
    today = rehearsal.run(cluster, options, plan, in_order=in_order)

    def run(fixed: Collection[ProblemId]) -> Rehearsal:
        if fixed:
            return rehearsal.run(
                cluster, options, plan, forecast_only=True, fixed=fixed, in_order=in_order
            )
        return today

    assumed: frozenset[ProblemId] = frozenset()
    if wanted:
        known = {*assumed_fixes.known_problems(plan, _pools(cluster, options, today))}
        hidden, _, _ = _layers(run, assumed, every=True)
        known |= {stop.problem for stop in hidden if stop.problem is not None}
        assumed = assumed_fixes.select(wanted, known, of_rule)
    stops, last, seen = _layers(run, assumed, every=every)
    more = (
        (f"stops behind {MOST_LAYERS} layers of stops: more may exist",)
        if len(seen) > MOST_LAYERS
        else ()
    )
    return replace(
        today,
        stops=stops,
        unseen=(*today.unseen, *more),
        assumed=tuple(sorted(frozenset().union(*seen))),
        if_fixed=IfFixed(None if more else last.possible, last.ends),
    )


def _pools(cluster: Cluster, options: Options, today: Rehearsal) -> tuple[rollouts.Pool, ...]:
    begun = () if options.from_start else rollouts.in_flight(today.driver, cluster)
    try:
        return rollouts.pools(today.driver, cluster, options.max_unavailable, (), begun)
    except Unseen:
        return ()


def _layers(
    run: Callable[[Collection[ProblemId]], Rehearsal], assumed: frozenset[ProblemId], *, every: bool
) -> tuple[tuple[Stop, ...], Rehearsal, list[frozenset[ProblemId]]]:
    """Return the stops of all layers, the last run,
    and what each layer took as fixed besides those before it.
    """
    stops: dict[tuple[str, ProblemId | None], Stop] = {}
    fixed = assumed
    layers = [assumed]
    while True:
        result = run(fixed)
        for stop in result.stops:
            stops.setdefault((stop.node, stop.problem), replace(stop, behind=tuple(sorted(fixed))))
        found = frozenset(stop.problem for stop in result.stops if stop.problem is not None) - fixed
        if not every or not found or len(layers) > MOST_LAYERS:
            return tuple(stops.values()), result, layers
        fixed |= found
        layers.append(found)
