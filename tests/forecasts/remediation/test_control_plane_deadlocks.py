"""Control planes that wait for themselves."""

from tests.builders import manifest
from virt_admit.forecasts.remediation import control_plane_deadlocks
from virt_admit.model.kubernetes.cluster import Snapshot

IN_PROGRESS = "controlplane.cluster.x-k8s.io/remediation-in-progress"


def test_an_annotation_that_no_controller_writes():
    made = manifest(
        "controlplane.cluster.x-k8s.io/v1beta1",
        "KubeadmControlPlane",
        "cp",
        "fleet",
        metadata={"annotations": {IN_PROGRESS: "[" * 100000}},
    )

    assert not control_plane_deadlocks.deadlocks(
        Snapshot([made], ["*"], time="2026-01-01T10:00:00Z")
    )
