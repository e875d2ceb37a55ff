"""Disks that keep a VM from starting: scratch space, provisioners, quotas, importers."""

import pytest

from tests.forecasts.drain.test_start_obstacles import stuck
from tests.healthy.clusters import plain
from tests.healthy.machines import storage_class
from tests.healthy.parts import ago, obj
from tests.incidents.machines import event, find
from tests.incidents.starts import importing, pending


def filled(*objects, phase="ImportScheduled", **said):
    return stuck([*plain(), *importing("web", phase, **said), *objects], "web")


def test_scratch_space_that_gets_a_volume_is_no_obstacle():
    free = {"storageClassName": "local", "capacity": {"storage": "10Gi"}}
    volume = obj("PersistentVolume", "v1", "pv-1", spec=free, status={"phase": "Available"})
    local = storage_class("local", "kubernetes.io/no-provisioner")

    assert filled(*local, pending("web-scratch", "local"), volume) is None


@pytest.mark.parametrize(
    ("storage", "why"),
    [
        ("gone", "storage class gone does not exist"),
        (None, "it names no class, and no class is the default"),
    ],
)
def test_a_class_that_cannot_provide_scratch_space(storage, why):
    found = filled(pending("web-scratch", storage))

    assert found.reason.endswith(f"claim web-scratch is Pending: {why}")
    assert (
        "set scratchSpaceStorageClass of CDI to a class that has a provisioner (block), then delete"
        in found.remedy
    )


@pytest.mark.parametrize(
    ("version", "spec"),
    [
        ("v1beta1", '{"spec":{"scratchSpaceStorageClass":"block"}}'),
        ("v1", '{"spec":{"storage":{"scratchSpaceStorageClass":"block"}}}'),
    ],
)
def test_hyperconverged_writes_the_cdi_object(version, spec):
    hco = obj(
        "HyperConverged",
        f"hco.kubevirt.io/{version}",
        "kubevirt-hyperconverged",
        "kubevirt",
        spec={},
    )

    assert filled(pending("web-scratch", "gone"), hco).remedy.endswith(
        f"kubectl patch hyperconverged kubevirt-hyperconverged -n kubevirt --type=merge -p '{spec}'"
    )


def test_a_provisioner_that_fails_is_named():
    claim = pending("web-scratch", "block")
    found = filled(claim, event(claim, "ProvisioningFailed", "rpc error: out of space", "csi"))

    assert found.reason.endswith("claim web-scratch is Pending: rpc error: out of space")
    assert found.remedy.startswith(
        "correct what provisioner rook-ceph.rbd.csi.ceph.com refuses, in the claim, in class block "
        "or in its storage"
    )


def test_a_pod_of_cdi_that_fails_says_why():
    items = plain() + importing("web", "ImportInProgress")
    importer = find(items, "Pod", "importer-web")
    importer["spec"]["nodeName"] = "w1"
    ended = {
        "exitCode": 1,
        "reason": "Error",
        "message": "Unable to process data: unexpected status code 404",
    }
    state = {
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    importer["status"] = {"phase": "Running", "containerStatuses": [{"name": "importer", **state}]}
    found = stuck(items, "web")

    assert found.reason == (
        "its disk web is not filled (ImportInProgress): pod importer-web fails: Unable to process "
        "data: unexpected status code 404"
    )
    assert found.remedy.startswith(
        "correct the address of the source of the disk, in a new DataVolume"
    )
    assert found.remedy.endswith("kubectl get datavolume web -n vms -o yaml")


def test_a_quota_that_refuses_a_claim_is_named():
    text = (
        'persistentvolumeclaims "web" is forbidden: exceeded quota: storage, requested: '
        "requests.storage=60Gi, used: requests.storage=160Gi, limited: requests.storage=200Gi"
    )
    found = filled(phase="Pending", message=text, reason="ErrExceededQuota")

    begin = "its disk web is not filled, as its claim cannot be created: exceeded quota: storage"
    assert found.reason.startswith(f"{begin}, requested: requests.storage=60Gi")
    assert found.remedy == (
        "raise ResourceQuota storage to at least requests.storage 220Gi (up to 123.9Gi more while "
        "CDI fills it), or free at least 20Gi of requests.storage there: kubectl edit "
        "resourcequota storage -n vms"
    )


@pytest.mark.parametrize("phase", ["ImportInProgress", "WaitForFirstConsumer"])
def test_a_disk_that_is_being_filled_is_waited_for(phase):
    items = plain() + importing("web", phase)
    find(items, "Pod", "importer-web")["spec"]["nodeName"] = "w1"

    assert stuck(items, "web") is None


def test_a_young_disk_is_waited_for():
    items = [*plain(), *importing("web", "ImportScheduled"), pending("web-scratch", "gone")]
    find(items, "DataVolume", "web")["metadata"]["creationTimestamp"] = ago(minutes=2)

    assert stuck(items, "web") is None
