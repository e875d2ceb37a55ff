"""Pods with which an update of KubeVirt begins, and that do not start."""

import pytest

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


def component(name, ready=0, age="10", error="not found"):
    """A Deployment of the new release whose pod cannot pull its image, with its ReplicaSet."""
    image, there = f"r.io/{name}:v2", "kubevirt"
    mark = {"annotations": {"kubevirt.io/install-strategy-identifier": "new"}}
    said = f'Back-off pulling image "{image}": ErrImagePull: {image}: {error}'
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": said}}
    state = {"name": "c", "image": image, "state": waiting}
    status = {
        "phase": "Pending",
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [state],
    }
    made = {"creationTimestamp": f"2026-06-01T{age}:00:00Z"}
    done = {"replicas": 2, "updatedReplicas": 1, "readyReplicas": ready}
    return (
        manifest("apps/v1", "Deployment", name, there, metadata=mark, status=done),
        manifest("apps/v1", "ReplicaSet", f"{name}-1", there, metadata=owned("Deployment", name)),
        manifest(
            *("v1", "Pod", f"{name}-1-x", there),
            metadata=owned("ReplicaSet", f"{name}-1") | made,
            status=status,
        ),
    )


def owned(kind, name):
    above = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": True}
    return {"ownerReferences": [above]}


def waits(*parts, **spec):
    now = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-06-01T12:00:00Z"}
    node = manifest("v1", "Node", "a", status={"conditions": [now]})
    own = kubevirt({}, status={"targetDeploymentID": "new"})
    own.data["spec"].update(spec)
    return update_starts.of(own, complete(own, node, *(each for part in parts for each in part)))


API, CONTROLLER = "virt-template-apiserver", "virt-template-controller"
PUT = f"put images r.io/{API}:v2 and r.io/{CONTROLLER}:v2 into the registry, after which the update"


def test_components_whose_images_are_missing_are_named_and_can_be_switched_off():
    found = waits(component(API), component(CONTROLLER))
    assert found.why.startswith(
        f"virt-operator waits for Deployments {API} and {CONTROLLER}: pod {API}-1-x of the new "
        "release is not ready: ImagePullBackOff"
    )
    assert found.why.endswith(f"r.io/{API}:v2: not found")
    assert found.remedy.startswith(f"{PUT} goes on by itself: kubectl describe deployment {API} ")
    assert '{"virtTemplateDeployment":{"enabled":false}}' in found.remedy


def test_an_image_that_its_registry_refuses_is_not_put_there():
    found = waits(component("virt-api"), component("virt-controller", error="401 Unauthorized"))
    assert found.remedy.startswith("put image r.io/virt-api:v2 into the registry: kubectl describe")
    assert "; then repair pod virt-controller-1-x, which has another cause" in found.remedy
    assert "and 1 more" not in found.brief


@pytest.mark.parametrize(
    ("part", "starts", "switch"),
    [
        (component("virt-api"), "put image r.io/virt-api:v2 into", False),
        (component(API, ready=1), f"put image r.io/{API}:v2 into", False),  # the old one serves
        (component(API, error="x509: unknown authority"), "let the container runtime", True),
    ],
)
def test_what_is_in_use_is_not_switched_off(part, starts, switch):
    found = waits(part)
    assert found.remedy.startswith(starts)
    assert ("virtTemplateDeployment" in found.remedy) is switch


def test_what_is_switched_off_already_is_not_switched_off():
    found = waits(component(API), configuration={"virtTemplateDeployment": {"enabled": False}})
    assert "virtTemplateDeployment" not in found.remedy


def test_a_registry_that_is_set_may_be_wrong():
    found = waits(component("virt-api"), imageRegistry="r.io")
    assert "; or correct spec.imageRegistry of KubeVirt" in found.remedy
    assert found.brief.endswith(
        "Put it into the registry, or correct spec.imageRegistry of KubeVirt."
    )


def test_a_pod_that_has_just_been_made_is_waited_for():
    assert waits(component(API, age="12")) is None
