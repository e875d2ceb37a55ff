"""Nodes that are away, and for how long that is known."""

from dataclasses import replace

import pytest

from tests.incidents_platform.openshift import cordoned_by_hand
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.upgrade import rollouts
from virt_admit.forecasts.upgrade.pools import away_nodes
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.drain import report

NOW = "2026-11-01T12:00:00Z"


@pytest.mark.parametrize(
    ("since", "held"),
    [
        ({"timeAdded": "2026-11-01T11:00:00Z"}, True),
        ({"timeAdded": "2026-11-01T11:45:00Z"}, False),
        ({"timeAdded": "0001-01-01T00:00:00+14:00"}, False),
        ({}, False),
    ],
)
def test_a_pool_is_held_only_by_what_is_known_to_last(since, held):
    items = cordoned_by_hand().items
    node = next(
        each for each in items if each["kind"] == "Node" and each["metadata"]["name"] == "n1"
    )
    node["spec"]["taints"] = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", **since}
    ]
    found = away_nodes.held(Snapshot(list(map(Object, items)), ["*"], time=NOW))
    assert ("worker" in found) is held


@pytest.mark.parametrize(("deleted", "held"), [("09:00", False), ("07:00", True)])
def test_a_node_whose_machine_is_deleted_goes_itself_unless_that_does_not_end(deleted, held):
    items = cordoned_by_hand().items
    machine = {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "Machine",
        "metadata": {
            "name": "m1",
            "namespace": "openshift-machine-api",
            "deletionTimestamp": f"2026-11-01T{deleted}:00Z",
        },
        "status": {"nodeRef": {"name": "n1"}},
    }
    node = next(each for each in items if each["metadata"]["name"] == "n1")
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    node["spec"]["taints"] = [{**taint, "timeAdded": "2026-11-01T09:00:00Z"}]
    cluster = Snapshot(list(map(Object, [*items, machine])), ["*"], time=NOW)
    found = away_nodes.held(cluster)
    assert ("worker" in found) is held
    assert not held or found["worker"].remedy.startswith(
        "See why the deletion of Machine openshift-machine-api/m1 for 5 h does not remove n1: "
    )


@pytest.mark.parametrize(
    ("unreadable", "blind"), [((), False), (("nodehealthchecks.remediation.medik8s.io",), True)]
)
def test_a_pool_whose_fenced_node_may_come_back_is_not_known_to_be_held(unreadable, blind):
    items = cordoned_by_hand().items
    node = next(each for each in items if each["metadata"]["name"] == "n1")
    keys = ("node.kubernetes.io/unschedulable", "medik8s.io/remediation")
    effects = ("NoSchedule", "NoExecute")
    added = {"timeAdded": "2026-11-01T09:00:00Z"}
    node["spec"]["taints"] = [
        {"key": key, "effect": effect, **added} for key, effect in zip(keys, effects, strict=True)
    ]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T10:00:00Z"}
    node.setdefault("status", {})["conditions"] = [ready]
    remediation = {
        "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
        "kind": "SelfNodeRemediation",
        "metadata": {"name": "n1", "namespace": "ops"},
    }
    objects = list(map(Object, [*items, remediation]))
    cluster = Snapshot(objects, ["*"], unreadable=unreadable, time=NOW)

    assert isinstance(away_nodes.held(cluster)["worker"], Unseen) is blind
    pools = rollouts.pools(rollouts.Driver.MACHINE_CONFIG, cluster, None, (), ())
    assert any(pool.obstacle is not None for pool in pools) is not blind
    assert len(list(rollouts.doubts(rollouts.Driver.MACHINE_CONFIG, pools, cluster))) == blind


def test_what_may_stop_the_upgrade_leaves_the_answer_of_all_drains_open():
    items = cordoned_by_hand().items
    found = drain_plan.plan(Snapshot(list(map(Object, items)), ["*"], time=NOW))
    sure = report.verdict(replace(found, held=()))
    open_ = report.verdict(replace(found, held=(), unsure=("whether n1 comes back",)))

    assert sure.answer is True
    assert (open_.answer, open_.word) == (None, "Unknown")
    assert open_.sentence.startswith(
        "whether it completes cannot be determined (whether n1 comes back). "
    )


@pytest.mark.parametrize(("places", "begins"), [(1, False), (2, True)])
def test_a_paused_pool_without_a_place_begins_only_when_its_node_is_back(places, begins):
    items = cordoned_by_hand().items
    pool = next(each for each in items if each["kind"] == "MachineConfigPool")
    pool["spec"] |= {"paused": True, "maxUnavailable": places}
    cluster = Snapshot(list(map(Object, items)), ["*"], time=NOW)
    paused, *behind = rollouts.pools(rollouts.Driver.MACHINE_CONFIG, cluster, None, (), ())

    assert "is paused" in paused.obstacle.reason
    assert ("starts its roll-out at once" in paused.obstacle.remedy) is begins
    assert ("its roll-out begins once n1 is back" in paused.obstacle.remedy) is not begins
    assert (
        not behind
        if begins
        else behind[0].obstacle.reason.startswith(
            "MachineConfigPool worker begins with no node when its pause ends: n1, cordoned by hand"
        )
    )
    assert begins or "kubectl uncordon n1" in behind[0].obstacle.remedy
