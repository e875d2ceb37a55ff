"""A health check whose limit is used up by what still starts waits for that: it does not refuse."""

import pytest

from tests.forecasts.outage.losses import KUBEVIRT, NAMESPACES, flat, lose, machines, nhc, node, vm
from tests.forecasts.outage.test_health_actors import only_vm
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

NOW, BORN, OLD = (f"2026-01-01T{time}:00Z" for time in ("12:00", "11:55", "11:10"))


def after_loss(*parts):
    objects = [*NAMESPACES, KUBEVIRT, *flat([node("n1"), node("n2"), vm("db", "n1"), *parts])]
    return lose(Snapshot(map(Object, objects), ["*"], time=NOW), "n1")


def with_starting(born, limit, startup="10m"):
    """Two Machines with Nodes, and a third one without."""
    found = machines("n1", "n2", "n3", limit=limit)
    found[2]["metadata"]["creationTimestamp"] = born
    del found[2]["status"]["nodeRef"]
    found[-1]["spec"]["nodeStartupTimeout"] = startup
    return found


def test_a_machine_that_starts_is_waited_for():
    found = after_loss(with_starting(BORN, 1))
    row = only_vm(found)
    assert (found.survives, row.outcome) == (None, "unknown")
    assert row.reason == (
        "MachineHealthCheck workers waits for machine-n3 to start: maxUnhealthy 1 allows 1 of 3 to "
        "be unhealthy, and 2 are. It acts once these are healthy; if they are not by 12:05 UTC, it "
        "acts on none"
    )
    (actor,) = found.outages[0].actors
    assert (actor.at, actor.certain, actor.refuses) == (None, False, "")


@pytest.mark.parametrize(
    ("born", "limit", "outcome"), [(OLD, 1, "never restarts"), (BORN, 2, "restarts")]
)
def test_a_machine_whose_time_is_over_or_that_the_limit_allows(born, limit, outcome):
    assert only_vm(after_loss(with_starting(born, limit))).outcome == outcome


def test_a_limit_that_the_loss_alone_exceeds_refuses():
    assert only_vm(after_loss(with_starting(BORN, 0))).outcome == "never restarts"


@pytest.mark.parametrize(
    ("born", "since", "outcome"),
    [(BORN, BORN, "unknown"), (OLD, BORN, "never restarts"), (OLD, OLD, "never restarts")],
)
def test_a_node_that_joins_is_waited_for(born, since, outcome):
    """One that was Ready before, or for whose first time to be Ready too long passed, is not."""
    third = node("n3", ready="False")
    third["metadata"]["creationTimestamp"] = born
    third["status"]["conditions"][0]["lastTransitionTime"] = since
    conditions = [
        {"type": "Ready", "status": status, "duration": "600s"} for status in ("False", "Unknown")
    ]
    row = only_vm(after_loss(third, nhc(minimum=2, unhealthyConditions=conditions)))
    assert row.outcome == outcome
    assert ("workers waits for n3 to start" in row.reason) is (outcome == "unknown")
