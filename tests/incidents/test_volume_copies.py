"""A migration that copies disks to other claims: what is copied, who asked,
and what a loss of its node means.
"""

import pytest

from tests.healthy.clusters import plain

from .machines import find, guest, migration

ASKED = {"kubevirt.io/workloadUpdateMigration": ""}


def copying(more=()):
    """Return a VM on w1 that migrates to w2 with its disk, from claim old to claim web; ``more``:
    further claims.
    """
    items = plain() + guest("web", "w1", disks=["web", *more])
    vmi = find(items, "VirtualMachineInstance", "web")
    move = migration("web", {"Pending": 40, "Running": 30}, notes=ASKED, state={})
    state = {
        "migrationUid": move["metadata"]["uid"],
        "sourceNode": "w1",
        "targetNode": "w2",
        "targetPod": "virt-launcher-web-x",
        "startTimestamp": move["metadata"]["creationTimestamp"],
        "mode": "PreCopy",
    }
    claims = {"sourcePVCInfo": {"claimName": "old"}, "destinationPVCInfo": {"claimName": "web"}}
    vmi["status"]["migratedVolumes"] = [{"volumeName": vmi["spec"]["volumes"][0]["name"], **claims}]
    vmi["status"]["conditions"].append({"type": "VolumesChange", "status": "True"})
    vmi["status"]["migrationState"] = state
    return [*items, move]


def test_the_disk_is_copied_for_a_change_of_volumes(ask):
    said = ask(copying(), "explain", "vm/web")

    assert "its disks and its memory are being copied (not by a drain)" in said
    assert "a change of its volumes" in said
    assert "update of KubeVirt asked" not in said
    assert "copies claim old to web" in said
    assert "attached to both nodes" not in said
    assert "not complete: the guest runs on old" in said
    assert "name the former claims in the VM again" in said


def test_a_disk_that_is_not_copied_is_on_both_nodes(ask):
    assert "claim logs is attached to both nodes" in ask(copying(["logs"]), "explain", "vm/web")


def test_no_vm_starts_from_a_copy_that_is_not_complete(ask):
    said = ask(copying(), "outage", "w1")

    assert (
        "its disks are being copied (claim old to web), and KubeVirt starts no VM from such a copy"
        in said
    )
    assert "name old in the VM again, which has the data" in said


def test_a_release_that_is_not_known_may_start_it(ask):
    """KubeVirt before 1.4.1 starts the VM from the copy, so that it has to be changed before."""
    items = [each for each in copying() if each["kind"] != "KubeVirt"]
    said = ask(items, "explain", "vm/web")

    assert "KubeVirt before 1.4.1 starts it from the copy" in said
    assert "name old in the VM again before that" in said


@pytest.mark.parametrize("ended", [True, False])
def test_nothing_of_it_stays_after_the_change(ask, ended):
    items = copying()
    vmi = find(items, "VirtualMachineInstance", "web")
    if ended:
        vmi["status"]["conditions"].pop()
    else:
        del vmi["status"]["migratedVolumes"]
    said = ask(items, "explain", "vm/web")

    assert "not complete" not in said
    assert "KubeVirt starts no VM" not in said
    assert "its memory is being copied" in said
