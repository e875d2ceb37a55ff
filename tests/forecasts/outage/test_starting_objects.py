"""A health check whose limit is used up by what still starts waits for that: it does not refuse.
VMs whose pods wait on a lost node are judged as those that run there.
"""

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


def waiting(strategy="Always", phase="Scheduling", **pod):
    """Return a VM whose pod has waited on n1 for 50 minutes."""
    vmi, owner, launcher = vm("web", "n1", "20Gi", strategy=strategy)
    vmi["metadata"]["creationTimestamp"] = launcher["metadata"]["creationTimestamp"] = OLD
    vmi["status"] = {"phase": phase, "conditions": [{"type": "Ready", "status": "False"}]}
    launcher["status"] = {"phase": "Pending"} | pod
    return vmi, owner, launcher


def loss_of_waiting(*parts, room="64Gi"):
    nodes = [node("n1"), node("n2", room), node("n3", "8Gi")]
    objects = [*NAMESPACES, KUBEVIRT, *flat([*nodes, *parts])]
    return lose(Snapshot(map(Object, objects), ["*"], time=NOW), "n1")


BROKEN = {"name": "compute", "state": {"waiting": {"reason": "CreateContainerConfigError"}}}


@pytest.mark.parametrize(
    ("room", "parts", "outcome", "survives"),
    [
        ("64Gi", (waiting(),), "never restarts", False),
        ("64Gi", (waiting(phase="Pending"),), "never restarts", False),
        ("64Gi", (waiting(), nhc()), "restarts", True),
        ("64Gi", (waiting(containerStatuses=[BROKEN]), nhc()), "unknown", None),
        ("64Gi", (waiting("Manual"),), "stays off", True),
        ("8Gi", (waiting(), nhc()), "waits for its node", False),
    ],
    ids=["no check", "pending", "check", "it fails anyway", "strategy", "no node"],
)
def test_a_vm_whose_pod_waits_on_a_lost_node_is_judged_as_one_that_runs(
    room, parts, outcome, survives
):
    found = loss_of_waiting(*parts, room=room)
    row = only_vm(found)
    assert (row.vmi.name, row.node, row.outcome, found.survives) == ("web", "n1", outcome, survives)
    assert found.unseen == ()


def test_a_waiting_pod_that_ends_already_has_not_ended_either():
    vmi, owner, launcher = waiting()
    launcher["metadata"]["deletionTimestamp"] = NOW
    assert only_vm(loss_of_waiting(vmi, owner, launcher)).outcome == "never restarts"
