"""Claims that stay in a resize: the pod that cannot map the volume,
and starts that have another cause or none.
"""

import pytest

from tests.healthy.clusters import plain
from tests.healthy.parts import ago

from .machines import event, find, guest, launcher_of
from .starts import starting

FAILS = (
    'MapVolume.MapPodDevice failed for volume "{}" : rpc error: code = FailedPrecondition desc = '
    "it appears dev is already mounted at /dev/x"
)


def resized(items, kind="FileSystemResizePending", minutes=90, mode="Block", given="100Gi"):
    """Make the claim of a VM one that asks for 100Gi and has 30Gi; return its volume."""
    claim = find(items, "PersistentVolumeClaim", "db")
    claim["spec"] |= {"volumeMode": mode, "resources": {"requests": {"storage": "100Gi"}}}
    condition = {
        "type": kind,
        "status": "True",
        "lastTransitionTime": ago(minutes=minutes),
        "message": "waits",
    }
    claim["status"] |= {"capacity": {"storage": "30Gi"}, "conditions": [condition]}
    claim["status"]["allocatedResourceStatuses"] = {"storage": "NodeResizePending"}
    name = claim["spec"]["volumeName"]
    find(items, "PersistentVolume", name)["spec"]["capacity"] = {"storage": given}
    return name


def hanging(**change):
    items = starting("db", "Scheduling")
    pod = launcher_of(items, "db")
    pod["spec"]["nodeName"], pod["status"] = "w2", {"phase": "Pending"}
    items.append(event(pod, "FailedMapVolume", FAILS.format(resized(items, **change)), "kubelet"))
    return plain((1, 6)) + items


def test_a_raw_block_volume_waits_for_a_file_system(ask):
    told = ask(hanging(), "explain", "vm/db", "-n", "vms")
    assert (
        "claim db is stuck in a resize (FileSystemResizePending for 90 min, NodeResizePending)"
        in told
    )
    assert "its status has 30Gi of the 100Gi asked for, and its volume has 100Gi already" in told
    assert "A raw block volume has no file system to resize, so no restart ends this" in told
    assert "code = FailedPrecondition desc = it appears dev is already mounted at /dev/x" in told
    assert "write 100Gi into status.capacity of the claim" in told
    said = ask(hanging(), "scan")
    assert (
        "is stuck in a resize: FileSystemResizePending, its status has 30Gi of the 100Gi asked "
        "for. Update driver"
    ) in said


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mode": "Filesystem"}, "The node has to end it, and does not"),
        (
            {"kind": "ControllerResizeError", "given": "30Gi"},
            "is stuck in a resize (ControllerResizeError for 90 min",
        ),
        ({"kind": "ModifyVolumeError"}, "is stuck in a change (ModifyVolumeError for 90 min"),
    ],
)
def test_other_changes_that_do_not_end(ask, change, says):
    told = ask(hanging(**change), "explain", "vm/db", "-n", "vms")
    assert says in told
    assert "raw block" not in told


def test_a_start_that_fails_elsewhere_does_not_accuse_the_claim(ask):
    items = [each for each in hanging() if each["kind"] != "Event"]
    pod = launcher_of(items, "db")
    waiting = {
        "reason": "ImagePullBackOff",
        "message": 'Back-off pulling image "example.com/launcher:v1"',
    }
    pod["status"]["containerStatuses"] = [{"name": "compute", "state": {"waiting": waiting}}]

    told = ask(items, "explain", "vm/db", "-n", "vms")
    assert "ImagePullBackOff" in told
    assert "resize" not in told


def test_a_resize_that_has_just_begun_is_none(ask):
    assert "resize" not in ask(hanging(minutes=2), "explain", "vm/db", "-n", "vms")


def test_the_claim_of_a_guest_that_runs_is_not_accused(ask):
    items = plain((1, 6)) + guest("db", "w1")
    resized(items)

    assert "resize" not in ask(items, "explain", "vm/db", "-n", "vms") + ask(items, "scan")
