"""Volumes of Longhorn that no node can attach: a migration that was never ended, and a backing
image without a copy.
"""

import pytest

from tests.advice import risky
from tests.builders import manifest
from tests.forecasts.drain.vm_motion import ago, cluster
from tests.forecasts.placement.test_longhorn_starts import engine, own, release, replica
from virt_admit.forecasts.drain.starts import faulted_volumes
from virt_admit.forecasts.placement.components import longhorn_starts

OLD = {"lastTransitionTime": ago(3600)}


def pv():
    csi = {"driver": longhorn_starts.DRIVER, "volumeHandle": "v1"}
    return manifest("v1", "PersistentVolume", "v1", spec={"csi": csi})


def found(*objects):
    return longhorn_starts.cause("v1", "b", cluster(pv(), *objects))


def attachment(on, age=3600):
    spec = {"nodeName": on, "source": {"persistentVolumeName": "v1"}}
    made = {"creationTimestamp": ago(age)}
    return manifest("storage.k8s.io/v1", "VolumeAttachment", f"csi-{on}", metadata=made, spec=spec)


def migratable(to="", left="c", state="detaching"):
    spec = {"migratable": True, "nodeID": "b", "migrationNodeID": to}
    status = {"state": state, "currentNodeID": "b", "currentMigrationNodeID": left}
    return own("Volume", "v1", spec, status=status)


STOPPED = (engine("v1-e-0", "", "stopped", "stopped"), engine("v1-e-1", "", "stopped", "stopped"))


def test_a_migration_that_nothing_ends_holds_the_volume():
    cause = found(migratable(), *STOPPED, attachment("b"), release("v1.9.1"))

    assert cause.words.startswith("Longhorn still has a migration of it to c in its status")
    assert "a fault that Longhorn 1.10 corrects" in cause.words
    assert cause.remedy.startswith("stop the VM; then take that migration out of the status")
    patch = (
        "(kubectl patch volumes.longhorn.io v1 -n longhorn-system --subresource=status "
        """--type=merge -p '{"status":{"currentMigrationNodeID":""}}')"""
    )
    assert patch in cause.remedy
    assert cause.lasts


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([migratable(to="c"), *STOPPED], id="it migrates"),
        pytest.param([migratable(left=""), *STOPPED], id="no migration is left"),
        pytest.param([migratable(state="attached"), *STOPPED], id="it is attached"),
        pytest.param([migratable(), *STOPPED, attachment("c")], id="the target still wants it"),
        pytest.param(
            [migratable(), engine("v1-e-0", "c", "running"), STOPPED[1]], id="an engine runs"
        ),
        pytest.param([migratable(), *STOPPED, attachment("b", age=20)], id="it has just begun"),
        pytest.param([migratable()], id="no engine is known"),
    ],
)
def test_a_migration_that_may_end_is_not_blamed(objects):
    cause = found(*objects)

    assert cause is None or "migration" not in cause.words


def ticket(on):
    tickets = {"csi-1": {"id": "csi-1", "type": "csi-attacher", "nodeID": on}}
    return own("VolumeAttachment", "v1", {"volume": "v1", "attachmentTickets": tickets})


def interrupted(node="", to="b", state="detached"):
    spec = {"migratable": True, "nodeID": node, "migrationNodeID": to}
    return own("Volume", "v1", spec, status={"state": state, "currentMigrationNodeID": "b"})


HELD = (STOPPED[0], attachment("b"), ticket("b"))


def test_a_volume_is_detached_amid_the_migration_that_its_spec_still_wants():
    cause = found(interrupted(), *HELD, release("v1.6.2"))

    assert cause.words.startswith("a migration of it to b was interrupted: Longhorn has migration")
    assert "currentMigrationNodeID b in its status, but no nodeID" in cause.words
    assert "a fault that Longhorn 1.7 corrects" in cause.words
    assert cause.remedy.startswith("stop the VM; then take that migration out of the spec")
    assert """--type=merge -p '{"spec":{"migrationNodeID":""}}')""" in cause.remedy
    assert """--type=merge -p '{"status":{"currentMigrationNodeID":""}}')""" in cause.remedy
    assert cause.lasts


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([interrupted(node="a"), *HELD], id="it has a node"),
        pytest.param([interrupted(to="c"), *HELD], id="another migration begins"),
        pytest.param([interrupted(state="detaching"), *HELD], id="it is being detached"),
        pytest.param([interrupted(), *HELD, release("v1.7.0")], id="this release cancels it"),
        pytest.param([interrupted(), *HELD], id="its release is not known"),
        pytest.param([interrupted(), *HELD[:2], ticket("a")], id="Longhorn takes it back"),
        pytest.param(
            [interrupted(), HELD[0], ticket("b"), attachment("b", age=20)], id="it has just begun"
        ),
        pytest.param([interrupted(), *HELD, engine("v1-e-1", "b", "running")], id="one runs"),
    ],
)
def test_a_migration_of_the_spec_that_may_go_on_is_not_blamed(objects):
    cause = found(*objects)

    assert cause is None or "interrupted" not in cause.words


def based(waits="True"):
    said = {"type": "WaitForBackingImage", "status": waits, "reason": "Waiting", **OLD}
    return own("Volume", "v1", {"backingImage": "i1"}, status={"conditions": [said]})


def backing(source="upload", **states):
    files = {
        uuid: {"state": state, "lastStateTransitionTime": ago(3600)}
        for uuid, state in states.items()
    }
    return own("BackingImage", "i1", {"sourceType": source}, status={"diskFileStatusMap": files})


def disk_of(on, ready="False"):
    said = {"type": "Ready", "status": ready, "reason": "DiskFilesystemChanged", **OLD}
    status = {"diskUUID": "u1", "diskPath": "/mnt/one", "conditions": [said]}
    return own(
        "Node",
        on,
        {"disks": {"one": {}}},
        status={"conditions": [{"type": "Ready", "status": "True"}], "diskStatus": {"one": status}},
    )


WAITING = (
    based(),
    engine("v1-e-0", "b", "stopped"),
    replica("v1-r-1", "a", "stopped"),
    replica("v1-r-2", "b", "stopped"),
)


def test_the_only_copy_of_a_backing_image_is_on_a_disk_that_is_not_ready():
    cause = found(*WAITING, backing(u1="unknown", u2="pending"), disk_of("a"))

    assert cause.words.startswith(
        "it needs backing image i1, which has no ready copy because disk one of a is not ready for "
        "60 min with DiskFilesystemChanged"
    )
    assert "r-1" not in cause.words
    assert cause.remedy.startswith("mount that disk again at /mnt/one of a")
    assert "Longhorn cannot fetch an upload again" in cause.remedy
    assert cause.lasts
    assert not risky(cause.remedy)


def test_the_disk_of_a_backing_image_is_gone():
    cause = found(*WAITING, backing("download", u1="unknown"))

    assert "the one on a disk that no node of Longhorn has is unknown (u1)" in cause.words
    assert cause.remedy.startswith("let Longhorn download it again")


def in_longhorn(reason, on="a"):
    """Return a node that is not ready in Longhorn, which marks its disks then."""
    node = disk_of(on)
    node.data["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "reason": reason, **OLD}
    ]
    return node


SILENT = {"type": "Ready", "status": "Unknown", "lastTransitionTime": ago(600)}


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([manifest("v1", "Node", "a", status={"conditions": [SILENT]})], "has not reported for 10"),
        ([], "is not ready in Longhorn for 60 min"),
    ],
)
def test_a_copy_comes_back_with_the_node_that_is_down(objects, why):
    cause = found(
        *WAITING,
        backing(u1="unknown", u2="pending"),
        in_longhorn("KubernetesNodeNotReady"),
        *objects,
    )

    assert f"because a with one {why}" in cause.words
    assert cause.words.endswith("on each node until a is back")
    assert cause.remedy.startswith("bring a back. If its disk is lost, upload it as a new image")
    assert not cause.lasts


def test_a_node_that_left_the_cluster_does_not_come_back():
    cause = found(*WAITING, backing(u1="unknown"), in_longhorn("KubernetesNodeGone"))

    assert cause.words.endswith("this does not end by itself")
    assert cause.lasts


@pytest.mark.parametrize(
    ("source", "states", "end"),
    [
        ("download", {"u1": "failed"}, "Longhorn tries to download it again by itself"),
        ("download", {"u1": "failed-and-cleanup", "u2": "pending"}, "wait, on each node"),
        ("export-from-volume", {"u1": "failed"}, "wait, on each node"),
    ],
)
def test_an_image_that_longhorn_makes_again_does_not_wait_for_ever(source, states, end):
    cause = found(*WAITING, backing(source, **states), disk_of("a", ready="True"))

    assert cause.words.endswith(end)
    assert cause.remedy.startswith("see why Longhorn gets no copy of it ready")
    assert not cause.lasts


def test_an_upload_is_not_fetched_again():
    cause = found(*WAITING, backing(u1="failed"), disk_of("a", ready="True"))

    assert cause.words.endswith("this does not end by itself")
    assert cause.remedy.startswith("upload it as a new image")


@pytest.mark.parametrize("states", [{"u1": "ready", "u2": "pending"}, {"u1": "in-progress"}])
def test_a_copy_that_comes_is_waited_for(states):
    cause = found(*WAITING, backing(**states), disk_of("a", ready="True"))

    assert cause.words.startswith("it waits for 60 min for backing image i1 on the disks of its")
    assert not cause.lasts


def test_none_of_several_replicas_is_blamed_alone():
    cause = found(based("False"), *WAITING[1:])

    assert cause.words == "Longhorn waits for all its 2 replicas (a, b)"


def stopped(since):
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": ago(since)}
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]
    return manifest(
        "kubevirt.io/v1",
        "VirtualMachine",
        "db",
        "shop",
        spec={"template": {"spec": {"volumes": volumes}}},
        status={"conditions": [ready]},
    )


CLAIM = manifest("v1", "PersistentVolumeClaim", "disk", "shop", spec={"volumeName": "v1"})


@pytest.mark.parametrize(
    "objects",
    [
        (migratable(state="detached"), *STOPPED),
        (based("False"), backing(u1="unknown"), disk_of("a")),
    ],
)
def test_a_vm_that_rests_could_not_start(objects):
    known = cluster(pv(), CLAIM, *objects)

    assert faulted_volumes.problem(stopped(3600), known).reason.startswith(
        "volume v1 of claim disk cannot be attached: "
    )
    assert faulted_volumes.problem(stopped(60), known) is None
