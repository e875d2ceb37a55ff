"""What a full range of whereabouts says, as far as its pool and the pods are known."""

import pytest

from tests.builders import manifest, warning
from tests.forecasts.drain.vm_motion import ago
from virt_admit.forecasts.placement.components import broken_pods
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
    assert "still has" not in full(pool("200")).reason  # out of the range


def test_keys_that_are_no_offsets():
    for key in ("\u00b2", "9" * 5000, "-1", ""):
        assert "still has" not in full(pool(key)).reason


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


NETWORK = f'error adding container to network \\"lh\\": {SAID}'


def lan(**annotations):
    metadata = {"annotations": annotations}
    kind = "NetworkAttachmentDefinition"
    return manifest("k8s.cni.cncf.io/v1", kind, "lh", "sys", metadata=metadata, spec={"config": ""})


def taken():
    """Return the pod of the only entry of a pool."""
    return pool("10"), manifest("v1", "Pod", "gone", "vms")


def of_network(*objects):
    cluster = Snapshot([*taken(), *objects], complete=["*"])
    found = address_pools.full_range(NETWORK, cluster)
    assert found is not None
    return found


def test_the_network_of_harvesters_setting_is_not_to_be_edited():
    found = of_network(lan(**{"storage-network.settings.harvesterhci.io": "true"}))

    assert found.reason.endswith("and the only entry of IPPool kube-system/p belongs to a pod")
    assert found.remedy.startswith(
        "set a larger range in Harvester's setting storage-network, of which it made "
        "NetworkAttachmentDefinition sys/lh"
    )


def test_the_network_of_longhorns_setting():
    setting = manifest("longhorn.io/v1beta2", "Setting", "storage-network", "sys", value="sys/lh")

    assert "which Longhorn's setting storage-network names" in of_network(lan(), setting).remedy


def test_another_network():
    found = of_network(lan())

    assert "setting" not in found.remedy
    assert "widen the range (range_end) in NetworkAttachmentDefinition sys/lh" in found.remedy


@pytest.mark.parametrize(("phase", "tells"), [("Pending", True), ("Running", False)])
def test_a_pod_that_others_rely_on_is_told_with_its_range(phase, tells):
    ready = [{"type": "Ready", "status": "False", "lastTransitionTime": ago(900)}]
    pod = manifest("v1", "Pod", "im", "sys", status={"phase": phase, "conditions": ready}, spec={})
    event = warning(pod, "FailedCreatePodSandBox", NETWORK, ago(60))
    broken = broken_pods.of_pod(pod, Snapshot([pod, event, *taken()], time=ago(0), complete=["*"]))

    assert broken is not None
    assert broken.why.startswith("whereabouts has no address left") is tells
