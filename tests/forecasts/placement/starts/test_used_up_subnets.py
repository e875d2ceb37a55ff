"""A network of OVN-Kubernetes without a free address is told with who has them."""

import json

import pytest

from tests.builders import manifest, owned_by, warning
from tests.forecasts.drain.vm_motion import ago
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.kubernetes.cluster import Snapshot

FULL = "failed to update pod shop/db: failed to assign pod addresses for shop/lan/shop/db: {}"
SANDBOX = (
    'Failed to create pod sandbox: error adding pod shop_db to CNI network "multus-cni-network": '
    'plugin type="multus-shim" name="multus-cni-network" failed (add): error adding container to '
    'network "shop-lan": [network shop-lan NAD shop/lan] failed to get pod annotation: '
)
LATE = f"{SANDBOX}timed out waiting for annotations: context deadline exceeded"


def ipam_claim(owner, address, network="shop-lan", finalizers=()):
    owners = owned_by("VirtualMachine", owner)
    metadata = {"ownerReferences": owners, "finalizers": [*finalizers]}
    status = {"ips": [f"{address}/29"] if address else []}
    return manifest(
        "k8s.cni.cncf.io/v1alpha1",
        "IPAMClaim",
        f"{owner}.lan",
        "shop",
        metadata=metadata,
        spec={"network": network},
        status=status,
    )


def stopped(name, strategy="Halted"):
    return manifest(
        "kubevirt.io/v1", "VirtualMachine", name, "shop", spec={"runStrategy": strategy}
    )


SAID = FULL.format("range is full")


def fault(*objects, said=SAID, sandbox=LATE, **changes):
    config = {
        "name": "shop-lan",
        "type": "ovn-k8s-cni-overlay",
        "topology": "localnet",
        "subnets": "10.0.0.0/30",
        **changes,
    }
    spec = {"config": json.dumps(config)}
    lan = manifest("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "lan", "shop", spec=spec)
    metadata = {
        "annotations": {
            "k8s.v1.cni.cncf.io/networks": json.dumps([{"name": "lan", "namespace": "shop"}])
        },
        "labels": {"vm.kubevirt.io/name": "db"},
        "creationTimestamp": ago(900),
    }
    pod = manifest(
        "v1",
        "Pod",
        "db",
        "shop",
        metadata=metadata,
        spec={"nodeName": "a"},
        status={"phase": "Pending"},
    )
    told = [warning(pod, "FailedCreatePodSandBox", sandbox, ago(10))]
    if said:
        told.append(warning(pod, "ErrorAllocatingPod", said, ago(60)))
    return pod_starts.fault(pod, Snapshot([lan, pod, *told, *objects], time=ago(0), complete=["*"]))


TAKEN = (ipam_claim("old", "10.0.0.1"), ipam_claim("web", "10.0.0.2"))


@pytest.mark.parametrize("words", ["range is full", "subnet address pool exhausted"])
def test_a_stopped_vm_holds_an_address(words):
    found = fault(*TAKEN, stopped("old"), stopped("web", "Always"), said=FULL.format(words))

    assert found.words == (
        "OVN-Kubernetes has no address left for NetworkAttachmentDefinition shop/lan, whose "
        "spec.config has subnets 10.0.0.0/30. 2 IPAMClaims hold all 2 addresses, among them "
        "10.0.0.1 for VM shop/old, which is stopped"
    )
    assert found.remedy.startswith("give the VM a network with larger subnets")
    assert found.remedy.endswith(
        "; or, as a decision, if it is no longer needed (kubectl describe vm old -n shop), delete "
        "VM shop/old (10.0.0.1), with which its IPAMClaim and the disks that it owns go"
    )
    assert "cordon" not in found.remedy
    assert not found.of_node


def test_a_claim_of_a_vm_that_is_gone_is_deleted():
    found = fault(*TAKEN, stopped("web", "Always"))

    assert "10.0.0.1 for VM shop/old, which does not exist" in found.words
    assert "delete IPAMClaim shop/old.lan, whose VM does not exist" in found.remedy
    assert "kubectl delete ipamclaim" in found.remedy


KEPT = ipam_claim("old", "10.0.0.1", finalizers=["kubevirt.io/persistent-ipam"])


def test_a_finalizer_keeps_the_claim_of_a_vm_that_is_gone():
    """Its controller takes it off at events of a VM alone, so that no deletion would end."""
    found = fault(KEPT, TAKEN[1], stopped("web", "Always"))

    assert "delete ipamclaim" not in found.remedy
    assert found.remedy.startswith(
        "as a decision, take finalizer kubevirt.io/persistent-ipam off IPAMClaim shop/old.lan, "
        "whose VM does not exist, unless that VM is to be restored"
    )
    assert "kubectl edit ipamclaim old.lan -n shop; see that this controller runs" in found.remedy


def test_a_claim_without_a_finalizer_is_deleted_first():
    found = fault(KEPT, ipam_claim("web", "10.0.0.2"))

    assert found.remedy.startswith("delete IPAMClaim shop/web.lan, whose VM does not exist")


def test_exclusions_leave_the_other_addresses():
    excluded = "10.0.0.4/30,10.0.0.5,fd00::/64,192.0.2.0/24"
    everyone = [stopped("old"), stopped("web", "Always")]
    there = {"subnets": "10.0.0.0/29", "excludeSubnets": excluded, "said": ""}
    third = ipam_claim("third", "10.0.0.3")

    assert "has no address left" not in fault(*TAKEN, *everyone, **there).words
    assert "3 IPAMClaims hold all 3 addresses" in fault(*TAKEN, third, *everyone, **there).words


def test_more_exclusions_than_are_read():
    excluded = ",".join(["192.0.2.1"] * 5000)

    assert "has no address left" not in fault(*TAKEN, said="", excludeSubnets=excluded).words


def test_the_claims_tell_it_after_the_event():
    everyone = [stopped("old"), stopped("web", "Always")]

    assert "2 IPAMClaims hold all 2 addresses" in fault(*TAKEN, *everyone, said="").words


@pytest.mark.parametrize(
    "changes",
    [
        {"subnets": "10.0.0.0/29"},  # others are free
        {"excludeSubnets": "10.0.0.9/32", "subnets": "10.0.0.0/29"},
        {"subnets": "10.0.0.0/30,fd00::/64"},
        {"topology": "layer3"},
    ],
)
def test_without_an_event_a_free_address_is_another_cause(changes):
    assert "has no address left" not in fault(*TAKEN, said="", **changes).words


def test_an_address_that_came_meanwhile():
    own = ipam_claim("db", "10.0.0.2")

    assert "has no address left" not in fault(TAKEN[0], own).words


def test_claims_of_other_networks_hold_none_of_it():
    other = ipam_claim("old", "10.0.0.1", "other")

    assert "IPAMClaim" not in fault(other, stopped("old")).words


def test_subnets_of_each_node():
    assert fault(topology="layer3").of_node


def test_the_shim_is_not_blamed_for_the_network_that_multus_names():
    found = fault(said="", sandbox=f"{SANDBOX}no such port")

    assert found.words.startswith("network of NetworkAttachmentDefinition shop/lan fails: ")
    assert "multus-shim" not in found.remedy


def test_the_network_of_the_cluster_has_no_definition():
    said = "failed to assign pod addresses for default/shop/db: range is full"

    assert "NetworkAttachmentDefinition default" not in fault(said=said, sandbox="x").words
