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
