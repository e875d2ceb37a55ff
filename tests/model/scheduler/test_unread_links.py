"""Nodes and namespaces that were not read give no certain place to a pod that other pods attract,
repel or spread.
"""

from dataclasses import replace

import pytest

from virt_admit.forecasts.placement import candidates
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.scheduler import pods
from virt_admit.model.scheduler.packing import Item, pack

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node(name, zone):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {ZONE: zone, "kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}},
    }


def pod(name, on="", namespace="shop", **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c"}], **({"nodeName": on} if on else {}), **spec},
    }


def namespace(name):
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"team": name}},
    }


def keeping_off(**term):
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}, **term}
    return {"podAntiAffinity": {REQUIRED: [term]}}


SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
]
NODES = [node("n1", "a"), node("n2", "b")]
NAMESPACES = [namespace("shop"), namespace("bank")]
BANK = {"namespaceSelector": {"matchLabels": {"team": "bank"}}}
NOT_SHOP = {
    "namespaceSelector": {
        "matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["shop"]}]
    }
}


def placed(new, *objects, unreadable=()):
    cluster = Snapshot(map(Object, objects), ["*"], unreadable)
    return candidates.scheduler(cluster).place(pods.read(Object(new)))


def test_a_zone_may_be_closed_by_a_pod_on_a_node_that_was_not_read():
    new = pod("new", affinity=keeping_off())
    other = pod("other", "n3")
    assert placed(new, *NODES, node("n3", "b"), *NAMESPACES, other).certain == ("n1",)
    assert placed(new, *NODES, *NAMESPACES, other, unreadable=["nodes"]).certain is None


def test_a_domain_that_was_not_read_counts_for_spread():
    new = pod("new", topologySpreadConstraints=SPREAD)
    bound = [pod("one", "n1"), pod("two", "n2")]
    assert placed(new, *NODES, node("n3", "c"), *NAMESPACES, *bound).certain == ("n3",)
    hidden = placed(new, *NODES, *NAMESPACES, *bound, unreadable=["nodes"])
    assert (hidden.candidates, hidden.certain) == ((), None)


@pytest.mark.parametrize("term", [BANK, NOT_SHOP])
def test_labels_of_namespaces_decide_whom_a_pod_avoids(term):
    new = pod("new", affinity=keeping_off(**term))
    other = pod("other", "n2", "bank")
    assert placed(new, *NODES, *NAMESPACES, other).certain == ("n1",)
    assert placed(new, *NODES, other, unreadable=["namespaces"]).candidates == ()


@pytest.mark.parametrize(("term", "certain"), [(BANK, ("n1", "n2")), (NOT_SHOP, ("n1", "n2"))])
def test_the_labels_of_its_own_namespace_decide_who_repels_a_pod(term, certain):
    other = pod("other", "n2", "bank", affinity=keeping_off(**term))
    assert placed(pod("new"), *NODES, *NAMESPACES, other).certain == certain
    hidden = placed(pod("new"), *NODES, other, unreadable=["namespaces"])
    assert (hidden.candidates, hidden.certain) == ((), None)
    assert "n2" not in hidden.refusals


def test_pods_without_demands_on_others_need_neither():
    hidden = placed(pod("new"), *NODES, pod("other", "n2"), unreadable=["namespaces"])
    assert hidden.certain == ("n1", "n2")


def test_pods_that_keep_each_other_off_are_not_packed_without_namespaces():
    new = [pods.read(Object(pod(name, affinity=keeping_off(**BANK)))) for name in ("x", "y")]

    def packed(unreadable):
        scheduler = candidates.scheduler(
            Snapshot(map(Object, [*NODES, *NAMESPACES]), ["*"], unreadable)
        )
        return pack([Item(replace(each), ("n1", "n2")) for each in new], scheduler).fits

    assert packed([]) is True
    assert packed(["namespaces"]) is not True


def test_a_vmi_without_a_known_pod_may_take_room():
    objects = [*NODES, *NAMESPACES]
    assert placed(pod("new"), *objects).certain == ("n1", "n2")
    assert (
        placed(pod("new"), *objects, unreadable=["virtualmachineinstances.kubevirt.io"]).certain
        is None
    )
