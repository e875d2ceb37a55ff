"""VMs that have just begun to start: a drain waits for them, and then they leave the node."""

import pytest

from tests.healthy.clusters import plain
from tests.healthy.guests import RWO, begun
from tests.healthy.machines import claim
from tests.healthy.parts import ago, snapshot
from virt_admit.forecasts.drain import drain_plan
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object


def plan(items, complete=("*",)):
    read = snapshot(items)
    cluster = Snapshot(map(Object, read["items"]), complete=complete, time=read["time"])
    return drain_plan.node_plan("w1", cluster)


def starts(phase="Scheduling", strategy="LiveMigrate", minutes=0, modes=(), **fields):
    """A VM that has been starting for so long, and what else its cluster has."""
    items = begun("web", "w1", phase, strategy=strategy, **fields)
    if minutes:
        for each in items[1:]:
            each["metadata"]["creationTimestamp"] = ago(minutes=minutes)
    given = {"modes": modes} if modes else {}
    return [*plain(), *items, *claim("web", **given)]


@pytest.mark.parametrize("phase", ["Scheduling", "Scheduled"])
def test_a_drain_waits_for_a_vm_that_starts(phase):
    found = plan(starts(phase))
    (row,) = found.forecasts
    assert row.outcome == "migrates"
    assert row.reason == (
        "has been starting for 60 s, for which a drain waits; LiveMigrate, and it can migrate"
    )
    assert found.drainable is True


@pytest.mark.parametrize(
    ("items", "drainable"),
    [
        (starts(minutes=11), None),
        (starts("Scheduled", minutes=11), False),
        (starts("Scheduled", modes=RWO), False),
        (starts(modes=RWO), None),
        (starts(strategy="External"), False),
    ],
    ids=["starts too long", "is not reported on", "cannot migrate", "alike", "has no mover"],
)
def test_a_start_with_which_a_drain_may_not_end(items, drainable):
    assert plan(items).drainable is drainable


@pytest.mark.parametrize("strategy", ["Always", "RerunOnFailure"])
def test_a_start_that_is_evicted_begins_again(strategy):
    items = starts(strategy="LiveMigrateIfPossible")
    for each in items:
        if each["kind"] == "VirtualMachine":
            each["spec"] = {**each["spec"], "runStrategy": strategy}
            each["spec"].pop("running", None)
    found = plan(items)
    (row,) = found.forecasts
    assert (row.outcome, found.drainable) == ("restarts elsewhere", True)
    assert plan(starts(strategy="LiveMigrateIfPossible", minutes=11)).forecasts == ()


def test_a_start_that_fails_keeps_the_vm():
    items = starts("Scheduled")
    launcher = next(each for each in items if each["metadata"]["name"].startswith("virt-launcher"))
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    state = {"name": "compute", "ready": False, "state": {"waiting": waiting}}
    launcher["status"] = {"phase": "Pending", "containerStatuses": [state]}
    (row,) = plan(items).forecasts
    assert (row.outcome, "ImagePullBackOff" in row.reason) == ("blocks the drain", True)


def test_a_claim_that_was_not_read_leaves_it_open():
    items = [each for each in starts() if each["kind"] != "PersistentVolumeClaim"]
    assert (
        plan(items, complete=("nodes", "pods", "virtualmachineinstances.kubevirt.io")).drainable
        is None
    )
