"""What ``virt-admit explain vm/NAME`` repeats of the statuses that KubeVirt and CDI write."""

from __future__ import annotations

import pytest

from tests.builders import manifest
from tests.cli.explain_vm_cases import WORLD, Explainer
from virt_admit.model.kubernetes.objects import Object


@pytest.fixture
def explain(tmp_path):
    return Explainer(tmp_path)


def changed(kind: str, **status: object) -> tuple[Object, ...]:
    """Return the world with further fields in the status of the explained VM or VMI."""
    return tuple(
        Object({**obj.data, "status": {**(obj.data.get("status") or {}), **status}})
        if (obj.kind, obj.name) == (kind, "db")
        else obj
        for obj in WORLD
    )


def test_a_snapshot_that_is_under_way(explain):
    snapshot = manifest(
        "snapshot.kubevirt.io/v1beta1",
        "VirtualMachineSnapshot",
        "nightly",
        "shop",
        status={
            "phase": "InProgress",
            "conditions": [
                {
                    "type": "Progressing",
                    "status": "True",
                    "lastTransitionTime": "2026-11-22T04:00:00Z",
                }
            ],
            "error": {"message": "guest-fsfreeze-freeze failed"},
        },
    )
    _, data = explain(*changed("VirtualMachine", snapshotInProgress="nightly"), snapshot)
    assert data["notes"] == [
        (
            "snapshot nightly is in progress since 2026-11-22T04:00:00Z (guest-fsfreeze-freeze "
            "failed), and locks the VM: kubectl describe virtualmachinesnapshot nightly -n shop"
        )
    ]
    _, text = explain(*changed("VirtualMachine", snapshotInProgress="nightly"), form="text")
    assert (
        "Notes\n  snapshot nightly is in progress, but does not exist any more, and locks the VM"
        in text
    )


def test_a_guest_whose_file_systems_are_frozen(explain):
    _, data = explain(*changed("VirtualMachineInstance", fsFreezeStatus="frozen"))
    assert data["notes"] == [
        (
            "its file systems are frozen, so its applications cannot write. KubeVirt thaws them "
            "after 5 min by default. If they stay frozen, and no backup of it runs: virtctl "
            "unfreeze db -n shop"
        )
    ]


@pytest.mark.parametrize(
    ("owner", "least", "demands"),
    [
        ("db", 2, ", and its PodDisruptionBudget own demands both pods"),
        ("db", 1, ""),
        ("other", 2, ""),
        ("", 2, ""),
    ],
)
def test_a_budget_counts_both_pods_of_a_migration_only_where_kubevirt_wrote_one(
    explain, owner, least, demands
):
    """KubeVirt writes no budgets any more (kubevirt/kubevirt#13764)."""
    owners = (
        [{"kind": "VirtualMachineInstance", "name": owner, "controller": True}] if owner else []
    )
    spec = {"minAvailable": least, "selector": {"matchLabels": {"app": "other"}}}
    budget = manifest(
        "policy/v1",
        "PodDisruptionBudget",
        "own",
        "shop",
        metadata={"ownerReferences": owners},
        spec=spec,
    )
    moving = {"targetNode": "w9", "targetPod": "virt-launcher-db-2"}
    _, data = explain(*changed("VirtualMachineInstance", migrationState=moving), budget)

    (note,) = [each for each in data["notes"] if "two launcher pods" in each]
    assert note.startswith("it migrates to w9: until that ends it has two launcher pods")
    assert note.endswith(demands or note)
    assert ("PodDisruptionBudget" in note) is bool(demands)


@pytest.mark.parametrize(
    ("at", "then"),
    [
        ("2099-11-25T04:03:20Z", ", the next is at 2099-11-25T04:03:20Z"),
        ("2020-01-01T00:00:00Z", ""),
    ],
)
def test_starts_that_fail(explain, at, then):
    failure = {"consecutiveFailCount": 9, "retryAfterTimestamp": at}
    why = [{"type": "Failure", "status": "True", "message": "Cannot allocate memory"}]
    _, data = explain(*changed("VirtualMachine", startFailure=failure, conditions=why))
    assert data["notes"] == [f"its last 9 starts failed{then}: Cannot allocate memory"]


def test_a_restore_keeps_a_vm_from_starting(explain):
    stopped = [
        obj
        for obj in changed("VirtualMachine", restoreInProgress="again")
        if obj.kind == "VirtualMachine"
    ]
    _, data = explain(*stopped)
    assert data["drain"]["reason"] == "KubeVirt does not start it before restore again ends"
    assert "kubectl describe vmrestore again -n shop" in data["notes"][0]


def test_a_copy_that_waits_for_its_source(explain):
    volume = {"name": "root", "dataVolume": {"name": "copy"}}
    vm = manifest(
        "kubevirt.io/v1",
        "VirtualMachine",
        "db",
        "shop",
        spec={
            "runStrategy": "Always",
            "template": {"spec": {"domain": {"devices": {}}, "volumes": [volume]}},
        },
    )
    source = {"pvc": {"name": "golden", "namespace": "images"}}
    phase = {"phase": "CloneInProgress"}
    copy = manifest(
        "cdi.kubevirt.io/v1beta1",
        "DataVolume",
        "copy",
        "shop",
        spec={"source": source},
        status=phase,
    )
    _, data = explain(vm, copy)
    assert data["notes"] == [
        (
            "data volume copy is CloneInProgress, a copy of claim images/golden, which waits while "
            "a pod uses that claim: kubectl describe datavolume copy -n shop"
        )
    ]
    disks = [{"name": "disk", "persistentVolumeClaim": {"claimName": "golden"}}]
    labels = {"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": "first"}
    reader = manifest(
        "v1", "Pod", "p", "images", metadata={"labels": labels}, spec={"volumes": disks}
    )
    _, data = explain(vm, copy, reader)
    assert (
        "while a pod uses that claim: stop VM images/first, else it never begins: kubectl"
        in data["notes"][0]
    )


def test_a_vm_at_rest_has_no_notes(explain):
    _, data = explain(*WORLD)
    assert data["notes"] == []


IMPORT = {"apiGroup": "cdi.kubevirt.io", "kind": "VolumeImportSource", "name": "i"}


def importing(explain, *, progress="43.12%", running="True", source=IMPORT):
    volume = {"name": "root", "dataVolume": {"name": "image"}}
    template = {"spec": {"domain": {"devices": {}}, "volumes": [volume]}}
    spec = {"runStrategy": "Always", "template": template}
    vm = manifest("kubevirt.io/v1", "VirtualMachine", "db", "shop", spec=spec)
    conditions = [
        {"type": "Running", "status": running, "message": "it is said"},
        {"type": "Bound", "status": "False", "message": "PVC image Pending"},
    ]
    status = {"phase": "ImportInProgress", "progress": progress, "conditions": conditions}
    disk = manifest("cdi.kubevirt.io/v1beta1", "DataVolume", "image", "shop", status=status)
    claim = manifest(
        "v1",
        "PersistentVolumeClaim",
        "image",
        "shop",
        spec={"dataSourceRef": source},
        status={"phase": "Pending"},
    )
    nodes = [each for each in WORLD if each.kind == "Node"]
    return explain(*nodes, vm, disk, claim, form="text")[1]


def test_a_disk_that_an_import_fills_is_normal(explain):
    text = importing(explain)
    filled = "its disk image is being filled (ImportInProgress, 43.12%)"
    assert f"{filled}. Its claim is Pending until that ends, which is normal: wait" in text
    assert "could start on     a, b, once what keeps it has ended, see below\n" in text
    assert text.count("ImportInProgress") == 1
    assert f"{filled}\n" in importing(explain, source={})


@pytest.mark.parametrize(
    "stuck", [{"progress": "N/A"}, {"progress": "0.00%"}, {"running": "False"}]
)
def test_an_import_that_does_not_go_on_is_not_called_normal(explain, stuck):
    text = importing(explain, **stuck)
    assert "its disk image is not filled yet (ImportInProgress" in text
    assert "normal" not in text
