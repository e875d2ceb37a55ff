"""Which warnings about an object count."""

import pytest

from tests.builders import complete, manifest
from virt_admit.model.kubernetes import events

SUMMARY = (
    "Unable to attach or mount volumes: unmounted volumes=[root]: timed out waiting for the "
    "condition"
)
ATTACH = 'Multi-Attach error for volume "pv" Volume is already used by another node'
DONE = 'AttachVolume.Attach succeeded for volume "pv"'
MOUNT = 'MountVolume.MountDevice failed for volume "pv" : the image is still being used'
POD = manifest("v1", "Pod", "guest", "shop")


def event(reason, message, minute, kind="Warning"):
    time = f"2026-01-01T12:{minute:02}:00Z"
    about = {"kind": "Pod", "namespace": "shop", "name": "guest"}
    more = {
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "type": kind,
        "lastTimestamp": time,
    }
    found = manifest("v1", "Event", f"{reason}-{minute}", "shop")
    found.data.update(more)
    return found


def said(*some):
    return [message for _, message in events.warnings(POD, None, complete(*some))]


def test_the_cause_is_said_and_not_that_it_lasts():
    assert said(event("FailedMount", SUMMARY, 3), event("FailedMount", MOUNT, 2)) == [MOUNT]
    assert said(event("FailedMount", SUMMARY, 3), event("FailedAttachVolume", ATTACH, 2)) == [
        ATTACH
    ]


def test_what_lasts_is_said_if_its_cause_is_old_or_unknown():
    assert said(event("FailedMount", SUMMARY, 30)) == [SUMMARY]
    assert said(event("FailedMount", SUMMARY, 30), event("FailedMount", MOUNT, 2)) == [
        SUMMARY,
        MOUNT,
    ]


@pytest.mark.parametrize(
    ("minute", "expected"), [(4, []), (1, [ATTACH])], ids=["attached since", "attached before"]
)
def test_a_volume_that_was_attached_since(minute, expected):
    done = event("SuccessfulAttachVolume", DONE, minute, "Normal")
    assert said(event("FailedAttachVolume", ATTACH, 2), done) == expected
    other = event("SuccessfulAttachVolume", DONE.replace("pv", "other"), minute, "Normal")
    assert said(event("FailedAttachVolume", ATTACH, 2), other) == [ATTACH]
