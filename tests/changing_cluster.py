"""A cluster that changes at random, and its judgements:
those that are kept against those of a full judgement.

``python -m tests.changing_cluster 10000`` makes that many changes; a second number is the first
seed.
"""

from __future__ import annotations

import copy
import json
import random
import sys
from collections.abc import Iterator
from typing import Any

from tools import example_cluster
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.drain_plan import NodePlan
from virt_admit.forecasts.outage.failover_figures import figures
from virt_admit.forecasts.outage.reserve_crossing import reserve

# its reads are among those of the forecasts
from virt_admit.forecasts.upgrade import node_drain  # noqa: F401
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.install.manifests import FORECAST_READS
from virt_admit.kube import vm_ledger_feed
from virt_admit.kube.cache import ClusterCache, StoreState
from virt_admit.kube.field_filter import retained_fields
from virt_admit.kube.frozen_cache import FrozenCache
from virt_admit.kube.stores import stores
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.policy.files import load_policy
from virt_admit.reports.drain import html
from virt_admit.reports.drain.cluster_judgements import ClusterJudgements
from virt_admit.reports.drain.report import node_report
from virt_admit.reports.findings.judging import judge
from virt_admit.rules import load_rules

VMS = 6
"""VMs of the example that are kept: a full judgement of all takes too long for thousands of
changes.
"""
TIMES = ("2027-03-01T11:00:00Z", "2027-03-01T11:04:00Z", "2027-03-01T13:00:00Z")
ODD = (
    None,
    "",
    "x",
    0,
    1,
    True,
    [],
    {},
    "None",
    "LiveMigrate",
    "Running",
    "False",
    "2026-01-01T00:00:00Z",
)

Key = tuple[Kind, str, str]


class ChangingCluster:
    """A live cluster, a moment of it, and the judgements that are kept."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.rules = load_rules().in_scan
        self.policy = load_policy("default", load_rules())
        self.live = ClusterCache(stores(self.rules, FORECAST_READS), "v1.36.3")
        self.objects: dict[Key, dict[str, Any]] = {}
        self.gone: dict[Key, dict[str, Any]] = {}
        for obj in _few_vms():
            kind = kinds.of(obj)
            if kind in self.live.stores:
                self.objects[kind, obj.namespace, obj.name] = dict(obj.data)
        for kind in self.live.stores:
            self._list(kind)
        self.moment = FrozenCache(self.live)
        vm_ledger_feed.follow(self.moment)
        self.moment.refresh()
        self.moment.time = TIMES[0]
        fields = retained_fields(self.rules, FORECAST_READS)
        self.now_made: dict[str, NodePlan] = {}
        """The plans that show before all else."""
        self.kept = ClusterJudgements(self.moment, self.rules, self.policy, fields)

    def change(self) -> str:
        """Change one thing, and return what it was."""
        chance = self.rng.random()
        if chance < 0.03:
            return self._state()
        if chance < 0.12 and self.gone:
            key = self.rng.choice(sorted(self.gone))
            self._put(key, self.gone.pop(key))
            return f"returns: {key[0]} {key[1]}/{key[2]}"
        key = self.rng.choice(sorted(self.objects))
        if chance < 0.2:
            self.gone[key] = self.objects.pop(key)
            self.live.stores[key[0]].delete(self.gone[key])
            return f"gone: {key[0]} {key[1]}/{key[2]}"
        return f"{key[0]} {key[1]}/{key[2]}: {self._edit(key)}"

    def follow(self) -> None:
        """Let the judgements follow, with a time that may have passed and forecasts that the next
        change may interrupt.
        """
        changes, self.now_made = self.moment.refresh(), {}
        self.moment.time = self.rng.choice(TIMES)
        self.kept.change(changes, time_passed=True)
        for made in self.kept.plans_of_changed(changes, 1):
            self.now_made[made.name] = made
        self.kept.advance(lambda: self.rng.random() < 0.3)

    def kept_results(self) -> dict[str, Any]:
        """Return everything that the watch shows of the judgements that are kept."""
        found = {f"finding {each.called}": each.response for each in self.kept.report().results}
        nodes = {f"node {each.name}": node_report(each) for each in self.kept.plan().nodes}
        nodes |= {f"node {name}": node_report(each) for name, each in self.now_made.items()}
        estimates = _estimates(self.kept.view)
        return {
            **found,
            **nodes,
            **estimates,
            "page": self.kept.page()(),
            "seconds": self.kept.seconds(),
        }

    def full_results(self) -> dict[str, Any]:
        """Return the same of a full judgement, which shares no value with the other."""
        alone = FrozenCache(self.live)
        alone.refresh()
        alone.time = self.moment.time
        report, plan = (
            judge(alone, self.rules.kinds, self.rules, self.policy),
            drain_plan.plan(alone),
        )
        found = {f"finding {each.called}": each.response for each in report.results}
        nodes = {f"node {each.name}": node_report(each) for each in plan.nodes}
        page, seconds = html.page(plan, html.placed(alone)), self.full().seconds()
        return {**found, **nodes, **_estimates(alone), "page": page, "seconds": seconds}

    def full(self) -> ClusterJudgements:
        """Return judgements of the same moment that share no value with those that are kept."""
        alone = FrozenCache(self.live)
        alone.refresh()
        alone.time = self.moment.time
        return ClusterJudgements(alone, self.rules, self.policy, {})

    def set(self, plural: str, path: tuple[str, ...], value: Any) -> None:
        """Set one field of the first object of a kind."""
        key = next(key for key in sorted(self.objects) if key[0].plural == plural)
        obj = copy.deepcopy(self.objects[key])
        parent = obj
        for step in path[:-1]:
            parent = parent.setdefault(step, {})
        parent[path[-1]] = value
        self._put(key, obj)

    def forbid(self, plural: str) -> None:
        """Lose the right to read a kind."""
        kind = next(kind for kind in self.live.stores if kind.plural == plural)
        self.live.stores[kind].replace({}, StoreState.REFUSED)

    def _state(self) -> str:
        """Lose the right to read a kind, or get all rights back."""
        lost = [
            kind for kind, store in self.live.stores.items() if store.state is StoreState.REFUSED
        ]
        for kind in lost:
            self._list(kind)
        if lost:
            return f"readable: {', '.join(map(str, lost))}"
        kind = self.rng.choice(sorted({key[0] for key in self.objects}))
        self.live.stores[kind].replace({}, StoreState.REFUSED)
        return f"forbidden: {kind}"

    def _list(self, kind: Kind) -> None:
        found: dict[str, dict[str, Any]] = {}
        for key, obj in self.objects.items():
            if key[0] == kind:
                self.live.stores[kind].add(found, obj)
        self.live.stores[kind].replace(found, StoreState.LISTED)

    def _put(self, key: Key, obj: dict[str, Any]) -> None:
        self.objects[key] = obj
        if self.live.stores[key[0]].state is not StoreState.REFUSED:
            self.live.stores[key[0]].upsert(obj)

    def _edit(self, key: Key) -> str:
        """Replace the value of one field by the one that another object has there,
        or by an odd one.
        """
        obj = copy.deepcopy(self.objects[key])
        paths = [path for path in _paths(obj) if path not in _FIXED and path[-1] not in _NAMES]
        if not paths:
            return "nothing"
        path = self.rng.choice(paths)
        others = [other for other in self.objects if other[0] == key[0]]
        given = (
            _at(self.objects[self.rng.choice(others)], path)
            if self.rng.random() < 0.6
            else self.rng.choice(ODD)
        )
        parent = _at(obj, path[:-1])
        parent[path[-1]] = copy.deepcopy(given)
        self._put(key, obj)
        return f"{'.'.join(map(str, path))} = {json.dumps(given)}"


_NAMES = ("name", "namespace")
_FIXED = (("apiVersion",), ("kind",), ("metadata",))


def _estimates(cluster: Cluster) -> dict[str, Any]:
    return {
        "failover": cluster.cached(figures),
        "reserve": cluster.cached(reserve),
        "upgrade": cluster.cached(_upgrade),
    }


def _upgrade(cluster: Cluster) -> Any:
    return rehearse(cluster, Options(), forecast_only=True).duration


def _few_vms() -> Iterator[Object]:
    """Yield the objects of the example without most of its VMs and their pods, instances,
    claims and budgets.
    """
    every = example_cluster.objects()
    vms = [obj.name for obj in every if kinds.of(obj) is kinds.VM]
    dropped = set(vms[:: max(1, len(vms) // VMS)][VMS:]) | (
        set(vms) - set(vms[:: max(1, len(vms) // VMS)])
    )
    for obj in every:
        if not any(
            obj.name == name or obj.name.startswith((f"virt-launcher-{name}-", f"{name}-"))
            for name in dropped
        ):
            yield obj


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        steps: Any = value.items()
    else:
        steps = enumerate(value) if isinstance(value, list) else ()
    for step, below in steps:
        yield (*path, step)
        yield from _paths(below, (*path, step))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def differences(count: int, seed: int) -> Iterator[str]:
    """Change a cluster so many times, and yield each change after which the judgements are not
    equal to full ones.
    """
    cluster = ChangingCluster(seed)
    for number in range(count):
        if number % 3:  # their forecasts are perhaps not all made
            cluster.change()
            cluster.follow()
        what = cluster.change()
        cluster.follow()
        kept, full = cluster.kept_results(), cluster.full_results()
        wrong = sorted(
            name for name in kept.keys() | full.keys() if kept.get(name) != full.get(name)
        )
        if wrong or list(kept) != list(full):
            yield f"change {number} of seed {seed}, {what}: {', '.join(wrong) or 'the order'}"


def main() -> int:
    """Print each difference of so many changes (the first argument),
    from a seed on (the second one).
    """
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    found = 0
    for line in differences(count, seed):
        print(line, flush=True)
        found += 1
    print(f"{count} changes, {found} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
