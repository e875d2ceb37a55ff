"""A cloud that deletes the Node of an instance which is gone brings its VMs back."""

import pytest

from tests.builders import manifest, owned_by, vm, vmi
from virt_admit.forecasts.remediation import outside_checks
from virt_admit.forecasts.remediation.unwatched import cloud_instances
from virt_admit.model.kubernetes.cluster import Snapshot

GCP = "gcp-cloud-controller-manager-1"


def returning(provider="gce://project/zone/i", strategy="Always", controllers=((GCP, ""),)):
    """Return what brings a VM back on an instance: of each controller its name and its cloud."""
    subject = vmi(
        metadata={"ownerReferences": owned_by("VirtualMachine")}, status={"nodeName": "a"}
    )
    pods = [
        manifest(
            *("v1", "Pod", name, *(namespace or ["kube-system"])),
            spec={"containers": [{"args": [f"--cloud-provider={cloud}"] if cloud else []}]},
            status={"conditions": [{"type": "Ready", "status": "True"}]},
        )
        for name, cloud, *namespace in controllers
    ]
    node = manifest("v1", "Node", "a", spec={"providerID": provider})
    items = [node, *pods, vm(runStrategy=strategy), subject]
    found = outside_checks.otherwise({"a": [subject]}, Snapshot(items, complete=["*"]))
    assert found in ({}, {cloud_instances.BY: {"a": ["shop/db"]}})
    return bool(found)


@pytest.mark.parametrize(
    ("provider", "strategy", "returns"),
    [
        ("gce://project/zone/i", "Always", True),
        ("k3s://a", "Always", False),
        ("gce://project/zone/i", "Manual", False),
    ],
)
def test_vms_of_an_instance_that_is_gone_start_again(provider, strategy, returns):
    assert returning(provider, strategy) is returns


@pytest.mark.parametrize(
    ("controller", "returns"),
    [
        (("cloud-controller-manager-x", "vsphere"), True),
        (("rancher-vsphere-cpi-cloud-controller-manager-x", ""), True),
        (("vsphere-cloud-controller-manager-x", "", "openshift-cloud-controller-manager"), True),
        (("kubevirt-cloud-controller-manager-x", "kubevirt"), False),
        (("vsphere-cloud-controller-manager-x", "vsphere", "clusters-guest"), False),
        (("cloud-controller-manager-server1", "rke2"), False),
        (("cloud-controller-manager-x", ""), False),
        (("aws-cloud-controller-manager-x", "aws"), False),
    ],
)
def test_the_controller_is_of_the_cloud_of_the_node(controller, returns):
    assert returning("vsphere://42", controllers=[controller]) is returns
