"""Pods with which an update of KubeVirt begins, and that do not start."""

from tests.builders import complete, kubevirt, manifest
from virt_admit.forecasts.drain.control import update_starts


def test_a_job_that_has_failed_has_ended_and_holds_the_update():
    own = kubevirt({}, status={"targetDeploymentID": "new"})
    job = manifest(
        *("batch/v1", "Job", "j", own.namespace),
        metadata={
            "annotations": {"kubevirt.io/install-strategy-identifier": "new"},
            "creationTimestamp": "2026-06-01T11:00:00Z",
        },
        status={"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimit"}]},
    )
    now = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-06-01T12:00:00Z"}
    node = manifest("v1", "Node", "a", status={"conditions": [now]})
    found = update_starts.of(own, complete(own, job, node))
    assert found.why == (
        "Job j, which writes its install strategy, has failed (BackoffLimit); nothing repeats it. "
        "virt-operator replaces nothing before that Job has succeeded"
    )
