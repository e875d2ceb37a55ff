"""VMs that Piraeus' high-availability controller frees from a lost node."""

import copy

import pytest

from tests.builders import KUBEVIRT, complete, manifest, owned_by, vmi
from tests.rules.test_rules import ask
from virt_admit.forecasts.placement.components.linstor import failovers
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rules import load_rules

DRBD = "property.linstor.csi.linbit.com/DrbdOptions"
LAYERS = "linstor.csi.linbit.com/layerList"
CLAIM = {"name": "root", "persistentVolumeClaim": {"claimName": "root"}}


def objects():
    guest = vmi(metadata={"uid": "v"}, status={"phase": "Running", "nodeName": "a"})
    owner = [each | {"uid": "v"} for each in owned_by("VirtualMachineInstance")]
    return {
        "vmi": guest,
        "pod": manifest(
            "v1",
            "Pod",
            "launcher",
            "shop",
            metadata={"ownerReferences": owner, "annotations": {}},
            spec={"nodeName": "a", "volumes": [{"name": "private", "emptyDir": {}}, CLAIM]},
            status={"phase": "Running"},
        ),
        "claim": manifest("v1", "PersistentVolumeClaim", "root", "shop", spec={"volumeName": "pv"}),
        "pv": manifest(
            "v1",
            "PersistentVolume",
            "pv",
            spec={"csi": {"driver": "linstor.csi.linbit.com"}, "storageClassName": "replicated"},
        ),
        "class": manifest(
            "storage.k8s.io/v1",
            "StorageClass",
            "replicated",
            parameters={"linstor.csi.linbit.com/autoPlace": "3", LAYERS: "drbd storage"},
        ),
        "agents": manifest(
            "apps/v1",
            "DaemonSet",
            "ha-controller",
            "piraeus",
            spec={
                "template": {
                    "spec": {"containers": [{"image": "quay.io/x/piraeus-ha-controller:v1.3.1"}]}
                }
            },
            status={"desiredNumberScheduled": 3, "numberReady": 3},
        ),
    }


def found(which="", path="", value=None):
    made = objects()
    if which:
        data = copy.deepcopy(made[which].data)
        *steps, last = path.split("|")
        inner = data
        for step in steps:
            inner = inner[int(step) if step.isdigit() else step]
        inner[last] = value
        made[which] = Object(data)
    return failovers.of_vmi(made["vmi"], complete(*made.values()))


def test_pods_with_replicated_volumes_are_freed():
    assert found()[:2] == ("Piraeus' HA controller (DaemonSet piraeus/ha-controller)", "")


@pytest.mark.parametrize(
    ("which", "path", "value"),
    [
        ("class", "parameters", {"autoPlace": "1"}),
        ("class", "parameters", {"autoPlace": "2", f"{DRBD}/auto-add-quorum-tiebreaker": "False"}),
        ("class", "parameters", {"autoPlace": "3", LAYERS: "storage"}),
        ("class", "parameters", {"autoPlace": "3", f"{DRBD}/auto-quorum": "disabled"}),
        ("pv", "spec|csi", {"driver": "rbd.csi.ceph.com"}),
        ("pod", "spec|volumes", [CLAIM, {"name": "disk", "hostPath": {"path": "/disk"}}]),
        ("pod", "spec|volumes", [{"name": "private", "emptyDir": {}}]),
        ("pod", "metadata|annotations", {"drbd.linbit.com/ignore-fail-over": ""}),
        ("pod", "status|phase", "Pending"),
        ("agents", "status|numberReady", 1),
        ("agents", "spec|template|spec|containers", [{"image": "linstor-csi"}]),
    ],
)
def test_others_stay(which, path, value):
    assert found(which, path, value) is None


@pytest.mark.parametrize(
    ("which", "path", "value", "unsure"),
    [
        ("class", "parameters", {"resourceGroup": "r"}, "how many copies LINSTOR keeps"),
        ("pv", "spec|storageClassName", "gone", "how many copies LINSTOR keeps"),
        ("agents", "status|numberReady", 2, "acts with 2 of 3 pods ready"),
        (
            "agents",
            "status",
            {"desiredNumberScheduled": 2, "numberReady": 2},
            "whether volumes have a quorum",
        ),
    ],
)
def test_what_is_not_certain(which, path, value, unsure):
    assert unsure in found(which, path, value).unsure


def test_a_vm_that_migrates():
    made = objects()
    target = copy.deepcopy(made["pod"].data)
    target["metadata"]["name"], target["spec"]["nodeName"] = "target", "b"
    every = complete(*made.values(), Object(target))
    assert "whose migration has not ended" in failovers.of_vmi(made["vmi"], every).unsure
    # that passes, so a node at rest is not said to lack data
    rule = next(each for each in load_rules() if each.id == "node-without-health-check")
    owner = manifest(KUBEVIRT, "VirtualMachine", "db", "shop", spec={"runStrategy": "Always"})
    node = manifest("v1", "Node", "a")
    known = [each.data for each in (*made.values(), Object(target), node, owner)]
    assert ask(rule, {"object": node.data, "cluster": known})[0].unseen == ()


@pytest.mark.parametrize(
    ("driver", "mode", "copies", "stays"),
    [
        ("rbd.csi.ceph.com", "ReadWriteOnce", "", True),
        ("nfs.csi.k8s.io", "ReadWriteMany", "", False),
        ("linstor.csi.linbit.com", "ReadWriteOnce", "replicated", False),
        ("linstor.csi.linbit.com", "ReadWriteOnce", "single", True),
    ],
)
def test_a_hotplugged_volume_may_stay_on_the_lost_node(driver, mode, copies, stays):
    made = objects()
    plugged = {"name": "data", "persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}
    made["vmi"].data["spec"]["volumes"] = [CLAIM, plugged]
    volume = {"csi": {"driver": driver}, "accessModes": [mode], "storageClassName": copies}
    more = [
        manifest("v1", "PersistentVolumeClaim", "data", "shop", spec={"volumeName": "pv-2"}),
        manifest("v1", "PersistentVolume", "pv-2", spec=volume),
        manifest("storage.k8s.io/v1", "StorageClass", "single", parameters={"autoPlace": "1"}),
    ]
    freed = failovers.of_vmi(made["vmi"], complete(*made.values(), *more))
    assert freed.unsure == ("whether hotplugged claim data leaves the lost node" if stays else "")
