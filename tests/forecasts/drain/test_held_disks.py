"""A guest that does not start because another process has the image of its disk open."""

import pytest

from tests.builders import manifest
from tests.forecasts.drain.vm_motion import ago, cluster, launcher, vmi
from virt_admit.forecasts.drain.guests import held_disks
from virt_admit.forecasts.drain.states import stuck_starts
from virt_admit.forecasts.outage.restarts import fates
from virt_admit.model.messages import command_of

IMAGE = "/var/run/kubevirt-private/vmi-disks/data/disk.img"
LIBVIRT = (
    """server error. command SyncVMI failed: "LibvirtError(Code=1, Domain=10, Message='internal """
    "error: process exited while connecting to monitor: 2027-03-01T10:04:31.136803Z qemu-kvm: "
    '-device {\\"driver\\":\\"virtio-blk-pci\\",\\"id\\":\\"ua-data\\"}: Failed to get \\"write\\" '
    f"lock\\nIs another process using the image [{IMAGE}]?')\""
)


def spec(claim="common", shareable=None):
    disk = {"name": "data"} | ({} if shareable is None else {"shareable": shareable})
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    domain = {"devices": {"disks": [{"name": "rootdisk"}, disk]}}
    return {
        "domain": domain,
        "volumes": [{"name": "rootdisk", "dataVolume": {"name": "root"}}, volume],
    }


def starting(said=LIBVIRT, on="a", **fields):
    failing = {
        "type": "Synchronized",
        "status": "False",
        "message": said,
        "reason": "Synchronizing with the Domain failed.",
    }
    stamps = [{"phase": "Scheduled", "phaseTransitionTimestamp": ago(1500)}]
    return vmi(
        on=on,
        phase="Scheduled",
        conditions=[failing],
        phaseTransitionTimestamps=stamps,
        spec=spec(**fields),
    )


def problem(*others, **fields):
    own = starting(**fields)
    return stuck_starts.problem(own, cluster(own, launcher(age=1500), *others))


def test_the_claim_and_the_vm_that_uses_it_are_named():
    found = problem(vmi("web", on="b", spec=spec()))

    assert (
        "no lock on disk data (claim shop/common), which the running VM shop/web on b uses too"
        in found.reason
    )
    assert found.reason.endswith("neither disk is shareable")
    assert "stop shop/web first, or set shareable: true" in found.remedy
    assert found.remedy.endswith("kubectl edit vm db -n shop")


@pytest.mark.parametrize(
    ("own", "other", "words"),
    [
        (True, None, "; the disk there is not shareable"),
        (None, True, "; only the disk there is shareable"),
        (True, True, "uses too"),
    ],
)
def test_which_disk_is_not_shareable(own, other, words):
    reason = problem(vmi("web", on="b", spec=spec(shareable=other)), shareable=own).reason
    assert reason.endswith(words)


@pytest.mark.parametrize(
    "said",
    [
        'Failed to get shared "write" lock Is another process using the image [/dev/data]?',
        'Failed to get "consistent read" lock: [/var/run/kubevirt/hotplug-disks/data.img]',
        'device ua-data: Failed to get "write" lock',
    ],
)
def test_the_volume_is_known_by_its_image_or_its_alias(said):
    assert "shop/web" in problem(vmi("web", on="b", spec=spec()), said=said).reason


@pytest.mark.parametrize(
    "other",
    [
        vmi("web", on="b", spec=spec("another")),
        vmi("web", on="b", phase="Scheduled", spec=spec()),
        vmi("web", on="b", phase="Succeeded", spec=spec()),
    ],
)
def test_a_vm_without_a_guest_on_the_claim_is_not_accused(other):
    found = problem(other)

    assert "shop/web" not in found.reason
    assert "claim shop/common" in found.reason
    assert "no other pod that was read uses the claim" in found.reason


def test_an_error_without_a_lock_names_no_other_vm():
    found = problem(
        vmi("web", on="b", spec=spec()), said="server error. command SyncVMI failed: no memory"
    )
    assert "shop/web" not in found.reason


def test_a_pod_that_is_not_of_a_vm_is_named():
    tools = launcher("tools", on="b", suffix="x").data
    tools["metadata"] = tools["metadata"] | {
        "labels": {},
        "ownerReferences": [],
        "name": "libguestfs-tools",
    }
    tools["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "common"}}]
    found = problem(type(starting())(tools))
    assert "which pod shop/libguestfs-tools on b uses too" in found.reason
    assert found.remedy.endswith("kubectl describe pod libguestfs-tools -n shop")


def lost_node(ready="Unknown"):
    return manifest("v1", "Node", "b", status={"conditions": [{"type": "Ready", "status": ready}]})


def earlier(on="b"):
    """A pod of the VM itself, with the guest that it had before."""
    pod = launcher(on=on, suffix="old").data
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "common"}}]
    return type(starting())(pod)


def test_its_own_guest_on_a_lost_node_has_the_image():
    found = problem(earlier(), lost_node())

    assert "pod shop/virt-launcher-db-old on b (does not report) uses too" in found.reason
    assert "first make sure that b is off, or has been fenced" in found.remedy
    assert command_of(found.remedy) == "virt-admit explain node/b"
    assert held_disks.is_held_elsewhere(
        starting(), LIBVIRT, cluster(starting(), earlier(), lost_node())
    )


def test_an_earlier_pod_on_a_node_that_reports_is_awaited():
    found = problem(earlier(), lost_node("True"))
    assert found.remedy.startswith("wait until pod shop/virt-launcher-db-old on b has ended")
    assert "no other pod that was read" in problem(earlier("a")).reason


def test_no_pod_is_ended_where_nothing_reports():
    assert "to be confirmed to be off, or fenced" in problem().remedy


@pytest.mark.parametrize(("node", "stays"), [("b", True), ("a", False)])
def test_the_loss_of_the_node_frees_only_what_is_held_on_it(node, stays):
    own, other = starting(), vmi("web", on=node, spec=spec())
    fate = fates.fate(own, cluster(own, other, launcher(age=1500)))

    assert (fate.outcome == "stays off") is stays
    assert held_disks.is_held_elsewhere(own, LIBVIRT, cluster(own, other)) is stays


def test_an_error_of_libvirt_is_shown_without_marks_of_quoting():
    said = stuck_starts.unsynchronized(starting())
    assert '\\"' not in said
    assert said.endswith(
        f'device ua-data: Failed to get "write" lock Is another process using the image [{IMAGE}]?'
    )
