"""A node whose VMs find a place alone, but not all at the same time: drain and upgrade name the
same VM for the same reason.
"""

from types import SimpleNamespace

import pytest

from tests import builders
from tests.builders import complete, kubevirt
from tests.forecasts.drain.vm_motion import ROOM, vm, vmi
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.reports.drain.text import text
from virt_admit.reports.explain.vm import text as explained


def cluster(memory, *names):
    nodes = [
        builders.node(name, allocatable=ROOM | {"memory": size})
        for name, size in (("a", "64Gi"), ("b", memory))
    ]
    rows = [each for name in names for each in (vmi(name), vm(name))]
    return complete(*nodes, kubevirt(), *rows)


def test_the_upgrade_stops_at_the_vm_that_the_drain_names():
    there = cluster("6Gi", "one", "two")
    (row,) = plan(there, "a").nodes[0].without_room

    (stop,) = rehearse(there, Options()).stops

    assert stop.node == "a"
    assert stop.reason == f"{row.vmi.full_name}: {row.reason}"
    assert "there is no room with the others of its node" in stop.reason
    assert stop.remedy == row.remedy


def test_the_head_line_counts_it_apart():
    said = text(plan(cluster("6Gi", "one", "two"), "a"))

    assert "node a: 2 VMs: 1 migrates, 1 finds no place with the others\n" in said


def test_where_all_find_room_all_migrate():
    there = cluster("64Gi", "one", "two")

    assert "node a: 2 VMs: 2 migrate\n" in text(plan(there, "a"))
    assert not rehearse(there, Options()).stops


def test_a_vm_that_fits_nowhere_has_its_own_reason():
    found = plan(cluster("2Gi", "one"), "a").nodes[0]

    assert not found.without_room
    assert "no other node can take it" in found.forecasts[0].reason


@pytest.mark.parametrize(
    ("names", "because", "said"),
    [
        (("one", "two", "three"), "x", "; this VM blocks the drain of its node too"),
        (("one",), "x", ", but not because of this VM: x"),
        (
            ("one",),
            "it waits for shop/one-more",
            ", but not because of this VM: it waits for shop/one-more",
        ),
        (("one",), "it waits for shop/one", ": it waits for shop/one"),
    ],
)
def test_each_vm_without_room_is_said_to_keep_its_node(names, because, said):
    row = plan(cluster("6Gi", *names), "a").nodes[0].forecasts[0]
    upgrade = SimpleNamespace(stops=(), possible=False, because=because, moves=None)
    drain = SimpleNamespace(reason=row.reason)
    report = SimpleNamespace(
        vm=SimpleNamespace(namespace="shop", name="one"), upgrade=upgrade, drain=drain, events=()
    )

    assert explained._upgrade(report) == f"not possible{said}"
