"""A guard that ends when another node is back does not stop a roll-out that brings that node
back.
"""

from __future__ import annotations

from typing import Any

from tests.builders import manifest
from tests.forecasts.drain import operator_clusters as world
from virt_admit.cli.commands import drain
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.upgrade.rehearsal import Options, Rehearsal, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.drain.report import verdict


def draining(*more: Any, of: Any = None) -> list[Any]:
    """Return a cluster of Rook in which node b is drained,
    so that the OSDs of a and c are guarded.
    """
    replaced = {
        ("PodDisruptionBudget", "rook-ceph-osd"),
        ("Node", "b"),
        *((each.kind, each.name) for each in more),
    }
    items = [each for each in world.rook() if (each.kind, each.name) not in replaced]
    guards = [world.blocking_budget("a"), world.blocking_budget("c")]
    return [*items, *guards, of or world.node("b", cordoned=True), *more]


def rehearsed(items: list[Any]) -> Rehearsal:
    return rehearse(Snapshot(items, complete=["*"]), Options(), forecast_only=True)


def test_the_node_is_updated_and_back() -> None:
    found = rehearsed(draining())
    assert (found.possible, found.stops) == (True, ())
    (basis,) = (each for each in found.rests_on if "is back" in each)
    assert basis.startswith(
        "b is back, and what guards it has ended, before the drain of a (PodDisruptionBudget "
        "rook-ceph/"
    )


def asked(items: list[Any]) -> str:
    """Return the answer of ``drain --all``."""
    cluster = Snapshot(items, complete=["*"])
    return str(verdict(drain.rehearsed(plan(cluster), cluster)))


def test_drain_answers_by_the_roll_out_that_brings_the_node_back() -> None:
    assert asked(draining()) == "Yes: a, c can be drained once b is back."
    kept = world.pod("single", "shop", {"app": "single"}, "c")
    guard = world.budget("single", "shop", {"app": "single"}, allowed=0, minAvailable=1)
    assert asked(draining(kept, guard)).startswith("No: 2 of 3 nodes cannot be drained")
    silent = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    lost = manifest("v1", "Node", "b", spec={"unschedulable": True}, status=silent)
    assert asked(draining(of=lost)).startswith("No: 3 of 3 nodes cannot be drained")


def test_only_what_keeps_the_node_is_a_stop() -> None:
    kept = world.pod("single", "shop", {"app": "single"}, "b")
    guard = world.budget("single", "shop", {"app": "single"}, allowed=0, minAvailable=1)
    found = rehearsed(draining(kept, guard))
    assert [(stop.node, str(stop.problem)) for stop in found.stops] == [
        ("b", "BudgetForbidsEviction:shop/single")
    ]


def test_a_node_that_does_not_report_is_the_stop() -> None:
    silent = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    lost = manifest("v1", "Node", "b", spec={"unschedulable": True}, status=silent)
    assert [str(stop.problem) for stop in rehearsed(draining(of=lost)).stops] == [
        "NodeNotReporting:b"
    ]


def test_a_node_that_does_not_exist() -> None:
    found = rehearsed(draining(of=manifest("v1", "Node", "other")))
    assert found.possible is False
    assert any("Ceph waits until b is back" in stop.reason for stop in found.stops)


def test_an_osd_that_is_down_on_a_node_of_the_roll_out() -> None:
    down = [world.osd(2, "b", ready=False), world.osd_budget(allowed=0), world.ceph("HEALTH_WARN")]
    found = {("Pod", "rook-ceph-osd-2"), ("Node", "b"), *((each.kind, each.name) for each in down)}
    items = [each for each in world.rook() if (each.kind, each.name) not in found]
    assert rehearsed([*items, *down, world.node("b", cordoned=True)]).possible is True
    assert rehearsed([*items, *down, world.node("b")]).possible is False
