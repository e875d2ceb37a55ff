"""The storage class and the size of copies of disks, and the quantities in patches."""

from __future__ import annotations

import pytest

from tests.builders import manifest
from tests.forecasts.repair.broken_clusters import claim, cluster, node, storage_class
from virt_admit.forecasts.repair import disk_sizes, storage_classes
from virt_admit.model.kubernetes.quantities import parse_quantity

VIRT = {"storageclass.kubevirt.io/is-default-virt-class": "true"}
DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}
RWX, RWO = "ReadWriteMany", "ReadWriteOnce"


def topology(name, *zones):
    expression = {"key": "zone", "values": list(zones)}
    _, profile = storage_class(name)
    return [manifest("storage.k8s.io/v1", "StorageClass", name, provisioner="csi.example.com",
                     allowedTopologies=[{"matchLabelExpressions": [expression]}]), profile]  # fmt: skip


NODES = [node("a", {"zone": "1"}), node("b", {"zone": "1"}), node("c", {"zone": "2"})]


@pytest.mark.parametrize(
    ("classes", "mode", "chosen"),
    [
        ([storage_class("mine", RWX), storage_class("a", RWX, **VIRT)], "Block", "mine"),
        (
            [storage_class("mine", RWO), storage_class("z", RWX, **VIRT), storage_class("a", RWX, **DEFAULT)],
            "Block",
            "z",
        ),
        ([storage_class("z", RWX, **DEFAULT), storage_class("a", RWX)], "Block", "z"),
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
        [storage_class("a", RWX, volume_mode="Filesystem")],  # a disk in block mode never becomes a file
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
    return disk_sizes.size(found, "ceph", cluster(storage_class("ceph")))


@pytest.mark.parametrize(
    ("request_", "capacity", "expected"),
    [
        ("10Gi", "10Gi", 10 * disk_sizes.GIB),
        ("10G", "10Gi", 10 * disk_sizes.GIB),  # kubevirt/kubevirt issue 15348: the request is smaller than the disk
        ("1G", "1G", 954 * disk_sizes.MIB),  # rounded up: a destination that is 1 % smaller fails
        ("10Gi", "10737418241", 10 * disk_sizes.GIB + disk_sizes.MIB),
    ],
)
def test_a_copy_is_never_smaller_than_its_disk(request_, capacity, expected):
    assert sized(request_, capacity) == expected >= parse_quantity(capacity, integers=True)


def test_the_least_size_of_a_class():
    least = storage_class("ceph", **{disk_sizes.MINIMUM: "4Gi"})
    assert disk_sizes.size(claim("root", size="1Gi")[0], "ceph", cluster(least)) == 4 * disk_sizes.GIB


@pytest.mark.parametrize(
    ("bytes_", "claimed"),
    [
        (2**30, 1142278537),  # ceil(2^30 / 0.94)
        (10 * 2**30, 11422785362),
        (2**20 + 1, 2231013),  # aligned to 2 MiB first
    ],
)
def test_a_file_system_gets_room_for_itself(bytes_, claimed):
    assert disk_sizes.of_claim(bytes_, "Filesystem") == claimed
    assert disk_sizes.of_claim(bytes_, "Block") == bytes_


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
