"""Images that a pod waits for: whose image it is, why the runtime cannot pull it,
and what ends that.
"""

import pytest

from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.evidence import complaints
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

NOW = "2027-03-01T10:00:00Z"
IMAGE = "registry.example/disks/os:1"
FRAME = (
    f'Failed to pull image "{IMAGE}": rpc error: code = Unknown desc = failed to resolve reference '
    f'"{IMAGE}": '
)


def obj(kind, name, api="kubevirt.io/v1", **fields):
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": name, "namespace": "shop"},
        **fields,
    }


def launcher(container="volumeroot-init"):
    waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{IMAGE}"'}
    found = obj("Pod", "virt-launcher-db", "v1", spec={"nodeName": "w1"})
    found["metadata"]["labels"] = {"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": "db"}
    return found | {
        "status": {"initContainerStatuses": [{"name": container, "state": {"waiting": waiting}}]}
    }


def failed(message, second):
    about = {"kind": "Pod", "name": "virt-launcher-db", "namespace": "shop"}
    event = obj(
        "Event",
        f"db.{second}",
        "v1",
        involvedObject=about,
        type="Warning",
        reason="Failed",
        message=message,
    )
    return event | {"lastTimestamp": f"2027-03-01T09:57:0{second}Z"}


def cluster(error, container="volumeroot-init"):
    vmi = obj(
        "VirtualMachineInstance",
        "db",
        spec={"volumes": [{"name": "root", "containerDisk": {"image": IMAGE}}]},
    )
    said = [failed(f"{FRAME}{error}", 1)] if error else []
    every = [
        launcher(container),
        vmi,
        obj("VirtualMachine", "db"),
        *said,
        failed("Error: ImagePullBackOff", 5),
    ]
    return Snapshot(list(map(Object, every)), ["*"], time=NOW)


def asked(error, container="volumeroot-init"):
    found = cluster(error, container)
    pod = Object(launcher(container))
    fault = pod_starts.fault(pod, found)
    return (fault.words, fault.remedy) if fault is not None else ("", "")


@pytest.mark.parametrize(
    ("error", "way"),
    [
        (
            "dial tcp 10.0.0.1:443: i/o timeout",
            "name a copy of the image in a registry that w1 reaches, or let it reach",
        ),
        (
            "registry.example/disks/os:1: not found",
            "correct the name and tag of the image; the VM names it",
        ),
        (
            "pull access denied",
            "correct the name of the image, or give it credentials for registry registry.example",
        ),
        (
            "x509: unknown authority",
            "let the container runtime of w1 trust the certificate of registry registry.example",
        ),
        (
            "429 Too Many Requests (toomanyrequests)",
            "wait, or give the runtime of the nodes a mirror",
        ),
        (
            "failed to get reader from content store: blob sha256:9e2f: blob not found: not found",
            "repair the image store of the container runtime of w1, which has lost a part",
        ),
        ("something new", "see whether w1 can pull it: kubectl describe pod"),
    ],
)
def test_the_error_of_the_runtime_decides_what_helps(error, way):
    why, remedy = asked(error)

    assert why == (
        f'ImagePullBackOff: Back-off pulling image "{IMAGE}" of its containerDisk volume root: '
        f"{error}"
    )
    assert remedy.startswith(way)
    assert ("kubectl edit vm db -n shop" in remedy) is way.startswith(("name", "correct"))


def test_an_image_of_another_container_is_no_disk_of_the_vm():
    why, remedy = asked("dial tcp 10.0.0.1:443: i/o timeout", "compute")

    assert "containerDisk" not in why + remedy
    assert why.endswith(f'"{IMAGE}": dial tcp 10.0.0.1:443: i/o timeout')


def test_without_an_event_nothing_is_said_about_the_registry():
    why, remedy = asked("")

    assert (
        why
        == f'ImagePullBackOff: Back-off pulling image "{IMAGE}" of its containerDisk volume root'
    )
    assert remedy.startswith("see whether w1 can pull it")


def test_a_warning_that_only_names_a_reason_gives_way():
    found = [each.message for each in complaints.of(Object(launcher()), cluster("i/o timeout"))]

    assert f"{FRAME}i/o timeout" in found
    assert "Error: ImagePullBackOff" not in found
    assert "Error: ImagePullBackOff" in [
        each.message for each in complaints.of(Object(launcher()), cluster(""))
    ]
