"""VMs whose next start boots another disk: nothing may restart them."""

import json

import pytest

from tests import builders
from tests.forecasts.drain.test_vm_states import LAUNCHER, row
from tests.forecasts.drain.vm_motion import cluster, vmi
from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import VM, VMI

OLD = {"name": "root", "persistentVolumeClaim": {"claimName": "old"}}
REQUIRED = {"type": "RestartRequired", "status": "True"}
NEW = {"name": "root", "dataVolume": {"name": "new"}}


def vm(*volumes, **spec):
    return builders.vm(
        {"spec": {"domain": {}, "volumes": list(volumes)}}, name="db", runStrategy="Always", **spec
    )


def running(strategy="LiveMigrate", **spec):
    refused = {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}
    return vmi(
        reported=False,
        spec={"evictionStrategy": strategy, "volumes": [OLD]} | spec,
        conditions=[refused],
    )


@pytest.mark.parametrize("strategy", ["LiveMigrate", "LiveMigrateIfPossible", "None"])
def test_no_remedy_of_a_drain_restarts_it(strategy):
    found = row(cluster(running(strategy), LAUNCHER, vm(NEW)))

    assert found.remedy.startswith(
        "do not restart it, or let a drain shut it down: its next start boots 'new'"
    )
    assert not any(word in found.remedy for word in ("virtctl", "evictionStrategy"))
    steps = json.loads(found.remedy.partition("-p '")[2].partition("'")[0])
    assert steps[1] == {"op": "replace", "path": "/spec/template/spec/volumes/0", "value": OLD}
    if strategy != "LiveMigrate":
        assert "its next start boots 'new' instead of 'old'" in found.reason


def test_the_same_disks_keep_the_remedy():
    same = vm({"name": "root", "dataVolume": {"name": "old"}})

    assert "virtctl restart db" in row(cluster(running(), LAUNCHER, same)).remedy


@pytest.mark.parametrize(
    ("named", "guest"),
    [
        (vm(NEW, updateVolumesStrategy="Replacement"), running()),
        (
            vm(NEW),
            running(domain={"devices": {"disks": [{"name": "root", "cdrom": {"bus": "sata"}}]}}),
        ),
    ],
)
def test_an_intended_exchange_and_a_cdrom_keep_the_remedy(named, guest):
    world = cluster(guest, LAUNCHER, named)
    found = row(world)

    assert "virtctl restart db" in found.remedy
    assert "do not restart" not in found.remedy
    for each in (*world.known(VM), *world.known(VMI)):
        assert not changed_disks.brief(each, world)
        assert not changed_disks.of_either(each, world)


def test_a_template_that_no_volume_uses_any_more_needs_an_edit():
    world = cluster(running(), vm(NEW, dataVolumeTemplates=[{"metadata": {"name": "new"}}]))
    known = next(iter(world.known(VM)))

    assert changed_disks.command(known, world) == "kubectl edit vm db -n shop"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("wait until it has started", True),
        ("restart the container runtime of n2", True),
        ("see the events: kubectl describe vmi restart-it -n shop", True),
        ("move another one: virtctl stop web -n shop", True),
        ("repair claim root, and do not stop the VM before", True),
        ("restart the VM", False),
        ("unplug the volume, or start it again: virtctl restart db -n shop", False),
    ],
)
def test_only_what_ends_the_guest_has_the_warning(text, kept):
    world = cluster(running(), vm(NEW))

    assert (changed_disks.safe(text, running(), world) == text) is kept


def test_the_other_remedy_stays_behind_the_warning():
    text = (
        "repair the driver of n2 (kubectl describe node n2), or restart the VM (virtctl restart "
        "db): virtctl stop db"
    )
    found = changed_disks.safe(text, running(), cluster(running(), vm(NEW)))

    assert found.startswith(
        "do not restart it, or let a drain shut it down: its next start boots 'new'"
    )
    assert ": kubectl patch" in found
    assert found.endswith(
        "; after that, repair the driver of n2 (kubectl describe node n2), or restart the VM"
    )
    assert "virtctl" not in found


def test_the_cause_of_a_refused_move_is_said():
    text = "cannot migrate the VM. The volume data is RWO and not included in the migration volumes"
    stays = vm(
        NEW,
        updateVolumesStrategy="Migration",
        status={"conditions": [REQUIRED | {"message": text}]},
    )

    assert (
        "(nothing is copied: volume 'data' is ReadWriteOnce and not part of the move"
        in row(cluster(running(), LAUNCHER, stays)).remedy
    )


@pytest.mark.parametrize(
    ("volume", "release", "told"),
    [
        ("persistent-state-for-db-x", "v1.4.0", True),
        ("persistent-state-for-db-x", "v1.4.1", False),
        ("data", "v1.4.0", False),
    ],
    ids=["old release", "release that moves it", "another volume"],
)
def test_how_the_disks_are_copied_after_an_update_is_said(volume, release, told):
    """kubevirt/kubevirt#13582."""
    text = f"cannot migrate the VM. The volume {volume} is RWO and not included in the migration"
    status = {"conditions": [REQUIRED | {"message": text}]}
    stays = vm(NEW, updateVolumesStrategy="Migration", status=status)
    kubevirt = builders.kubevirt(status={"observedKubeVirtVersion": release})
    known = Snapshot([stays, running(), kubevirt], ["*"])

    found = changed_disks.remedy(running(), known)
    later = "; then update KubeVirt to 1.4.1 or later and ask for the copy again, or clone"
    assert (later in found) is told


def brief_and_command(copied=True, complete=("*",)):
    volumes = {
        "volumeUpdateState": {"volumeMigrationState": {"migratedVolumes": [{"volumeName": "root"}]}}
    }
    status = volumes if copied else {"conditions": []}
    named = vm(NEW, updateVolumesStrategy="Migration", status=status)
    guest = running()
    known = Snapshot([named, guest], list(complete))
    return (
        [changed_disks.brief(each, known) for each in (named, guest)],
        changed_disks.command(guest, known),
        (changed_disks.of_either(guest, known)),
    )


def test_disks_that_kubevirt_copies_are_no_fault():
    said, command, found = brief_and_command()

    assert set(said) == {"Do not restart it before KubeVirt has copied claim 'old'."}
    assert not command
    assert not found


def test_a_copy_that_cannot_be_excluded_gets_no_command():
    said, command, found = brief_and_command(
        copied=False,
        complete=("virtualmachines.kubevirt.io", "virtualmachineinstances.kubevirt.io"),
    )

    assert set(said) == {"Do not restart it before the VM names claim 'old' of its guest again."}
    assert not command
    assert found
