"""What ``virt-admit explain vm/NAME`` says about restores of a VM that do not end."""

from __future__ import annotations

import pytest

from tests.builders import manifest
from tests.cli.explain_vm_cases import WORLD, Explainer
from tests.forecasts.drain.vm_motion import NOW

MADE = "2020-01-01T00:00:00Z"
_REFUSED = 'admission webhook "guard.example.com" denied the request: no owner label'


@pytest.fixture
def explain(tmp_path):
    return Explainer(tmp_path)


def _restore(target: str, **status: object):
    return manifest(
        "snapshot.kubevirt.io/v1beta1",
        "VirtualMachineRestore",
        "again",
        "shop",
        metadata={"creationTimestamp": MADE},
        spec={
            "target": {"kind": "VirtualMachine", "name": target},
            "virtualMachineSnapshotName": "monday",
        },
        status=status,
    )


def _refused(target: str):
    refused = {"type": "Progressing", "status": "False", "reason": _REFUSED}
    return _restore(target, complete=False, conditions=[refused])


def test_the_source_of_a_restore_that_a_webhook_refuses(explain):
    source = {"source": {"kind": "VirtualMachine", "name": "db"}}
    snapshot = manifest(
        "snapshot.kubevirt.io/v1beta1", "VirtualMachineSnapshot", "monday", "shop", spec=source
    )
    _, data = explain(*WORLD, snapshot, _refused("twin"))
    (note,) = data["notes"]
    assert note.startswith("VirtualMachineRestore again: for ")
    assert (
        "cannot create VM twin: webhook guard.example.com denied the request: no owner label"
        in note
    )
    assert note.endswith("kubectl describe virtualmachinerestore again -n shop")


def test_a_restore_of_another_vm_is_no_note(explain):
    _, data = explain(*WORLD, _refused("twin"))
    assert data["notes"] == []


def test_a_vm_that_a_refused_restore_is_to_create(explain):
    code, text = explain(
        *WORLD, _refused("twin"), target="vm/twin", flags=("-n", "shop"), form="text"
    )
    assert code == 1
    assert "vm/twin in namespace shop does not exist. VirtualMachineRestore again: for " in text
    assert "no owner label" in text


def test_a_vm_that_a_restore_locks_is_not_to_be_started(explain):
    status = {"restoreInProgress": "again", "printableStatus": "Stopped"}
    vm = manifest(
        "kubevirt.io/v1",
        "VirtualMachine",
        "db",
        "shop",
        spec={"runStrategy": "Halted", "template": {"spec": {}}},
        status=status,
    )
    flags = ("-n", "shop")
    _, text = explain(*WORLD[:2], vm, _refused("db"), flags=flags, form="text")
    assert "KubeVirt does not start it before restore again ends: for " in text
    assert "no owner label" in text
    assert "virtctl start" not in text


def restoring(claim, *, complete=False):
    """Return a VM that Harvester has stopped to restore it with this claim."""
    vm = manifest(
        "kubevirt.io/v1",
        "VirtualMachine",
        "db",
        "shop",
        metadata={"annotations": {"restore.harvesterhci.io/name": "back"}},
        spec={
            "runStrategy": "Halted",
            "template": {
                "spec": {"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": claim}}]}
            },
        },
        status={
            "printableStatus": "Stopped",
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": MADE}],
        },
    )
    restore = manifest(
        "harvesterhci.io/v1beta1",
        "VirtualMachineRestore",
        "back",
        "shop",
        metadata={"creationTimestamp": MADE},
        spec={"target": {"kind": "VirtualMachine", "name": "db"}},
        status={
            "complete": complete,
            "restores": [{"persistentVolumeClaimSpec": {"metadata": {"name": claim}}}],
        },
    )
    return [*WORLD[:2], vm, restore]


@pytest.mark.parametrize(
    ("mode", "complete", "told", "starts"),
    [
        ("WaitForFirstConsumer", False, "so both wait for each other without end", True),
        ("Immediate", False, "and is under way for ", False),
        ("WaitForFirstConsumer", True, "as it is meant to be: with run strategy Halted", True),
    ],
)
def test_a_vm_that_harvester_restores_is_off_for_that(explain, mode, complete, told, starts):
    claim = manifest(
        "v1",
        "PersistentVolumeClaim",
        "new",
        "shop",
        spec={"storageClassName": "late"},
        status={"phase": "Pending"},
    )
    late = manifest("storage.k8s.io/v1", "StorageClass", "late", volumeBindingMode=mode)
    objects = restoring("new", complete=complete)
    _, text = explain(*objects, claim, late, flags=("-n", "shop"), form="text")

    assert told in text
    assert ("virtctl start" in text) is starts
    assert ("VirtualMachineRestore back of Harvester" in text) is not complete


def test_a_claim_that_a_provisioner_refuses_keeps_a_restore_of_harvester(explain):
    new = {"kind": "PersistentVolumeClaim", "name": "new", "namespace": "shop"}
    claim = manifest(
        *("v1", "PersistentVolumeClaim", "new", "shop"),
        spec={"storageClassName": "fast"},
        status={"phase": "Pending"},
    )
    fast = manifest("storage.k8s.io/v1", "StorageClass", "fast", provisioner="csi.example")
    refused = manifest(
        *("v1", "Event", "e", "shop"),
        involvedObject=new,
        type="Warning",
        reason="ProvisioningFailed",
        message="out of space",
        lastTimestamp=NOW,
    )
    _, text = explain(*restoring("new"), claim, fast, refused, flags=("-n", "shop"), form="text")

    why = " ".join(text.split())
    assert "has set it to Halted, and is under way for " in why
    assert ", and claim new is Pending: out of space" in why
    assert "correct what provisioner csi.example refuses" in why
    _, text = explain(*restoring("other"), claim, fast, refused, flags=("-n", "shop"), form="text")
    assert "claim new is Pending" not in " ".join(text.split())
