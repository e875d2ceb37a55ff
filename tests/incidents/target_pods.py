"""Migrations whose target pod is refused, or does not start."""

from tests.healthy.clusters import plain
from tests.healthy.machines import claim, machine
from tests.healthy.parts import ago, conditions, obj

from .machines import NO, NOT_YES, Incident, draining, event, find, guest, migration, target_pod

RELEASE = (1, 8)
KUBEVIRT = "https://github.com/kubevirt/kubevirt"


def limit_range() -> Incident:
    domain = {"resources": {"requests": {"memory": "4Gi", "cpu": "2"}}}
    items = draining(RELEASE, domain=domain, requests={"cpu": "2"})
    limit = {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}}
    items += [
        obj("LimitRange", "v1", "small", "vms", spec={"limits": [limit]}),
        migration("web", {"Pending": 580}),
    ]
    text = (
        'Error creating pod: Pod "virt-launcher-web-5xgqh" is invalid: '
        'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to '
        "cpu limit of 1"
    )
    items.append(
        event(
            find(items, "VirtualMachineInstance", "web"),
            "FailedCreate",
            text,
            "virtualmachine-controller",
        )
    )
    return Incident(
        "limit-range", f"{KUBEVIRT}/issues/2143", items, NOT_YES, (r"cpu limit|LimitRange",)
    )


def attachment_refused() -> Incident:
    items = draining(RELEASE, hotplugged=["data"]) + claim("data")
    limit = {"type": "Container", "maxLimitRequestRatio": {"memory": "2"}}
    items.append(obj("LimitRange", "v1", "ratio", "vms", spec={"limits": [limit]}))
    move = migration("web", {"Pending": 580})
    items.append(move)
    target_pod(items, "web", "w2", move, 570, ready=True)
    text = (
        'failed to create attachment pod: pods "hp-volume-4x9tk" is forbidden: memory max limit to '
        "request ratio per Container is 2, but provided ratio is 40.000000"
    )
    items.append(
        event(
            find(items, "VirtualMachineInstance", "web"),
            "FailedCreate",
            text,
            "virtualmachine-controller",
        )
    )
    facts = (r"attach", r"ratio|LimitRange")
    return Incident("attachment-refused", f"{KUBEVIRT}/issues/9302", items, NOT_YES, facts)


def image() -> Incident:
    items = draining(RELEASE)
    disk = {"name": "disk", "containerDisk": {"image": "quay.io/disks/fedora:latest"}}
    find(items, "VirtualMachineInstance", "web")["spec"]["volumes"].append(disk)
    move = migration("web", {"Pending": 580, "Scheduling": 575})
    items.append(move)
    reference = "sha256@sha256:4a0c3f9526551d0294079f1b0171a071a57fe0bf60a2e8529bf4102ee63a67cd"
    text = f'Back-off pulling image "{reference}"'
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": text}}
    pod = target_pod(items, "web", "w2", move, 575, ready=False, waiting=waiting)
    pod["status"]["containerStatuses"][0] |= {"name": "volumedisk", "image": reference}
    refused = (
        f'Failed to pull image "{reference}": rpc error: code = Unknown desc = failed to resolve '
        "reference"
    )
    items.append(event(pod, "Failed", refused, "kubelet"))
    return Incident("image", f"{KUBEVIRT}/issues/8471", items, NOT_YES, (r"image|ImagePull",))


def old_pod() -> Incident:
    """The pod of its last migration does not end: its containers have,
    so that kubectl shows it as Completed.
    """
    items = plain(RELEASE) + guest("web", "w2", RELEASE)
    vmi = find(items, "VirtualMachineInstance", "web")
    old = machine("web", "w1", RELEASE, disks=["web"])[2]
    old["metadata"] |= {"name": "virt-launcher-web-n2lww", "uid": "uid-old"}
    old["status"] |= {
        "phase": "Running",
        "conditions": conditions(Ready=False),
        "startTime": ago(hours=3),
    }
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": ago(minutes=11)}}
    old["status"]["containerStatuses"] = [
        {"name": "compute", "ready": False, "restartCount": 0, "state": ended}
    ]
    vmi["status"]["activePods"]["uid-old"] = "w1"
    vmi["status"]["evacuationNodeName"] = "w2"
    items += [old, migration("web", {"Pending": 560}, source="w2")]
    facts = (r"virt-launcher-web-n2lww",)
    return Incident(
        "active-pods", f"{KUBEVIRT}/issues/12773", items, NOT_YES, facts, ("drain", "w2")
    )


def late_volume() -> Incident:
    """A volume was plugged in between Pending and Scheduling:
    no attachment pod follows the target pod.
    """
    items = draining(RELEASE, hotplugged=["data"]) + claim("data")
    move = migration("web", {"Pending": 4200, "Scheduling": 4198})
    items.append(move)
    target_pod(items, "web", "w2", move, 4199, ready=True)
    facts = (r"volume data was plugged in after", r"virtctl migrate-cancel web")
    return Incident("late-volume", f"{KUBEVIRT}/pull/17783", items, NO, facts)


def pod_security() -> Incident:
    shared = {"filesystems": [{"name": "share", "virtiofs": {}}]}
    items = draining(RELEASE, domain={"devices": shared})
    find(items, "Namespace", "vms")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = (
        "restricted"
    )
    items.append(migration("web", {"Pending": 580}))
    text = (
        'Error creating pod: pods "virt-launcher-web-8kq2x" is forbidden: violates PodSecurity '
        '"restricted:latest": unrestricted capabilities (container "virtiofs-share" must not '
        'include "CHOWN" in securityContext.capabilities.add)'
    )
    items.append(
        event(
            find(items, "VirtualMachineInstance", "web"),
            "FailedCreate",
            text,
            "virtualmachine-controller",
        )
    )
    return Incident(
        "pod-security", f"{KUBEVIRT}/pull/8649", items, NOT_YES, (r"PodSecurity|Pod Security",)
    )


def multi_attach() -> Incident:
    items = draining(RELEASE, disks=["fs"]) + claim("fs", volume_mode="Filesystem")
    move = migration("web", {"Pending": 660, "Scheduling": 655})
    items.append(move)
    pod = target_pod(
        items,
        "web",
        "w2",
        move,
        655,
        ready=False,
        waiting={"waiting": {"reason": "ContainerCreating"}},
    )
    text = (
        'Multi-Attach error for volume "pvc-vms-fs" Volume is already used by pod(s) '
        "virt-launcher-web-k2x7q"
    )
    items.append(
        event(pod, "FailedAttachVolume", text, "attachdetach-controller", count=1, late=600)
    )
    mount = (
        'MountVolume.MountDevice failed for volume "pvc-vms-fs" : rbd image replicapool/csi-vol-1 '
        "is still being used"
    )
    items.append(event(pod, "FailedMount", mount, "kubelet"))
    source = "https://github.com/kubernetes/kubernetes/issues/82453"
    return Incident(
        "multi-attach",
        source,
        items,
        NOT_YES,
        (r"Multi-Attach|FailedMount|still being used|FailedAttach",),
    )


def incidents() -> list[Incident]:
    return [
        limit_range(),
        attachment_refused(),
        image(),
        old_pod(),
        late_volume(),
        pod_security(),
        multi_attach(),
    ]
