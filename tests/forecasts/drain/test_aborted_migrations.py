"""Migrations without progress, whose reason may be in an event alone,
and who asked for a migration.
"""

import pytest

from tests.healthy.clusters import plain
from tests.incidents.machines import event, find, guest, migration
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome, forecast
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import VMI, VMIM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migration_history, migrations

STUCK = "Live migration stuck for 150 seconds and has been aborted"


def failed(number, in_status="", in_event=""):
    """Return a VM whose last migrations failed, with the reason in their status or in events."""
    items = plain() + guest("web", "w1")
    vmi = find(items, "VirtualMachineInstance", "web")
    for index in range(number):
        phases = {"Pending": 30 - index * 5, "Running": 29 - index * 5, "Failed": 26 - index * 5}
        name = f"try-{index}"
        own = migration("web", phases, name=name)
        uid = own["metadata"]["uid"] = f"u-{index}"
        state = {
            "failed": True,
            "completed": True,
            "migrationUid": uid,
            "sourceNode": "w1",
            "targetNode": "w2",
        }
        own["status"]["migrationState"] = {**state, "failureReason": in_status}
        items.append(own)
        if in_event:
            message = f"VirtualMachineInstance migration uid {uid} failed. reason:{in_event}"
            items.append(event(vmi, "Migrated", message, "virt-handler"))
            items[-1]["metadata"]["name"] += f".{index}"
    return Snapshot(map(Object, items), ["*"])


def drained(cluster):
    (vmi,) = cluster.known(VMI)
    return forecast(vmi, cluster)


@pytest.mark.parametrize("where", ["in_status", "in_event"])
def test_one_migration_without_progress_leaves_the_next_open(where):
    found = drained(failed(1, **{where: STUCK}))

    assert found.outcome is VmOutcome.UNKNOWN
    assert f"its last migration was aborted, and so may the next: {STUCK}" in found.reason
    assert "allowAutoConverge" in found.remedy


@pytest.mark.parametrize("where", ["in_status", "in_event"])
def test_three_of_them_block(where):
    found = drained(failed(3, **{where: STUCK}))

    assert found.outcome is VmOutcome.BLOCKS
    assert f"its last 3 migrations were aborted, so will the next: {STUCK}" in found.reason


SWTPM = "the running swtpm does not support migration with shared storage"


def test_a_guest_whose_swtpm_cannot_move_blocks_from_its_first_failure_on():
    cluster = failed(1, in_status=f"this function is not supported by the driver: {SWTPM}")
    (vmi,) = cluster.known(VMI)
    vmi.data["status"]["volumeStatus"] = [
        {
            "name": "vm-state",
            "persistentVolumeClaimInfo": {"claimName": "persistent-state-for-web-x7k2p"},
        }
    ]

    found = drained(cluster)

    assert found.outcome is VmOutcome.BLOCKS
    assert f"{SWTPM}; its vTPM is on claim persistent-state-for-web-x7k2p" in found.reason
    assert "virtctl stop web" in found.remedy
    assert "never remove the vTPM" in found.remedy


def test_the_vtpm_of_a_guest_without_vm_ends_with_it():
    cluster = failed(1, in_status=SWTPM)
    (vmi,) = cluster.known(VMI)
    del vmi.data["metadata"]["ownerReferences"]

    assert "virtctl stop" not in drained(cluster).remedy
    assert "the claim ends with it" in drained(cluster).remedy


def test_a_failure_of_the_moment_is_repeated():
    assert drained(failed(1, in_event="connection reset by peer")).outcome is VmOutcome.MIGRATES


def test_the_event_of_another_migration_is_not_its_reason():
    cluster = failed(1, in_event=STUCK)
    (own,) = cluster.known(VMIM)
    own.data["status"]["migrationState"]["migrationUid"] = own.data["metadata"]["uid"] = "other"

    assert drained(cluster).outcome is VmOutcome.MIGRATES


@pytest.mark.parametrize(
    ("metadata", "condition", "by"),
    [
        (
            {"labels": {"operator.libopenstorage.org/managed-by": "portworx"}},
            "",
            "portworx (label managed-by)",
        ),
        ({"annotations": {migrations.AUTOMATIC[1]: ""}}, "", "an update of KubeVirt"),
        (
            {"annotations": {migrations.AUTOMATIC[1]: ""}},
            "VolumesChange",
            "a change of its volumes",
        ),
        ({"annotations": {migrations.AUTOMATIC[1]: ""}}, "HotVCPUChange", "a change of its CPUs"),
        (
            {"annotations": {migrations.AUTOMATIC[1]: ""}},
            "HotVCPUChange,HotMemoryChange",
            "a change of its CPUs and memory",
        ),
        ({}, "VolumesChange", "a person or another program"),
    ],
)
def test_who_asked(metadata, condition, by):
    own = Object({"metadata": {"name": "m", **metadata}, "status": {"phase": "Running"}})
    conditions = [{"type": each, "status": "True"} for each in condition.split(",") if each]
    vmi = Object({"metadata": {"name": "web"}, "status": {"conditions": conditions}})

    assert migrations.asked_by(own, vmi) == f"{by} asked for migration m"


@pytest.mark.parametrize(
    ("kind", "since", "by"),
    [
        ("VolumesChange", "2020-01-01T00:00:00Z", "a change of its volumes"),
        ("VolumesChange", "2099-01-01T00:00:00Z", "update of KubeVirt"),
        ("VolumesChange", None, "update of KubeVirt"),
        ("HotVCPUChange", "2020-01-01T00:00:00Z", "update of KubeVirt"),
    ],
)
def test_the_history_names_the_change_before_a_migration_that_has_ended(kind, since, by):
    items = plain() + guest("web", "w1")
    find(items, "VirtualMachineInstance", "web")["status"]["conditions"].append(
        {"type": kind, "status": "True", "lastTransitionTime": since}
    )
    own = migration("web", {"Pending": 30, "Succeeded": 20}, name="old")
    own["metadata"]["annotations"] = {migrations.AUTOMATIC[1]: ""}
    cluster = Snapshot(map(Object, [*items, own]), ["*"])
    (vmi,) = cluster.known(VMI)

    assert [each.asked_by for each in migration_history.history(vmi, cluster)] == [by]
