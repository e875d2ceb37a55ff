"""Machines of Harvester whose Node was deleted, and for whose plan Rancher waits."""

import pytest

from tests.builders import manifest
from tests.model.node_updates.test_machineless_nodes import cluster, machine, node, upgrade
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.node_updates.rancher import nodeless_machines

HOURS_AGO = "2027-03-01T10:00:00Z"
WAITS = "waiting for plan to be applied"


def left(reason="NodeNotFound", of="gone", waits=WAITS, **metadata):
    said = [{"type": "NodeHealthy", "status": "False", "reason": reason}]
    said += [{"type": "Reconciled", "status": "Unknown", "message": waits}] if waits else []
    status = {
        "nodeRef": {"name": of},
        "conditions": [each | {"lastTransitionTime": HOURS_AGO} for each in said],
    }
    return manifest(
        "cluster.x-k8s.io/v1beta1",
        "Machine",
        "m-gone",
        "fleet-local",
        metadata=metadata,
        status=status,
    )


def promoted(status="running"):
    found = node("b", "m-b")
    found.data["metadata"]["annotations"]["harvesterhci.io/promote-status"] = status
    found.data["spec"] = {"unschedulable": True}
    return found


KNOWN = (machine("m-a", "a"), node("a", "m-a"), machine("m-b", "b"))


def test_rancher_waits_for_the_machine_of_a_host_that_was_removed():
    there = cluster(*KNOWN, promoted(), left())
    (found,) = nodeless_machines.refusals(there)
    assert found.order.name == "m-gone"
    assert "is that of gone, which does not exist any more" in found.reason
    assert f"still waits for it: {WAITS}" in found.reason
    assert found.reason.endswith("of its role: b is not promoted and stays cordoned")
    assert found.remedy.startswith("If the host of gone was removed on purpose and stays off")
    (stop,) = (each for each in rehearse(there, Options()).stops if each.reason == found.reason)
    assert not stop.node
    (during,) = nodeless_machines.standing(cluster(*KNOWN, node("b"), left(), upgrade(a="Next")))
    assert during.reason.startswith("Upgrade harvester-system/hvst does not go on: Machine")
    assert during.reason.endswith("no other node of its role")


@pytest.mark.parametrize(
    "other",
    [
        left(reason="NodeConditionsFailed"),
        left(of="b"),
        left(waits=""),
        left(deletionTimestamp=HOURS_AGO),
    ],
    ids=["unhealthy", "its Node exists", "nothing waits", "it is being deleted"],
)
def test_machines_that_hold_nothing(other):
    assert not [*nodeless_machines.refusals(cluster(*KNOWN, promoted("complete"), other))]


def test_nodes_that_were_not_all_read():
    assert not [*nodeless_machines.refusals(cluster(*KNOWN, promoted(), left(), complete=()))]


def waiting(created="2026-12-01T08:00:00Z", **fields):
    metadata = {"creationTimestamp": created}
    status = {"phase": "Provisioning"}
    api = "cluster.x-k8s.io/v1beta1"
    made = {"metadata": metadata, "status": status} | fields
    return manifest(api, "Machine", "m-new", "fleet-local", **made)


OF_ALL = (machine("m-a", "a"), node("a", "m-a"), machine("m-b", "b"), node("b", "m-b"))


def test_a_machine_of_a_host_that_never_joined_is_left_over():
    found = waiting()
    result = rehearse(cluster(*OF_ALL, found), Options())
    (stop,) = (each for each in result.stops if "Machine fleet-local/m-new" in each.reason)
    assert "is Provisioning: it has neither nodeRef nor providerID, and each of" in stop.reason
    assert stop.remedy.startswith("Delete it, unless a host is still to join as this Machine:")


@pytest.mark.parametrize(
    ("found", "others"),
    [
        (waiting(spec={"providerID": "rke2://c"}), OF_ALL),
        (waiting(status={"phase": "Provisioned", "nodeRef": {"name": "c"}}), OF_ALL),
        (waiting(created="2027-03-01T11:50:00Z"), OF_ALL),
        (waiting(), (*OF_ALL, node("c"))),
        (waiting(), (*OF_ALL, node("c", "m-new"))),
        (waiting(), (*OF_ALL, node("c", "m-b"))),
        (waiting(), (*OF_ALL, left(deletionTimestamp=HOURS_AGO), node("c", "m-gone"))),
    ],
    ids=[
        *("it has an instance", "it has a node", "it has just come", "a node has no Machine"),
        *("a node names it", "two nodes name one", "the other is being deleted"),
    ],
)
def test_a_machine_that_may_have_a_host(found, others):
    assert nodeless_machines.left_over(found, cluster(*others, found)) is None


def test_a_machine_while_not_all_nodes_were_read():
    found = waiting()
    assert nodeless_machines.left_over(found, cluster(*OF_ALL, found, complete=())) is None
