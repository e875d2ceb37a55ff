"""Which objects name each other, and where a walk along the names ends."""

from __future__ import annotations

import pytest

from tests.builders import manifest
from virt_admit.model.evidence.mentions import Mentions

UID = "39a14956-ad74-475b-ae62-2092f90682fb"


def reached(start, *others):
    """The names of the objects that are reached from the first, with their distances."""
    found = Mentions((start, *others), {"shop"}).around([start])
    return {each.obj.name: each.distance for each in found if each.obj is not start}


VM = manifest("kubevirt.io/v1", "VirtualMachine", "db", "shop", spec={"claim": "db-root"})
CLAIM = manifest("v1", "PersistentVolumeClaim", "db-root", "shop", spec={"volumeName": "pvc-1"})


def test_a_chain_of_names_is_followed_in_both_directions():
    volume = manifest("v1", "PersistentVolume", "pvc-1", spec={"csi": {"volumeHandle": "handle-1"}})
    attachment = manifest(
        "storage.k8s.io/v1", "VolumeAttachment", "csi-1", spec={"source": {"name": "pvc-1"}}
    )
    own = manifest(
        "storage.example.com/v9", "Disk", "disk-7", "storage", status={"handle": "pvc-1"}
    )
    assert reached(VM, CLAIM, volume, attachment, own) == {
        "db-root": 1,
        "pvc-1": 2,
        "csi-1": 3,
        "disk-7": 3,
    }


def test_it_ends_after_four():
    chain = [
        manifest("example.com/v1", "Link", f"link-{i}", "shop", spec={"next": f"link-{i + 1}"})
        for i in range(8)
    ]
    assert reached(*chain) == {f"link-{i}": i for i in range(1, 5)}


@pytest.mark.parametrize(
    ("name", "labels"),
    [(f"tmp-pvc-{UID}", {}), ("tmp", {"cdi.kubevirt.io/OwnedByUID": UID})],
    ids=["name", "label"],
)
def test_a_uid_in_a_name_or_a_label_is_a_mention(name, labels):
    claim = manifest("v1", "PersistentVolumeClaim", "root", "shop", metadata={"uid": UID})
    other = manifest("v1", "PersistentVolumeClaim", name, "shop", metadata={"labels": labels})
    assert reached(claim, other) == {name: 1}


def test_a_message_names_objects():
    old = manifest(
        "example.com/v1", "Release", "a.v1", "shop", status={"message": "replaced by operator.v2."}
    )
    new = manifest("example.com/v1", "Release", "operator.v2", "shop")
    assert reached(old, new) == {"operator.v2": 1}


@pytest.mark.parametrize(
    "other",
    [
        manifest("v1", "PersistentVolumeClaim", "db-root", "bank"),
        manifest("v1", "ConfigMap", "db-root", "shop"),
        manifest("v1", "Node", "db-root"),
    ],
    ids=["another namespace", "a kind that reports nothing", "a node"],
)
def test_not_everything_with_the_name_is_meant(other):
    assert reached(VM, other) == {}


def test_a_reference_with_kind_and_namespace_means_just_that():
    spec = {"claimRef": {"kind": "PersistentVolumeClaim", "namespace": "bank", "name": "db-root"}}
    volume = manifest("v1", "PersistentVolume", "pvc-1", spec=spec)
    theirs = manifest("v1", "PersistentVolumeClaim", "db-root", "bank")
    same_name = manifest("example.com/v1", "Other", "db-root", "bank")
    found = Mentions((volume, theirs, same_name, CLAIM), {"shop", "bank"}).around([volume])
    assert next(each.obj for each in found if each.distance == 1) is theirs


def test_other_guests_are_no_part_of_it():
    other = manifest("kubevirt.io/v1", "VirtualMachine", "web", "shop", spec={"claim": "db-root"})
    owner = [{"kind": "VirtualMachineInstance", "name": "web", "controller": True}]
    pod = manifest(
        "v1", "Pod", "virt-launcher-web", "shop",
        metadata={"ownerReferences": owner}, spec={"claim": "db-root"},
    )  # fmt: skip
    own = manifest("kubevirt.io/v1", "VirtualMachineInstance", "db", "shop")
    assert set(reached(VM, CLAIM, other, pod, own)) == {"db-root", "db"}


def test_what_all_share_leads_nowhere():
    claim = manifest(
        "v1", "PersistentVolumeClaim", "db-root", "shop", spec={"class": "fast", "pool": "p-1"}
    )
    shared = manifest("storage.k8s.io/v1", "StorageClass", "fast")
    disks = [
        manifest("example.com/v1", "Disk", f"disk-{i}", "shop", spec={"class": "fast"})
        for i in range(3)
    ]
    pool = manifest("example.com/v1", "Pool", "p-1", "shop")
    many = [
        manifest("example.com/v1", "Part", f"part-{i}", "shop", spec={"of": "p-1"})
        for i in range(30)
    ]
    assert reached(claim, shared, *disks, pool, *many) == {"fast": 1, "p-1": 1}


def test_texts_name_objects_with_their_kinds():
    plan = manifest("upgrade.cattle.io/v1", "Plan", "agent", "system")
    job = manifest("batch/v1", "Job", "agent", "system")
    found = Mentions((plan, job), ()).named_in(["Plan system/agent has stopped: it waits."])
    assert found == [plan]


@pytest.mark.parametrize(
    "junk", [None, 7, "text", [["a"]], {"x": {"y": None}}, [None, {"name": 3}]]
)
def test_junk_is_no_name(junk):
    odd = manifest("example.com/v1", "Odd", "odd", "shop", spec=junk, status=junk)
    assert reached(odd, CLAIM) == {}


def test_a_deep_object_ends():
    deep: object = "db-root"
    for _ in range(5000):
        deep = [deep]
    assert reached(manifest("example.com/v1", "Odd", "odd", "shop", spec=deep), CLAIM) == {}
