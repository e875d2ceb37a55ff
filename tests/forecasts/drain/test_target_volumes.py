"""Volumes that do not come to a target pod, or do not leave the node."""

import pytest

from tests.builders import NAMESPACE, kubevirt, manifest
from tests.forecasts.drain import vm_motion
from tests.forecasts.drain.test_target_pods import (
    BLOCKS,
    REFUSED,
    SCHEDULING,
    pending,
    waiting,
    warning,
)
from tests.forecasts.drain.test_vm_states import HOTPLUG, LAUNCHER, MARKED, UNKNOWN, row, target
from tests.forecasts.drain.vm_motion import ago, attachment, cluster, launcher, migration, vmi
from virt_admit.forecasts.drain import drain_plan


@pytest.mark.parametrize(
    ("phase", "release", "age", "outcome"),
    [
        ("Scheduling", "v1.8.2", 2700, BLOCKS),
        ("Scheduling", "v1.3.0", 2700, BLOCKS),
        ("Scheduling", "v1.10.0", 2700, UNKNOWN),  # may create it later than in Pending
        ("Scheduling", None, 2700, UNKNOWN),
        # virt-launcher may still give up, which ends the migration
        ("Scheduling", "v1.8.2", 500, UNKNOWN),
        ("Pending", "v1.8.2", 2700, UNKNOWN),
    ],
)
def test_a_pod_that_attaches_volumes_is_created_while_the_migration_is_pending_alone(
    phase, release, age, outcome
):
    running = kubevirt(status={"observedKubeVirtVersion": release} if release else {})
    move = migration(phase=phase, age=age, since={"Pending": age, phase: age - 5})
    seen = cluster(running, vmi(**MARKED, spec=HOTPLUG), LAUNCHER, move, target(age=age))
    found = row(seen)

    assert found.outcome == outcome
    assert ("virtctl migrate-cancel db" in found.remedy) is (phase == "Scheduling")


ERROR = "rpc error: code = Internal desc = volume is locked"


def attached(on, **fields):
    spec = {"nodeName": on, "attacher": "csi.example", "source": {"persistentVolumeName": "pv-db"}}
    metadata = {"deletionTimestamp": ago(7200)} if "detachError" in fields else {}
    status = {name: {"message": message} for name, message in fields.items()}
    return manifest(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        f"csi-{on}",
        spec=spec,
        status=status,
        metadata=metadata,
    )


def starting(mode, *attachments):
    """Return what becomes of a VM whose target pod on b does not start."""
    claim = manifest(
        "v1",
        "PersistentVolumeClaim",
        "db",
        NAMESPACE,
        spec={"volumeName": "pv-db", "accessModes": [mode]},
    )
    pod = pending(containerStatuses=waiting("ContainerCreating"))
    pod.data["spec"]["volumes"] = [{"name": "disk", "persistentVolumeClaim": {"claimName": "db"}}]
    return row(cluster(vmi(**MARKED), LAUNCHER, SCHEDULING, pod, claim, *attachments))


@pytest.mark.parametrize(
    ("mode", "attachment", "says"),
    [
        (
            "ReadWriteMany",
            attached("b", attachError=ERROR),
            "volume pv-db of claim db cannot be attached: volume is locked",
        ),
        (
            "ReadWriteMany",
            attached("b", detachError=ERROR),
            "of claim db cannot be detached from b for 2 h: volume is locked",
        ),
        (
            "ReadWriteOnce",
            attached("c", detachError=ERROR),
            "of claim db cannot be detached from c for 2 h: volume is locked",
        ),
        ("ReadWriteMany", attached("c", detachError=ERROR), ""),
        ("ReadWriteMany", attached("c", attachError=ERROR), ""),
        ("ReadWriteMany", attached("b"), ""),
    ],
)
def test_a_volume_that_does_not_come_is_the_cause(mode, attachment, says):
    found = starting(mode, attachment)

    assert (found.outcome == UNKNOWN) is bool(says)
    assert says in found.reason


def test_a_volume_that_does_not_leave_the_node_is_a_note():
    (found,) = drain_plan.plan(
        cluster(vmi(), LAUNCHER, attached("a", detachError=ERROR), attached("c")), "a"
    ).nodes
    (note,) = (note for note in found.notes if "Volume" in note)

    assert f"Volume pv-db cannot be detached from this node for 2 h: {ERROR}" in note
    assert note.endswith("kubectl describe volumeattachments.storage.k8s.io csi-a")


def test_an_attachment_pod_that_the_api_server_refuses_blocks_with_its_words():
    own = vmi(**MARKED, spec=HOTPLUG)
    found = row(
        cluster(own, LAUNCHER, migration(), target(), warning(own, "FailedCreate", REFUSED))
    )

    assert found.outcome == BLOCKS
    assert "has not created the pod that attaches its volumes on b" in found.reason
    assert REFUSED in found.reason


def test_the_cause_of_an_attachment_pod_is_its_own():
    pod = target()
    helper = attachment(pod, ready=False)
    objects = [vmi(**MARKED, spec=HOTPLUG), LAUNCHER, migration(), pod, helper]
    found = row(cluster(*objects, warning(helper, "FailedMapVolume", "volume is not staged")))

    assert found.outcome == UNKNOWN
    assert (
        "the pod that attaches its volumes on b has not been ready for 40 s: volume is not staged"
        in found.reason
    )
    assert helper.name in found.remedy


@pytest.mark.parametrize(
    ("hours", "says"), [(5, "has not detached volume pv-old from a for 300 min"), (0, "")]
)
def test_a_vm_that_restarts_waits_for_a_volume_that_may_stay(hours, says):
    """The drain ends in any case: the VM is shut down."""
    spec = {
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "evictionStrategy": "None",
    }
    bound = manifest(
        "v1",
        "PersistentVolumeClaim",
        "data",
        "shop",
        spec={"accessModes": ["ReadWriteOnce"], "volumeName": "pv-data"},
    )
    volume = manifest(
        "v1", "PersistentVolume", "pv-data", spec={"csi": {"driver": "block.example.com"}}
    )
    old = manifest(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        "csi-old",
        metadata={"deletionTimestamp": ago(hours * 3600)},
        spec={
            "nodeName": "a",
            "attacher": "block.example.com",
            "source": {"persistentVolumeName": "pv-old"},
        },
        status={"detachError": {"message": "busy"}},
    )
    own = vmi()
    own.data["spec"] |= spec
    (node,) = drain_plan.plan(
        cluster(own, launcher(), vm_motion.vm("db"), bound, volume, old), "a"
    ).nodes

    assert (node.drainable, node.forecasts[0].outcome) == (True, "restarts elsewhere")
    assert says in node.forecasts[0].reason
    assert ("repair the driver: kubectl describe" in node.forecasts[0].remedy) is bool(says)
