"""A volume of LINSTOR that gets a disk on a node while a guest there has it open."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.builders import manifest
from virt_admit.forecasts.drain.guests import paused_guests
from virt_admit.forecasts.placement.components.linstor import late_disks
from virt_admit.forecasts.placement.components.linstor.late_disks import LateDisk
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import VMI
from virt_admit.model.kubernetes.objects import Object

ARRIVED = datetime(2026, 11, 1, 10, 0, tzinfo=UTC)
OPTION = "DrbdOptions/auto-diskful"
KEY = f"property.linstor.csi.linbit.com/{OPTION}"
MOVED = {
    "endTimestamp": "2026-11-01T10:00:00Z",
    "completed": True,
    "sourceNode": "b",
    "targetNode": "a",
}


def world(
    *more: Object,
    drbd: str = "9.2.16-v1.12.6",
    driver: str = "linstor.csi.linbit.com",
    parameters: dict[str, str] | None = None,
    **status: Any,
) -> Snapshot:
    parameters = {KEY: "30"} if parameters is None else parameters
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": "db"}}]
    paused = {
        "type": "Paused",
        "status": "True",
        "reason": "PausedIOError",
        "lastTransitionTime": "2026-11-01T11:00:00Z",
    }
    labels = {"extensions.talos.dev/drbd": drbd} if drbd else {}
    own = {"phase": "Running", "nodeName": "a", "conditions": [paused], **status}
    objects = [
        manifest(
            "kubevirt.io/v1",
            "VirtualMachineInstance",
            "db",
            "shop",
            spec={"volumes": volumes},
            status=own,
        ),
        manifest("v1", "Node", "a", metadata={"labels": labels}),
        manifest("v1", "PersistentVolumeClaim", "db", "shop", spec={"volumeName": "pv"}),
        manifest(
            "v1",
            "PersistentVolume",
            "pv",
            spec={"csi": {"driver": driver}, "storageClassName": "async"},
        ),
        manifest("storage.k8s.io/v1", "StorageClass", "async", parameters=parameters),
        *more,
    ]
    return Snapshot(objects, complete=["*"], time="2026-11-01T11:01:00Z")


def late(minutes: int, cluster: Snapshot) -> LateDisk | None:
    (vmi,) = cluster.known(VMI)
    return late_disks.of(vmi, "db", ARRIVED + timedelta(minutes=minutes), cluster)


def test_the_errors_begin_when_the_volume_gets_its_disk() -> None:
    found = late(31, world(migrationState=MOVED))
    assert found is not None
    assert found.words == (
        "LINSTOR probably gave the volume a disk on a while the guest had it open: StorageClass "
        f'async sets {KEY}: "30" (minutes), and the errors began 31 min after its migration from b '
        "to a. DRBD 9.2.16 (label extensions.talos.dev/drbd of a) does not pass the new limits of "
        "the device on, so that discards fail"
    )


@pytest.mark.parametrize(
    ("minutes", "given"),
    [
        (29, {}),
        (41, {}),
        (31, {"drbd": "9.3.3-v1.14.0"}),
        (31, {"driver": "other.example.org"}),
        (31, {"parameters": {}}),
        (31, {"parameters": {KEY: "90"}}),
        (31, {"parameters": {KEY: "9" * 20}}),
        (31, {"migrationState": {**MOVED, "targetNode": "c"}}),
    ],
    ids=[
        "before",
        "long after",
        "release",
        "driver",
        "no option",
        "later",
        "never",
        "from elsewhere",
    ],
)
def test_what_the_disk_does_not_explain(minutes: int, given: dict[str, Any]) -> None:
    assert late(minutes, world(**{"migrationState": MOVED, **given})) is None


def test_the_whole_cluster_has_the_option_and_the_guest_has_started_here() -> None:
    spec = {"properties": [{"name": OPTION, "value": "30"}]}
    whole = manifest("piraeus.io/v1", "LinstorCluster", "linstor", spec=spec)
    began = [{"phase": "Running", "phaseTransitionTimestamp": "2026-11-01T10:00:00Z"}]
    found = late(31, world(whole, parameters={}, drbd="", phaseTransitionTimestamps=began))
    assert found is not None
    assert f'LinstorCluster linstor sets {OPTION}: "30"' in found.words
    assert "after its start on a. DRBD may not pass" in found.words


def test_a_paused_guest_says_it() -> None:
    event = manifest(
        "v1",
        "Event",
        "e",
        "shop",
        type="Warning",
        reason="IOerror",
        message="VM Paused due to IO error at the volume: root",
        involvedObject={"kind": "VirtualMachineInstance", "name": "db", "namespace": "shop"},
        count=10,
        firstTimestamp="2026-11-01T10:31:00Z",
        lastTimestamp="2026-11-01T11:00:00Z",
    )
    cluster = world(event, migrationState=MOVED)
    (vmi,) = cluster.known(VMI)
    found = paused_guests.problem(vmi, cluster)
    assert found is not None
    assert found.brief == (
        "its guest is paused by an I/O error for 60 s, the 10th time in 29 min: LINSTOR probably "
        "gave the volume a disk on a while the guest had it open"
    )
    assert found.remedy.startswith("restart the VM, so that it opens the volume again")
    assert "virtctl restart db -n shop; until the nodes have a later DRBD" in found.remedy
