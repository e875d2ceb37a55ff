"""The loop of the watch: findings come before slow forecasts, and full judgements are compared."""

import datetime
import threading

import pytest

from virt_admit.cli.commands import watch_loop
from virt_admit.cli.commands.watch_loop import Watch
from virt_admit.install.manifests import FORECAST_READS
from virt_admit.kube.cache import ClusterCache, StoreState
from virt_admit.kube.stores import stores
from virt_admit.model.kubernetes.kinds import NODE, VM
from virt_admit.policy.files import load_policy
from virt_admit.reports.drain import cluster_judgements
from virt_admit.rules import load_rules
from virt_admit.serving.metrics import ProcessMetrics

RULE = "vm-running-and-run-strategy"
DIFFERENCES = "virt_admit_incremental_differences_total"


class Live(ClusterCache):
    """A cluster that is listed, and that tests change."""

    missing = ()
    current = True

    def now(self):
        return datetime.datetime(2027, 3, 1, 12, tzinfo=datetime.UTC)

    def informed(self):
        return iter(())


def vm(name, **spec):
    template = {"metadata": {}, "spec": {"evictionStrategy": "None", "domain": {"devices": {}}}}
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"runStrategy": "Always", "template": template, **spec},
    }


@pytest.fixture
def live():
    cluster = Live(stores(load_rules().in_scan, FORECAST_READS), "v1.36.3")
    for store in cluster.stores.values():
        store.replace({}, StoreState.LISTED)
    cluster.stores[NODE].upsert({"metadata": {"name": "n0"}})
    cluster.stores[VM].upsert(vm("db"))
    return cluster


@pytest.fixture
def metrics():
    return ProcessMetrics()


@pytest.fixture
def watch(live, metrics):
    policy = load_policy("default", load_rules())
    watch = Watch(live, load_rules().in_scan, lambda: policy, metrics)
    watch.look()
    return watch


def denied(watch):
    """The names of the VMs with the finding of ``running`` beside ``runStrategy``."""
    results = watch.latest.report.results
    return [
        each.obj.name
        for each in results
        if any(found.rule.id == RULE for found in each.response.verdicts)
    ]


def test_findings_do_not_wait_for_slow_forecasts(live, watch, monkeypatch):
    monkeypatch.setattr(watch_loop, "QUICK", -1)
    live.stores[VM].upsert(vm("other"))
    watch.look()  # both; the next forecasts rest
    watch._forecast_again += 1000
    live.stores[VM].upsert(vm("db", running=True))
    live.stores[NODE].upsert({"metadata": {"name": "n1"}})
    watch.look()
    assert denied(watch) == ["db"]
    assert set(watch.latest.drainable) == {"n0"}
    watch._forecast_again = 0
    watch.look()
    assert set(watch.latest.drainable) == {"n0", "n1"}


def test_forecasts_do_not_rest_when_a_kind_cannot_be_read_any_more(live, watch, monkeypatch):
    monkeypatch.setattr(watch_loop, "QUICK", -1)
    watch._forecast_again += 1000
    live.stores[NODE].replace({}, StoreState.REFUSED)
    watch.look()
    assert watch.latest.unreadable == {NODE.resource}
    assert True not in watch.latest.drainable.values()


def test_a_change_that_nothing_reads_publishes_nothing(live, watch):
    shown = watch.latest
    heartbeat = {"annotations": {"kubevirt.io/heartbeat": "2027-03-01T11:59:50Z"}}
    live.stores[NODE].upsert({"metadata": {"name": "n0", **heartbeat}})
    watch.look()
    assert watch.latest is shown


def test_a_full_judgement_is_compared_with_what_was_kept(live, watch, metrics, monkeypatch):
    monkeypatch.setattr(watch_loop, "FULL_INTERVAL", 0)
    live.stores[VM].upsert(vm("db", running=True))
    watch.look()
    assert metrics.registry.get_sample_value(DIFFERENCES) == 0
    # misses every change
    monkeypatch.setattr(type(watch._judgements), "change", lambda *_, **__: True)
    live.stores[VM].upsert(vm("db"))
    watch.look()
    assert metrics.registry.get_sample_value(DIFFERENCES) == 1
    assert denied(watch) == []


def test_a_change_interrupts_forecasts_and_is_judged_first(live, watch, monkeypatch):
    monkeypatch.setattr(watch_loop, "QUICK", -1)
    node_plan, made = cluster_judgements.node_plan, []

    def plan_while_a_vm_changes(name, cluster):
        made.append(name)
        if made == ["n0"]:
            live.stores[VM].upsert(vm("db", running=True))
        return node_plan(name, cluster)

    monkeypatch.setattr(cluster_judgements, "node_plan", plan_while_a_vm_changes)
    live.stores[NODE].upsert({"metadata": {"name": "n1"}})
    watch.look()
    assert made == ["n0"]
    assert set(watch.latest.drainable) == {"n0"}
    watch.look()
    assert denied(watch) == ["db"]
    assert set(watch.latest.drainable) == {"n0", "n1"}


def test_forecasts_that_are_interrupted_for_long_are_made(live, watch, monkeypatch):
    monkeypatch.setattr(watch_loop, "QUICK", -1)
    monkeypatch.setattr(watch_loop, "LONGEST_PAUSE", 0)
    node_plan = cluster_judgements.node_plan

    def plan_while_nodes_change(name, cluster):
        live.stores[VM].upsert(vm("db", running=True))
        return node_plan(name, cluster)

    monkeypatch.setattr(cluster_judgements, "node_plan", plan_while_nodes_change)
    live.stores[NODE].upsert({"metadata": {"name": "n1"}})
    watch.look()
    assert set(watch.latest.drainable) == {"n0", "n1"}


def test_a_cordoned_node_shows_while_forecasts_rest(live, watch):
    live.stores[NODE].upsert({"metadata": {"name": "n1"}})
    watch.look()
    watch._forecast_again += 1000
    live.stores[NODE].upsert({"metadata": {"name": "n1"}, "spec": {"unschedulable": True}})
    watch.look()
    states = {node.name: node.state for node in watch._forecasts.plan.nodes}
    assert {name for name, state in states.items() if "cordoned" in state} == {"n1"}
    assert watch._judged is not None


def cost(live, watch, change):
    """How many values are computed because of a change."""
    before = watch._judgements.computed
    change()
    watch.look()
    return watch._judgements.computed - before


def test_a_change_costs_no_more_in_a_larger_cluster(live, watch):
    def costs():
        heartbeat = {"annotations": {"kubevirt.io/heartbeat": "2027-03-01T11:59:50Z"}}
        yield cost(live, watch, lambda: live.stores[VM].upsert(vm("db", running=True)))
        yield cost(live, watch, lambda: live.stores[VM].upsert(vm("db")))
        yield cost(
            live, watch, lambda: live.stores[NODE].upsert({"metadata": {"name": "n0", **heartbeat}})
        )
        yield cost(live, watch, lambda: live.stores[NODE].upsert({"metadata": {"name": "n0"}}))

    small = list(costs())
    for number in range(40):
        live.stores[VM].upsert(vm(f"vm{number}"))
        live.stores[NODE].upsert({"metadata": {"name": f"other{number}"}})
    watch.look()
    assert all(here <= there for here, there in zip(costs(), small, strict=True))
    assert small[0] > 0
    assert small[2:] == [0, 0]


def test_what_a_full_judgement_made_is_no_part_of_later_garbage_collections(
    live, watch, monkeypatch
):
    frozen, stopped = [], threading.Event()
    monkeypatch.setattr(watch_loop, "freeze_heap", lambda: frozen.append(watch._judgements))
    looks = iter(range(3))

    def look():
        if next(looks) == 2:
            watch._judgements = None  # a full judgement comes next
            stopped.set()

    monkeypatch.setattr(watch, "look", look)
    monkeypatch.setattr(watch_loop, "DEBOUNCE", 0)
    first = watch._judgements
    watch.run(stopped)
    assert frozen == [first, None]


def test_estimates_are_made_again_only_after_what_they_read_has_changed(live, watch, monkeypatch):
    estimated = []
    rehearse = watch_loop.rehearse
    monkeypatch.setattr(
        watch_loop, "rehearse", lambda *args, **how: estimated.append(1) or rehearse(*args, **how)
    )
    ready = {"type": "Ready", "status": "True"}

    def estimates_after(seconds, **spec):
        beat = {**ready, "lastHeartbeatTime": f"2027-03-01T11:59:{seconds}Z"}
        live.stores[NODE].upsert(
            {"metadata": {"name": "n0"}, "spec": spec, "status": {"conditions": [beat]}}
        )
        watch._estimate_again = watch._forecast_again = watch._timed = 0.0
        watch.look()
        made = len(estimated)
        estimated.clear()
        return made

    assert [estimates_after(seconds) for seconds in (20, 30, 40)] == [1, 0, 0]
    assert estimates_after(50, unschedulable=True) == 1
