"""Target pods that a kubelet rejects again and again, although the scheduler finds room."""

import pytest

from tests.forecasts.drain.test_vm_states import BLOCKS, MIGRATES, UNKNOWN, row
from tests.forecasts.drain.vm_motion import cluster, launcher, migration, vmi
from virt_admit.model.kubevirt.instances import migration_history

SOURCE = launcher("db", "a", "1")
SAID = {
    "phase": "Failed",
    "reason": "TopologyAffinityError",
    "message": "Pod was rejected: Resources cannot be allocated with Topology locality",
}


def attempts(number, *, since=600, **status):
    """Return failed migrations of a drain with their target pods on b, the last one the newest."""
    for index in range(number):
        age, name = since + 300 * (number - index), f"m{index}"
        begin = {"Pending": age, "Scheduling": age, "Failed": age - 60}
        yield migration(name, "Failed", age=age, since=begin)
        pod = SAID | {"age": age} | status
        yield launcher("db", "b", f"t{index}", job=f"uid-{name}", **pod)


def drained(*objects, nodes=("a", "b"), **fields):
    return cluster(vmi(evacuationNodeName="a", **fields), SOURCE, *objects, nodes=nodes)


def test_a_kubelet_that_rejects_each_target_pod_blocks_a_drain():
    found = row(drained(*attempts(4)))

    assert found.outcome == BLOCKS
    assert (
        "the kubelet of b rejected its last 4 target pods, last 15 min ago (TopologyAffinityError: "
        "Pod was rejected: Resources cannot be allocated with Topology locality)"
    ) in found.reason
    assert found.remedy.startswith(
        "free CPUs, memory and devices of one NUMA node on b, or let the VM ask for less, or stop "
        "the VM for the maintenance"
    )


@pytest.mark.parametrize(
    ("number", "since", "nodes"),
    [(4, 600, ("a", "b", "c")), (2, 600, ("a", "b")), (4, 20_000, ("a", "b"))],
)
def test_another_node_few_rejections_or_older_ones_leave_it_open(number, since, nodes):
    found = row(drained(*attempts(number, since=since), nodes=nodes))

    assert found.outcome == UNKNOWN
    assert f"the kubelet of b rejected its last {number} target pods" in found.reason


@pytest.mark.parametrize(
    "objects",
    [
        [*attempts(1)],
        [*attempts(4, since=100_000)],
        [*attempts(4), migration("m9", "Succeeded", age=400, since={"Succeeded": 300})],
        [*attempts(4), launcher("db", "b", "t9", job="uid-m9", phase="Succeeded", age=300)],
    ],
)
def test_one_rejection_or_one_before_a_success_is_no_doubt(objects):
    assert row(drained(*objects)).outcome == MIGRATES


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({}, "ended on b: TopologyAffinityError: Pod was rejected"),
        ({"reason": "", "message": ""}, "did not start on b"),
    ],
)
def test_a_target_pod_with_a_node_was_scheduled(status, text):
    past = migration_history.history(vmi(), drained(*attempts(1, **status)))[0]

    assert past.failure.text.startswith(f"its target pod {text}")
