"""Disks whose image does not fit although their claim is large enough, and what makes disks."""

import pytest

from tests.forecasts.drain.test_unfinished_disks import claim, disk, found, importer, template
from tests.healthy.parts import ago
from virt_admit.forecasts.drain.starts import unfinished_disks
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object


def volume(driver):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {"csi": {"driver": driver}},
    }


def of_part(
    size="4Gi",
    free=2 << 30,
    mode="Filesystem",
    templates=(),
    driver="driver.longhorn.io",
    image=7 << 29,
    **owned,
):
    """What is said of an image of 3.5 GiB that does not fit into the free space of a claim."""
    said = f"virtual image size {image} is larger than the reported available storage {free}"
    prime = claim(size, "Bound", "prime-u1")
    prime["spec"] |= {"volumeMode": mode, "volumeName": "pv"}
    prime["status"]["capacity"] = {"storage": size}
    filled = disk("ImportInProgress") | {}
    filled["metadata"] = filled["metadata"] | owned
    volumes = [volume(driver)] if driver else []
    return found(filled, claim(size), prime, importer(said), *volumes, templates=templates)


OF_VM = {"ownerReferences": [{"kind": "VirtualMachine", "name": "db", "controller": True}]}


def test_a_part_of_the_image_is_left_in_a_claim_that_is_large_enough():
    stuck = of_part(templates=[template("storage")], **OF_VM)
    assert (
        'pod importer-prime-u1 fails (restarted 11 times): "image size 3758096384 is larger than '
        'the reported available storage 2147483648", although claim prime-u1 has 4294967296: the '
        "rest of it is used, as by a part of the image that an interrupted attempt has left"
    ) in stuck.reason
    assert stuck.remedy == (
        "delete that DataVolume, which KubeVirt makes again from its VM: kubectl delete datavolume "
        "root -n shop"
    )


@pytest.mark.parametrize(
    "given",
    [
        {"size": "3Gi"},
        {"free": (7 << 29) - 1},
        {"mode": "Block"},
        {"size": "300Mi", "image": 280 << 20, "free": 228 << 20},
    ],
    ids=["a small claim", "the overhead of a file system", "a device", "the log of XFS"],
)
def test_an_image_that_does_not_fit_into_an_empty_claim(given):
    assert "a larger claim is not needed" not in of_part(**given).reason


@pytest.mark.parametrize(
    ("owned", "remedy"),
    [
        (OF_VM, "create DataVolume root again, with a new claim; it was not filled: kubectl get"),
        (
            {"ownerReferences": [{"kind": "Image", "name": "iso", "controller": True}]},
            "let Image iso make DataVolume root again, with a new claim; nothing is lost",
        ),
        ({}, "create DataVolume root again, with a new claim; it was not filled: kubectl get"),
    ],
    ids=["a VM without its template", "another owner", "no owner"],
)
def test_how_a_disk_with_a_part_of_its_image_is_made_again(owned, remedy):
    assert of_part(**owned).remedy.startswith(remedy)


@pytest.mark.parametrize("driver", ["", "file.csi.azure.com", "rook-ceph.cephfs.csi.ceph.com"])
def test_no_disk_is_made_again_that_may_share_its_file_system(driver):
    stuck = of_part(templates=[template("storage")], driver=driver, **OF_VM)
    assert "Its file system may be shared with other volumes" in stuck.reason
    assert stuck.remedy.startswith("free space on the file system of claim prime-u1")
    assert "delete" not in stuck.remedy
    ceph = of_part(templates=[template("storage")], driver="rook-ceph.rbd.csi.ceph.com", **OF_VM)
    assert ceph.remedy.startswith("delete that DataVolume")


OF_MIGRATION = {"ownerReferences": [{"kind": "Migration", "name": "move", "controller": True}]}
OF_CRON = {"labels": {"cdi.kubevirt.io/dataImportCron": "centos"}}


@pytest.mark.parametrize(
    ("owned", "maker"), [(OF_MIGRATION, "Migration move"), (OF_CRON, "DataImportCron centos")]
)
def test_size_and_source_are_corrected_in_what_makes_the_disk(owned, maker):
    small = of_part("3Gi", **owned).remedy
    assert small.startswith(f"let {maker} ask for at least 6Gi (its filesystem leaves 2Gi of")
    assert "and make DataVolume root again, which is empty" in small
    assert of_part(**owned).remedy.startswith(f"let {maker} make DataVolume root again")
    filled = disk("ImportInProgress", source={"registry": {"url": "docker://q/x"}})
    filled["metadata"] = filled["metadata"] | owned
    wrong = found(filled, claim(), importer("manifest unknown"))
    assert f"the address of the source of the disk in {maker}, which" in wrong.remedy


def test_the_pods_of_cdi_are_read_once_for_all_disks():
    class Counting(Snapshot):
        reads = 0

        def known(self, kind, namespace=None):
            self.reads += kind is kinds.POD and namespace is None
            return super().known(kind, namespace)

    every = []
    for number in range(10):
        own = disk("ImportInProgress")
        own["status"] |= {"restartCount": 9, "claimName": f"c{number}"}
        pod = importer("i/o timeout")
        pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = f"c{number}"
        every += [(own, f"d{number}"), (pod, f"importer-{number}")]
    for each, name in every:
        each["metadata"] = each["metadata"] | {"name": name}
    counting = Counting((Object(each) for each, _ in every), ["*"], time=ago())
    for own, name in every[::2]:
        stuck = unfinished_disks.failing(Object(own), counting)
        assert f"pod importer-{name[1:]} fails" in stuck.reason
    assert counting.reads <= 2
