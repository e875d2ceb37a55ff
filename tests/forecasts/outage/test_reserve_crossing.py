"""The watch names the VMs that began to run when the room for one lost node ran out."""

import datetime

from prometheus_client import CollectorRegistry

from tests.forecasts.outage.losses import filler, manifest, node, snapshot, vm
from virt_admit.forecasts.outage.reserve_crossing import crossing, reserve
from virt_admit.reports import cluster_writer
from virt_admit.reports.outage.failover_metrics import FailoverMetrics

NODES = [node("n1"), node("n2"), node("n3")]
FULL = [vm("web", "n1", "40Gi"), filler("n2", "40Gi"), filler("n3", "40Gi")]
NOW = datetime.datetime(2027, 1, 31, tzinfo=datetime.UTC)
"""8Gi can start."""


def world(*more, nodes=NODES):
    return snapshot(nodes, FULL, *more)


def test_what_can_start():
    found = reserve(world())
    assert found.left["memory"] == (8 * 2**30, "n1")
    assert found.running == {("shop", "web")}


def test_a_vm_that_began_to_run_is_named_once_the_room_ran_out():
    before = reserve(world(vm("small", "n2", "2Gi")))
    found = crossing(before, reserve(world(vm("small", "n2", "2Gi"), vm("db", "n2", "10Gi"))))
    assert (found.resource, found.missing, found.vms) == ("memory", 4 * 2**30, {("shop", "db")})
    short = reserve(world(vm("db", "n2", "10Gi")))
    assert (
        crossing(short, reserve(world(vm("db", "n2", "10Gi"), vm("later", "n2", "2Gi")))) is None
    ), "short before"


def test_cordons_and_migrations_are_no_crossing():
    cordoned = [{**NODES[0], "spec": {"unschedulable": True}}, *NODES[1:]]
    before = reserve(world(vm("db", "n2", "6Gi")))
    assert crossing(before, reserve(world(vm("db", "n2", "6Gi"), nodes=cordoned))) is None
    assert crossing(before, reserve(world(vm("db", "n3", "6Gi")))) is None


def test_without_all_data_or_with_an_autoscaler_nothing_is_said():
    autoscaler = manifest("autoscaling.openshift.io/v1", "ClusterAutoscaler", "default")
    assert reserve(world(autoscaler)) is None
    assert reserve(snapshot(NODES, FULL, unreadable=("pods",))) is None
    assert reserve(snapshot(NODES[:1])) is None


def test_an_event_names_the_vm_until_there_is_room_again():
    metrics = FailoverMetrics(CollectorRegistry())
    metrics.estimate(world())
    assert metrics.started == ()
    metrics.estimate(world(vm("db", "n2", "10Gi")))
    (result,) = metrics.started
    ((_, body),) = cluster_writer.addressed_events(result, NOW)
    assert (body["involvedObject"]["name"], body["reason"]) == ("db", "NoFailover")
    assert (
        "since this VM runs, the loss of n1 leaves VMs without room: 2Gi of memory short"
        in body["message"]
    )
    metrics.estimate(snapshot(NODES, FULL, vm("db", "n2", "10Gi"), unreadable=("pods",)))
    assert metrics.started == (result,), "unread is not room"
    metrics.estimate(world())
    assert metrics.started == ()


def test_where_no_node_is_ready_there_is_none_to_lose():
    """As when the pod network is down: the metrics go on."""
    down = [node(name, ready="False") for name in ("n1", "n2", "n3")]
    metrics = FailoverMetrics(CollectorRegistry())
    metrics.estimate(world(nodes=down))

    assert reserve(world(nodes=down)) is None
    assert metrics.started == ()
