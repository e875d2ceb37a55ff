"""The storage class and the size of copies of disks, and the quantities in patches."""

from __future__ import annotations

import pytest

from tests.builders import manifest
from tests.forecasts.repair.broken_clusters import claim, cluster, node, storage_class
from virt_admit.forecasts.repair import disk_sizes, storage_classes
from virt_admit.forecasts.repair.repair_plan import DiskCopy
from virt_admit.model.kubernetes.quantities import parse_quantity

VIRT = {"storageclass.kubevirt.io/is-default-virt-class": "true"}
DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}
RWX, RWO = "ReadWriteMany", "ReadWriteOnce"


def topology(name, *zones):
    expression = {"key": "zone", "values": list(zones)}
    _, profile = storage_class(name)
    return [manifest("storage.k8s.io/v1", "StorageClass", name, provisioner="csi.example.com",
                     allowedTopologies=[{"matchLabelExpressions": [expression]}]),
                     profile]  # fmt: skip


def aged(name, day, **annotations):
    found = storage_class(name, RWX, **annotations)
    found[0].data["metadata"]["creationTimestamp"] = f"2027-01-0{day}T00:00:00Z"
    return found


NODES = [node("a", {"zone": "1"}), node("b", {"zone": "1"}), node("c", {"zone": "2"})]


@pytest.mark.parametrize(
    ("classes", "mode", "chosen"),
    [
        ([storage_class("mine", RWX), storage_class("a", RWX, **VIRT)], "Block", "mine"),
        (
            [
                storage_class("mine", RWO),
                storage_class("z", RWX, **VIRT),
                storage_class("a", RWX, **DEFAULT),
            ],
            "Block",
            "z",
        ),
        ([storage_class("z", RWX, **DEFAULT), storage_class("a", RWX)], "Block", "z"),
        # of two defaults the newest one, as CDI does
        ([aged("a", 1, **VIRT), aged("z", 2, **VIRT)], "Block", "z"),
        ([storage_class("z", RWX), storage_class("a", RWX)], "Block", "a"),
        ([storage_class("a", RWX, volume_mode="Filesystem")], "Filesystem", "a"),
        ([topology("a", "2"), storage_class("z", RWX)], "Block", "z"),
        ([topology("a", "1", "2"), storage_class("z", RWX)], "Block", "a"),
    ],
)
def test_the_class_of_a_copy(classes, mode, chosen):
    found = storage_classes.choose("mine", mode, cluster(*NODES, *classes, nodes=()))
    assert isinstance(found, storage_classes.SharedClass), found
    assert found.name == chosen


@pytest.mark.parametrize(
    "classes",
    [
        [],
        [storage_class("a", RWO)],
        # a disk in block mode never becomes a file
        [storage_class("a", RWX, volume_mode="Filesystem")],
        [topology("a", "2")],  # one node reaches it
    ],
)
def test_no_class_fits(classes):
    assert (
        storage_classes.choose("mine", "Block", cluster(*NODES, *classes, nodes=()))
        == f"no storage profile offers {RWX}"
    )


def sized(request, capacity):
    found, _volume = claim("root", size=capacity)
    found.data["spec"]["resources"]["requests"]["storage"] = request
    return disk_sizes.size(found)


@pytest.mark.parametrize(
    ("request_", "capacity", "expected"),
    [
        ("10Gi", "10Gi", 10 * disk_sizes.GIB),
        # kubevirt/kubevirt issue 15348: the request is smaller than the disk
        ("10G", "10Gi", 10 * disk_sizes.GIB),
        ("1G", "1G", 954 * disk_sizes.MIB),  # rounded up: a destination that is 1 % smaller fails
        ("10Gi", "10737418241", 10 * disk_sizes.GIB + disk_sizes.MIB),
    ],
)
def test_a_copy_is_never_smaller_than_its_disk(request_, capacity, expected):
    assert sized(request_, capacity) == expected >= parse_quantity(capacity, integers=True)


def claimed(bytes_, mode, *objects):
    return disk_sizes.of_claim(
        DiskCopy("shop", "root", "copy", "ceph", mode, bytes_), cluster(*objects)
    )


def cdi(release="v1.65.0", **overhead):
    config = {"filesystemOverhead": overhead} if overhead else {}
    return manifest(
        "cdi.kubevirt.io/v1beta1",
        "CDI",
        "cdi",
        spec={"config": config},
        status={"observedVersion": release},
    )


def test_the_least_size_of_a_class():
    _, profile = storage_class("ceph")
    profile.data["metadata"]["annotations"] = {disk_sizes.MINIMUM: "4Gi"}
    assert claimed(disk_sizes.GIB, "Block", profile) == 4 * disk_sizes.GIB
    assert claimed(8 * disk_sizes.GIB, "Block", profile) == 8 * disk_sizes.GIB


@pytest.mark.parametrize(
    ("bytes_", "objects", "expected"),
    [
        (2**30, [cdi()], 1138166334),  # ceil(2^30 * 1.06)
        (2**20 + 1, [cdi()], 2222982),  # aligned to 2 MiB first
        (2**30, [cdi("v1.62.0")], 1142278537),  # ceil(2^30 / 0.94)
        (2**30, [], 1142278537),  # the release is not known
        (2**30, [cdi(**{"global": "0.1"})], 1181116007),
        (2**30, [cdi(**{"global": "0.1", "storageClass": {"ceph": "0"}})], 2**30),
        (2**30, [cdi(**{"global": "10%"})], 1138166334),  # not valid
    ],
)
def test_a_file_system_gets_room_for_itself(bytes_, objects, expected):
    assert claimed(bytes_, "Filesystem", *objects) == expected
    assert claimed(bytes_, "Block", *objects) == bytes_


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (10 * 2**30, "10Gi"),
        (2048 * 2**30, "2Ti"),
        (1_536_000, "1500Ki"),
        (1_000_000_000, "1G"),
        (1_000_000_001, "1000000001"),
        (5, "5"),
        (0, "0"),
    ],
)
def test_quantities_are_written_as_the_api_server_writes_them(number, text):
    assert disk_sizes.quantity(number) == text
    assert parse_quantity(text, integers=True) == number
