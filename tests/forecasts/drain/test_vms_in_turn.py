"""VMs that leave a node one after the other:
topology spread counts the pods of a cordoned node that are left.
"""

import pytest

from tests import builders
from tests.forecasts.drain.vm_motion import ROOM, cluster, launcher, vm, vmi
from virt_admit.forecasts.drain import drain_plan
from virt_admit.reports.drain.text import text

HOSTNAME = "kubernetes.io/hostname"
LABELS = {"app": "redis"}


def spread(**more):
    selector = {"labelSelector": {"matchLabels": LABELS}}
    return [
        {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"}
        | selector
        | more
    ]


def redis(number, on, **constraint):
    name, terms = f"redis-{number}", spread(**constraint)
    own = vmi(name, on, spec={"topologySpreadConstraints": terms}, metadata={"labels": LABELS})
    pod = launcher(name, on)
    pod.data["metadata"]["labels"] |= LABELS
    pod.data["spec"]["topologySpreadConstraints"] = terms
    return [vm(name), own, pod]


def drained(limit, *, on="abc", per_node=2, **constraint):
    places = [each for each in on for _ in range(per_node)]
    objects = [
        each for number, place in enumerate(places) for each in redis(number, place, **constraint)
    ]
    nodes = [
        builders.node(name, {HOSTNAME: name}, allocatable=dict(ROOM), unschedulable=name == "a")
        for name in on
    ]
    found = cluster(*objects, *nodes, parallelOutboundMigrationsPerNode=limit)
    return drain_plan.plan(found, "a")


@pytest.mark.parametrize(
    ("limit", "constraint", "drainable"),
    [
        (1, {}, False),
        (2, {}, True),
        (1, {"nodeTaintsPolicy": "Honor"}, True),
        (1, {"maxSkew": 2}, True),
        (1, {"whenUnsatisfiable": "ScheduleAnyway"}, True),
    ],
)
def test_the_second_vm_finds_no_place_after_the_first_has_left(limit, constraint, drainable):
    (node,) = drained(limit, **constraint).nodes

    assert node.drainable is drainable
    assert len(node.crowded(node.packing)) == (drainable is False)


def test_it_cannot_be_determined_how_many_leave_at_the_same_time():
    (node,) = drained(2, on="abcd", per_node=3).nodes

    assert node.drainable is None
    assert node.doubts == ("an order that topology spread allows",)


def test_it_is_not_called_a_lack_of_room():
    printed = text(drained(1))

    assert "once the others have left: topology spread counts the cordoned node" in printed
    assert "to do: raise parallelOutboundMigrationsPerNode for this drain" in printed
