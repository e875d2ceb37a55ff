"""Disks whose owner virt-handler may not change: the claim, the NFS export, and what ends it."""

import pytest

from tests.advice import risky
from tests.builders import NAMESPACE, complete, manifest
from virt_admit.forecasts.drain.states import stuck_starts
from virt_admit.forecasts.placement.components import refused_owners

SAID = (
    "preparing host-disks failed: chown "
    "/proc/7/root/var/run/kubevirt-private/vmi-disks/root/disk.img: operation not permitted"
)
WITHOUT_PATH = "preparing host-disks failed: chown /proc/self/fd/26: operation not permitted"
NFS = {"nfs": {"server": "192.0.2.1", "path": "/export"}}
BY_DRIVER = {
    "csi": {
        "driver": "nfs.csi.k8s.io",
        "volumeAttributes": {"server": "192.0.2.1", "share": "/export"},
    }
}
LOCAL = {"csi": {"driver": "csi.example"}}


def vmi(said=SAID, claims=("disk",)):
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        for name, claim in zip(("root", "data"), claims, strict=False)
    ]
    synchronized = {
        "type": "Synchronized",
        "status": "False",
        "reason": "Synchronizing with the Domain failed.",
        "message": said,
    }
    status = {"phase": "Scheduled", "nodeName": "w1", "conditions": [synchronized]}
    return manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        "web",
        NAMESPACE,
        spec={"volumes": volumes},
        status=status,
    )


def disk(name, **spec):
    bound = {"volumeName": f"pv-{name}", "storageClassName": "shared"}
    return [
        manifest("v1", "PersistentVolumeClaim", name, NAMESPACE, spec=bound),
        manifest("v1", "PersistentVolume", f"pv-{name}", spec=spec),
    ]


HANDLER = manifest(
    "v1",
    "Pod",
    "virt-handler-x",
    "kubevirt",
    metadata={"labels": {"kubevirt.io": "virt-handler"}},
    spec={"nodeName": "w1"},
    status={"phase": "Running"},
)


@pytest.mark.parametrize("spec", [NFS, BY_DRIVER])
def test_an_export_that_squashes_root_is_named_with_its_claim(spec):
    problem = stuck_starts.problem(vmi(), complete(*disk("disk", **spec), HANDLER))

    assert problem.reason == (
        f"virt-handler cannot start its guest: {SAID}. Volume root (claim disk, class shared) is "
        "on NFS 192.0.2.1:/export, "
        "which lets root change no owner, as an export with root_squash does"
    )
    assert problem.remedy == (
        "export that path with no_root_squash, or give the files there to user and group 107 "
        "(qemu); virt-handler tries "
        "again: kubectl describe persistentvolume pv-disk"
    )
    assert not risky(problem.remedy)


def test_other_storage_is_not_called_an_export():
    found = refused_owners.of(vmi(), SAID, complete(*disk("disk", **LOCAL)))

    assert (
        found.reason
        == "the storage of volume root (claim disk, class shared) lets root change no owner"
    )


def test_without_a_path_the_only_volume_on_nfs_is_meant():
    claims = ("disk", "data")
    one = refused_owners.of(
        vmi(claims=claims), WITHOUT_PATH, complete(*disk("disk", **LOCAL), *disk("data", **NFS))
    )
    both = refused_owners.of(
        vmi(claims=claims), WITHOUT_PATH, complete(*disk("disk", **NFS), *disk("data", **NFS))
    )

    assert one.reason.startswith("volume data (claim data, class shared) is on NFS")
    assert both is None


def test_a_file_that_qemu_may_not_open():
    said = (
        'server error. command SyncVMI failed: "Could not open '
        "'/var/run/kubevirt-private/vmi-disks/root/disk.img': Permission denied\""
    )
    found = refused_owners.of(vmi(said), said, complete(*disk("disk", **NFS)))

    assert found.reason == (
        "volume root (claim disk, class shared) is on NFS 192.0.2.1:/export, where user 107 (qemu) "
        "may not open its file"
    )
    assert found.remedy.startswith(
        "give the files there to user and group 107 (qemu); KubeVirt tries"
    )
    assert refused_owners.of(vmi(said), said, complete(*disk("disk", **LOCAL))) is None


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("failed to mount", "see what virt-handler on w1, which fails, logs about it"),
        ('server error. command SyncVMI failed: "x"', "see what its launcher logs about it"),
    ],
)
def test_the_component_that_fails_is_to_be_asked(said, remedy):
    problem = stuck_starts.problem(vmi(said), complete(*disk("disk", **NFS), HANDLER))

    assert problem.remedy.startswith(remedy)
