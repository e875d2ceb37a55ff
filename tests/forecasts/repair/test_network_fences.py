"""A fence of the storage network on a node with a left-over taint: who lifts it, and when."""

from __future__ import annotations

import pytest

from tests.forecasts.repair.test_fenced_nodes import OUT_OF_SERVICE, UNTAINT, back, seen
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.remediation import fence_taints

RBD = "rook-ceph.rbd.csi.ceph.com"
OF_ROOK = "b-rbd-rook-ceph"


def cut_off(name: str, driver: str, cidr: str, state: str = "Fenced") -> Snapshot:
    """Return the node ``b`` with a taint that an administrator has set, and a fence."""
    fenced = back("2027-03-01T06:12:00Z", OUT_OF_SERVICE)
    fenced.data["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.2"}]
    fence = {"apiVersion": "csiaddons.openshift.io/v1alpha1", "kind": "NetworkFence"}
    spec = {"driver": driver, "cidrs": ["x", cidr], "fenceState": state}
    ceph = {"apiVersion": "ceph.rook.io/v1", "kind": "CephCluster"}
    own = {"name": "main", "namespace": "rook-ceph"}
    data = [{**fence, "metadata": {"name": name}, "spec": spec}, {**ceph, "metadata": own}]
    return seen(fenced, *map(Object, data))


@pytest.mark.parametrize(
    ("cidr", "state", "lifts"),
    [
        ("10.0.0.2/32", "Fenced", True),
        ("10.0.0.0/24", "Fenced", True),
        ("10.0.0.2/32", "Unfenced", False),
        ("10.0.0.3/32", "Fenced", False),
    ],
)
def test_rook_lifts_its_fence_after_the_taint(cidr: str, state: str, lifts: bool) -> None:
    found = cut_off(OF_ROOK, RBD, cidr, state)

    words, command = fence_taints.way_out("b", fence_taints.known(found)["b"], found)
    assert command == UNTAINT
    assert (f"after which Rook lifts NetworkFence {OF_ROOK}," in words) is lifts
    assert lifts or words.endswith("by hand")


@pytest.mark.parametrize(
    ("name", "driver"),
    [("peer", RBD), ("b-isolate", "csi.hpe.com"), (OF_ROOK, "csi.hpe.com"), ("b-rbd-other", RBD)],
)
def test_a_fence_that_rook_does_not_lift_goes_before_the_taint(name: str, driver: str) -> None:
    found = cut_off(name, driver, "10.0.0.0/24")

    words, command = fence_taints.way_out("b", fence_taints.known(found)["b"], found)
    assert f"see who set NetworkFence {name}, which cuts it off" in words
    assert "lift that first (spec.fenceState: Unfenced)" in words
    assert command == f"kubectl describe networkfence {name}"


def test_fences_that_cannot_be_read_are_not_absent() -> None:
    found = cut_off(OF_ROOK, RBD, "10.0.0.3/32")
    found.unreadable = frozenset({"networkfences.csiaddons.openshift.io"})

    words, _ = fence_taints.way_out("b", fence_taints.known(found)["b"], found)
    assert words.endswith("by hand, after you see that no NetworkFence names its address")
