"""The failover that is left, as figures, metrics and on the page of the watch."""

import math

import pytest
from prometheus_client import CollectorRegistry

from tests.forecasts.outage.losses import claim, disk, filler, machines, nhc, node, snapshot, vm
from virt_admit.forecasts.outage.failover_figures import FailoverCause, figures
from virt_admit.reports.html import page as pages
from virt_admit.reports.html.levels import GOOD
from virt_admit.reports.outage.failover_metrics import FailoverMetrics, add, with_failover

GI = 2**30
ZONED = [node("n1", zone="a"), node("n2", zone="b"), node("n3", zone="b")]
PAGE = pages.Page(title="Cluster", subject="", verdict=pages.PageVerdict(GOOD, "Ready", ""))


def samples(found):
    registry = CollectorRegistry()
    add(registry, found)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_a_cluster_with_room():
    found = figures(
        snapshot(ZONED, vm("db", "n1", "20Gi"), vm("web", "n2", "10Gi"), nhc(minimum=0))
    )
    assert found.nodes == {"n1": True, "n2": True, "n3": True}
    assert found.zones == {"a": True, "b": True}
    assert found.capacity["memory"] == (3 * 64 - 30) * GI - 64 * GI
    assert found.spare_nodes == 2
    assert found.largest == 64 * GI
    assert set(found.without.values()) == {0}
    assert found.seconds == (540, 675)


def test_each_cause_is_counted():
    here = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    objects = [
        vm("bound", "n1", **here),
        vm("manual", "n1", strategy="Manual"),
        vm("bare", "n1", strategy=None),
        vm("big", "n2", "60Gi"),
        filler("n3", "10Gi"),
    ]
    without = figures(snapshot(ZONED, objects, nhc(minimum=0))).without
    assert without == {
        FailoverCause.NO_CHECK: 0,
        FailoverCause.ROOM: 1,
        FailoverCause.BOUND: 1,
        FailoverCause.STRATEGY: 1,
        FailoverCause.OWNER: 1,
    }
    assert figures(snapshot(ZONED, objects)).without[FailoverCause.NO_CHECK] == 2


def test_vms_of_which_chance_decides_count_with_the_least_number():
    objects = [
        filler("n2", "54Gi"),
        filler("n3", "64Gi"),
        [vm(f"vm{index}", "n1", "10Gi") for index in range(3)],
    ]
    assert figures(snapshot(ZONED, objects, nhc(minimum=0))).without[FailoverCause.ROOM] == 2


def test_what_was_not_read_has_no_figure():
    objects = (ZONED, vm("db", "n1"), nhc())
    found = samples(
        figures(snapshot(*objects, unreadable=("virtualmachineinstances.kubevirt.io",)))
    )
    assert found["virt_admit_node_survivable", "n1"] == -1
    assert not {name for name, *_ in found} & {
        "virt_admit_failover_capacity",
        "virt_admit_vms_without_failover",
        "virt_admit_failover_spare_nodes",
        "virt_admit_zone_vms_without_failover",
    }


def test_metrics():
    cluster = snapshot(
        ZONED,
        claim("d"),
        vm("db", "n1", volumes=[disk("d")]),
        nhc("FenceAgentsRemediation", minimum=0),
    )
    found = samples(figures(cluster))
    assert found["virt_admit_node_survivable", "n1"] == 1
    assert found["virt_admit_zone_survivable", "a"] == 1
    assert found["virt_admit_failover_seconds", "low"] == 50 + 300 + 360 + 10
    assert found["virt_admit_failover_seconds", "high"] == 55 + 300 + 320 + 20 + 360 + 120
    assert found["virt_admit_failover_capacity", "pods"] == 3 * 110 - 1 - 110
    assert found["virt_admit_failover_largest_vm_bytes",] == 64 * GI


def test_nothing_bounds_the_deletion_of_a_machine():
    found = samples(figures(snapshot(ZONED, vm("db", "n1"), machines("n1", "n2", "n3"))))
    assert found["virt_admit_failover_seconds", "high"] == math.inf


def test_nodes_that_are_no_longer_read_are_not_determined():
    registry = CollectorRegistry()
    metrics = FailoverMetrics(registry)
    metrics.estimate(snapshot(ZONED))
    assert registry.get_sample_value("virt_admit_node_survivable", {"node": "n1"}) == 1
    metrics.estimate(snapshot(ZONED[1:], unreadable=("nodes",)))
    assert registry.get_sample_value("virt_admit_node_survivable", {"node": "n1"}) == -1
    metrics.estimate(snapshot(ZONED[1:]))
    assert registry.get_sample_value("virt_admit_node_survivable", {"node": "n1"}) is None


def test_the_page_names_losses_that_are_not_survived():
    assert with_failover(PAGE, None) == PAGE
    shown = with_failover(
        PAGE, figures(snapshot(ZONED, vm("<b>db</b>", "n1", "10Gi"), filler("n2", "64Gi")))
    )
    text = pages.render(shown)
    assert "nodes whose loss leaves VMs down" in text
    assert "no health check watches n1" in text
    assert "<b>db" not in text
    assert "zone a" in text
    assert f"VMs without failover, by cause: {FailoverCause.NO_CHECK} 1." in text


@pytest.mark.parametrize("taints", [[], [{"key": "dedicated", "effect": "NoSchedule"}]])
def test_nodes_with_lasting_taints_are_no_room_for_others(taints):
    nodes = [*ZONED[:2], {**ZONED[2], "spec": {"taints": taints}}]
    found = figures(snapshot(nodes, vm("db", "n1", "20Gi"), nhc(minimum=0)))
    assert found.capacity["memory"] == ((2 if taints else 3) * 64 - 20 - 64) * GI
