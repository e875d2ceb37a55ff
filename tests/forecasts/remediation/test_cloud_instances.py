"""A cloud that deletes the Node of an instance which is gone brings its VMs back."""

import pytest

from tests.builders import manifest, owned_by, vm, vmi
from virt_admit.forecasts.remediation import outside_checks
from virt_admit.forecasts.remediation.unwatched import cloud_instances
from virt_admit.model.kubernetes.cluster import Snapshot


@pytest.mark.parametrize(
    ("provider", "strategy", "returns"),
    [
        ("gce://project/zone/i", "Always", True),
        ("k3s://a", "Always", False),
        ("gce://project/zone/i", "Manual", False),
    ],
)
def test_vms_of_an_instance_that_is_gone_start_again(provider, strategy, returns):
    subject = vmi(
        metadata={"ownerReferences": owned_by("VirtualMachine")}, status={"nodeName": "a"}
    )
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    items = [
        manifest("v1", "Node", "a", spec={"providerID": provider}),
        manifest("v1", "Pod", "gcp-cloud-controller-manager-1", "kube-system", status=ready),
        vm(runStrategy=strategy),
        subject,
    ]
    cluster = Snapshot(items, complete=["*"])

    found = outside_checks.otherwise({"a": [subject]}, cluster)
    assert found == ({cloud_instances.BY: {"a": ["shop/db"]}} if returns else {})
