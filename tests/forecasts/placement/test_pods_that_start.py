"""What keeps a pod of a component from its volumes is said like the answer of a probe."""

import pytest

from tests.builders import manifest, warning
from virt_admit.forecasts.placement.components import broken_pods
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = "2026-11-26T12:00:00Z"


@pytest.mark.parametrize(
    ("phase", "why"), [("Pending", "FailedMount, no such export"), ("Running", "")]
)
def test_a_mount_that_fails(phase, why):
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": "False"}]}
    pod = manifest("v1", "Pod", "repo", "shop", spec={"nodeName": "a"}, status=status)
    event = warning(pod, "FailedMount", "no such export.", NOW)

    assert broken_pods.why(pod, Snapshot([pod, event], ["*"], time=NOW)) == why


def test_an_image_that_others_rely_on_cannot_be_pulled():
    failed = 'Failed to pull image "a:1": failed to resolve reference "a:1": dial tcp: i/o timeout'
    said = f'Back-off pulling image "a:1": ErrImagePull: {failed}'
    waiting = {"reason": "ErrImagePull", "message": said}
    status = {
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{"name": "a", "image": "a:1", "state": {"waiting": waiting}}],
    }
    pod = manifest("v1", "Pod", "a-0", "shop", spec={"nodeName": "w1"}, status=status)
    found = broken_pods.of_pod(pod, Snapshot([pod], ["*"], time=NOW))

    assert found.why == 'ErrImagePull: Back-off pulling image "a:1": dial tcp: i/o timeout'
    assert found.remedy.startswith("name a copy of the image in a registry that w1 reaches, or let")


@pytest.mark.parametrize("kind", ["probe", "waiting", "terminated"])
def test_no_key_of_an_address_is_quoted(kind):
    said = 'Get "http://u:hidden@10.0.0.1/ok?key=hidden": error'
    state = {
        "waiting": {"reason": "CreateContainerError", "message": said},
        "terminated": {"exitCode": 1, "message": said},
    }
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{"name": "a", "state": {kind: state.get(kind)}}],
    }
    pod = manifest("v1", "Pod", "a-0", "shop", spec={"nodeName": "w1"}, status=status)
    event = warning(pod, "Unhealthy", f"Readiness probe failed: {said}", NOW)
    why = broken_pods.why(pod, Snapshot([pod, event], ["*"], time=NOW))

    assert 'Get "http://10.0.0.1/ok": error' in why
