"""Nodes of which two at once save no time: their pods or new Machines wait for each other."""

import pytest

from tests.forecasts.drain.test_mutual_drains import node, replicas
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.upgrade import savings
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

METAL3 = "metal3.io/v1alpha1"


def one_by_one(*objects):
    found = Snapshot([*objects], complete=["*"], time="2026-01-01T12:00:00Z")
    return savings.one_by_one(drain_plan.plan(found), found)


def ready(*names):
    return [node(name, cordoned=False) for name in names]


def test_a_budget_whose_pods_find_no_other_node_lets_one_node_go():
    assert one_by_one(*ready("a", "b", "c"), *replicas("kafka", "a", "b", "c")) == set("abc")


def test_pods_that_find_another_node_do_not_hold_the_second_one():
    assert one_by_one(*ready("a", "b", "c", "d"), *replicas("kafka", "a", "b", "c")) == set()


@pytest.mark.parametrize(("state", "alone"), [("provisioned", {"a"}), ("available", set())])
def test_a_second_machine_needs_a_host_that_is_free(state, alone):
    hosts = [
        Object(
            {
                "apiVersion": METAL3,
                "kind": "BareMetalHost",
                "metadata": {"name": name, "namespace": "metal"},
                "status": {"provisioning": {"state": now}},
            }
        )
        for name, now in (("h1", "available"), ("h2", state))
    ]
    machine = Object(
        {
            "apiVersion": "cluster.x-k8s.io/v1beta1",
            "kind": "Machine",
            "metadata": {"name": "m", "namespace": "metal"},
            "status": {"nodeRef": {"name": "a"}},
        }
    )
    assert one_by_one(*ready("a", "b"), machine, *hosts) == alone
