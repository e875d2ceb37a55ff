"""Target pods whose image no kubelet can pull: each retry fails alike,
unless the registry is away for a while.
"""

import pytest

from virt_admit.forecasts.placement.components import unpullable_images
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object

from .machines import draining, event, find, guest, migration, target_pod

DIGEST = "sha256:" + "4a0c3f95" * 8
VM_IMAGE = "quay.io/disks/fedora:latest"
BY_DIGEST = f"quay.io/disks/fedora@{DIGEST}"

OWN_STORE = (
    f'failed to pull and unpack image "{BY_DIGEST}": failed to extract layer {DIGEST}: failed to '
    f"get reader from content store: blob {DIGEST} expected at /var/lib/containerd/blobs: blob not "
    "found: not found"
)
"""A store of one node that is damaged: another node can pull the image."""


def pulling(image, reason="ImagePullBackOff", error="", container="volumedisk"):
    items = draining((1, 8))
    disk = {"name": "disk", "containerDisk": {"image": VM_IMAGE}}
    find(items, "VirtualMachineInstance", "web")["spec"]["volumes"].append(disk)
    move = migration("web", {"Pending": 580, "Scheduling": 575})
    items.append(move)
    text = (
        f'Failed to apply default image tag "{image}"'
        if reason == "InvalidImageName"
        else f'pulling image "{image}"'
    )
    waiting = {"waiting": {"reason": reason, "message": text}}
    pod = target_pod(items, "web", "w2", move, 575, ready=False, waiting=waiting)
    pod["status"]["containerStatuses"][0] |= {"name": container, "image": image}
    if error:
        items.append(
            event(
                pod,
                "Failed",
                f'Failed to pull image "{image}": rpc error: code = NotFound desc = {error}',
                "kubelet",
            )
        )
    return items


@pytest.mark.parametrize(
    ("items", "says"),
    [
        (
            pulling(f"sha256@{DIGEST}"),
            (
                "KubeVirt asks for image sha256@sha256:4a0c3f95…, which is not a valid name of an "
                "image"
            ),
        ),
        (
            pulling("quay.io/Disks:a:b", "InvalidImageName"),
            "image quay.io/Disks:a:b, which is not a valid name of an image",
        ),
        (
            pulling(BY_DIGEST, error=f"failed to resolve {BY_DIGEST}: not found"),
            "is no longer in its registry",
        ),
        (pulling(BY_DIGEST, error="manifest unknown"), "is no longer in its registry"),
        (
            pulling(
                BY_DIGEST,
                error=f"failed to unpack: unexpected media type text/plain for {DIGEST}: not found",
            ),
            "cannot be pulled by that digest (unexpected media type text/plain for sha256:4a0c3f95",
        ),
    ],
)
def test_a_pull_that_fails_each_time_blocks(ask, items, says):
    told = ask(items, "drain", "w1")
    assert "blocks the drain" in told
    assert says in told
    assert "Each retry fails alike" in told
    assert "restart the VM, whose new pod takes the image that the VM names" in told
    assert "virtctl restart web -n vms" in told
    assert ("virtctl stop web -n vms" in told) == ("not a valid name" not in says)
    assert "next stop" not in told
    assert "A drain of w1 does not end." in told


@pytest.mark.parametrize(
    "items",
    [
        pulling(BY_DIGEST),
        pulling(BY_DIGEST, error="dial tcp 10.0.0.1:443: connect: connection refused"),
        pulling(BY_DIGEST, error="toomanyrequests: rate limit"),
        pulling(BY_DIGEST, error=OWN_STORE),
        pulling(BY_DIGEST, error=f"content digest {DIGEST}: not found"),
        pulling(VM_IMAGE, error="not found"),
        pulling("quay.io/kubevirt/virt-launcher:v1.8.0", container="compute"),
    ],
)
def test_a_pull_that_may_succeed_is_not_determined(ask, items):
    told = ask(items, "drain", "w1")
    assert "blocks the drain" not in told
    assert "Each retry fails alike" not in told
    assert "It cannot be determined whether a drain of w1 ends." in told


GONE = f"failed to resolve {BY_DIGEST}: not found"


def another(digest=DIGEST, state="running", container="volumedisk"):
    """Return a guest of another node, with the digest of a container disk that it runs."""
    items = guest("crm", "w2", (1, 8))
    pod = next(each for each in items if each["kind"] == "Pod")
    disk = {"name": container, "imageID": f"quay.io/disks/fedora@{digest}", "state": {state: {}}}
    pod["status"]["containerStatuses"].append(disk)
    return items


def test_vms_with_the_same_image_are_the_next_stops(ask):
    told = ask(pulling(BY_DIGEST, error=GONE) + another(), "upgrade")
    assert "vms/crm on w2 runs the same image and is the next stop" in told
    assert "then do the same with vms/crm on w2 before that drain" in told


@pytest.mark.parametrize(
    "items",
    [another("sha256:" + "5" * 64), another(container="compute-log"), another(state="waiting")],
)
def test_vms_with_another_image_are_not(ask, items):
    assert "next stop" not in ask(pulling(BY_DIGEST, error=GONE) + items, "upgrade")


def test_pods_are_gone_through_once_for_all_vms(monkeypatch):
    items = [*draining((1, 8)), *guest("web", "w1"), *guest("db", "w2")]
    cluster = Snapshot(map(Object, items), ["*"])
    vmi = Object(find(items, "VirtualMachineInstance", "web"))
    asked = []
    monkeypatch.setattr(unpullable_images.vm_ledger, "vmi_name", asked.append)
    for _ in range(3):
        assert list(unpullable_images._others(BY_DIGEST, vmi, cluster)) == []
    assert len(asked) == len(list(cluster.known(POD)))
