"""What a full range of whereabouts says, as far as its pool and the pods are known."""

from tests.builders import manifest
from virt_admit.model import address_pools
from virt_admit.model.kubernetes.cluster import Snapshot

SAID = "Could not allocate IP in range: ip: 10.0.0.10 / - 10.0.0.12 / range: 10.0.0.0/24"
"""The words of pkg/allocate/allocate.go#AssignmentError."""


def pool(*keys):
    entries = {key: {"id": "x", "podref": "vms/gone"} for key in keys}
    spec = {"range": "10.0.0.0/24", "allocations": entries}
    return manifest("whereabouts.cni.cncf.io/v1alpha1", "IPPool", "p", "kube-system", spec=spec)


def full(*objects, complete=("*",)):
    found = address_pools.full_range(SAID, Snapshot(list(objects), complete=list(complete)))
    assert found is not None
    return found


def test_a_stale_entry():
    assert 'still has entry "10" of pod vms/gone' in full(pool("10")).reason
    assert "belongs to a pod" in full(pool("200")).reason  # out of the range


def test_keys_that_are_no_offsets():
    for key in ("\u00b2", "9" * 5000, "-1", ""):
        assert "belongs to a pod" in full(pool(key)).reason


def test_pods_that_are_not_known():
    assert (
        full(pool("10"), complete=()).reason
        == "whereabouts has no address left in 10.0.0.10 - 10.0.0.12"
    )


def test_the_reservations_of_the_same_pods_go_as_well():
    def reservation(address, pod):
        kind, spec = "OverlappingRangeIPReservation", {"podref": pod}
        return manifest("whereabouts.cni.cncf.io/v1alpha1", kind, address, "kube-system", spec=spec)

    held = [reservation("10.0.0.10", "vms/gone"), reservation("10.0.0.11", "vms/other")]
    remedy = full(pool("10"), *held).remedy
    assert (
        "; delete the reservation of that pod as well, which holds the same addresses (kubectl "
        "delete "
    ) in remedy
    assert (
        "overlappingrangeipreservations.whereabouts.cni.cncf.io 10.0.0.10 -n kube-system)" in remedy
    )
    assert "10.0.0.11" not in remedy
    assert "reservation" not in full(pool("10")).remedy
