"""A virt-handler that is being replaced is a wait; one that does not start is not."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.drain.control import control_path
from virt_admit.forecasts.placement import virt_handlers
from virt_admit.model.kubernetes.cluster import Snapshot

NOW, JUST, EARLIER = "2026-01-01T12:00:00Z", "2026-01-01T11:59:00Z", "2026-01-01T11:50:00Z"


def cluster(*, made=JUST, beat=JUST, reason="ContainerCreating", restarts=0):
    box = {"name": "virt-handler", "ready": False, "restartCount": restarts}
    box["state"] = {"waiting": {"reason": reason}}
    unready = {"type": "Ready", "status": "False", "lastTransitionTime": made}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2025-12-01T00:00:00Z"}
    handler = manifest(
        "v1",
        "Pod",
        "virt-handler-a",
        "kubevirt",
        metadata={"labels": {"kubevirt.io": "virt-handler"}, "creationTimestamp": made},
        spec={"nodeName": "a", "containers": [{"name": "virt-handler"}]},
        status={"phase": "Pending", "conditions": [unready], "containerStatuses": [box]},
    )
    notes = {"annotations": {"kubevirt.io/heartbeat": beat}}
    node = manifest("v1", "Node", "a", metadata=notes, status={"conditions": [ready]})
    return Snapshot([handler, node], ["*"], time=NOW)


@pytest.mark.parametrize(
    ("fields", "is_broken"),
    [
        ({}, False),
        ({"made": EARLIER}, True),
        ({"beat": EARLIER}, True),
        ({"restarts": 1}, True),
        ({"reason": "ImagePullBackOff"}, True),
    ],
    ids=["young", "old", "silent", "restarted", "back-off"],
)
def test_a_virt_handler_that_is_replaced_is_not_broken(fields, is_broken):
    found = cluster(**fields)

    assert virt_handlers.problem(found, "a")  # it is not ready
    assert list(virt_handlers.broken(found)) == ["a"] * is_broken
    reasons = [each.reason for each in control_path.of_node(found, "a").hindrances]
    assert any(each.startswith(virt_handlers.BROKEN) for each in reasons) is is_broken
