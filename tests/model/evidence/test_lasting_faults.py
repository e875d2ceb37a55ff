"""Each fault that an object has reported for long is among the notes of a scan; a young one is
not."""

from __future__ import annotations

import pytest

from tests.builders import manifest
from virt_admit.model.evidence import reported
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = "2026-11-26T12:00:00Z"
OLD = "2026-11-26T10:00:00Z"
YOUNG = "2026-11-26T11:55:00Z"


def told(since, *objects):
    for obj in objects:
        obj.data["metadata"].setdefault("creationTimestamp", since)
    return [str(each) for each in reported.of_cluster(Snapshot(objects, ["*"], time=NOW), ())]


def condition(kind, status, since, message="", reason=""):
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    }


def pod(since, phase="Pending", owner="ReplicaSet", spec=None, **status):
    owners = [{"apiVersion": "v1", "kind": owner, "name": "web-7", "controller": True}]
    ready = condition("Ready", "False", since, "containers with unready status: [web]")
    return manifest(
        "v1", "Pod", "web-7-x", "shop",
        metadata={"ownerReferences": owners}, spec={"nodeName": "n1", **(spec or {})},
        status={"phase": phase, "conditions": [ready], **status},
    )  # fmt: skip


def waiting(reason, message, **more):
    state = {"waiting": {"reason": reason, "message": message}}
    return {"name": "web", "ready": False, "state": state, **more}


def crash(since):
    ended = {"exitCode": 3, "reason": "Error", "message": "no table", "finishedAt": NOW}
    state = waiting("CrashLoopBackOff", "back-off", restartCount=9, lastState={"terminated": ended})
    return pod(since, "Running", containerStatuses=[state])


def restarting(since, reason="Error", code=3):
    found = crash(since)
    found.data["metadata"]["creationTimestamp"] = since
    found.data["status"]["conditions"] = [condition("Ready", "True", since)]
    ended = found.data["status"]["containerStatuses"][0]["lastState"]["terminated"]
    ended.update(reason=reason, exitCode=code)
    return found


def paused():
    found = pod(OLD, "Running", owner="VirtualMachineInstance")
    found.data["status"]["conditions"][0]["reason"] = "ReadinessGatesNotReady"
    return found


def image(since):
    return pod(since, containerStatuses=[waiting("ImagePullBackOff", "cannot pull web:1")])


def gated(since):
    found = pod(since, spec={"schedulingGates": [{"name": "example.com/gate"}]})
    del found.data["spec"]["nodeName"]
    return found


def refused(since, owner="DaemonSet"):
    return pod(since, "Failed", owner, reason="OutOfcpu", message="not enough resource: cpu")


def thing(since, **status):
    return manifest("example.com/v1", "Thing", "t-1", "shop", status=status)


def of_object(since):
    return thing(since, conditions=[condition("Ready", "False", since, "the pool is full")])


def unknown(since):
    return thing(since, conditions=[condition("Reconciled", "Unknown", since, "waits for probes")])


def of_part(since):
    parts = {"disk-1": {"conditions": [condition("Schedulable", "False", since, "over limit")]}}
    return thing(since, diskStatus=parts)


FAULTS = {
    "crash": (crash, "CrashLoopBackOff; it ended last with Error (exit code 3): no table, 9"),
    "restarts": (restarting, "it ended last with Error (exit code 3): no table, 9 restarts"),
    "image": (image, "container web: ImagePullBackOff: cannot pull web:1"),
    "gate": (gated, "waits until scheduling gate example.com/gate is removed"),
    "refused": (refused, "phase Failed: OutOfcpu: not enough resource: cpu"),
    "condition": (of_object, "Ready is False: the pool is full"),
    "unknown": (unknown, "Reconciled is Unknown: waits for probes"),
    "condition of a part": (of_part, "status.diskStatus.disk-1: Schedulable is False: over limit"),
    "state": (lambda since: thing(since, state="Error", stateMessage="lost"), "state Error: lost"),
    "part": (
        lambda since: thing(since, nodes=[{"name": "n1", "state": "Failed", "message": "full"}]),
        "n1: state Failed: full",
    ),
    "validation": (
        lambda since: thing(since, phase="FailedValidation", validationErrors=["no location"]),
        "phase FailedValidation: no location",
    ),
    "error": (
        lambda since: thing(since, error={"message": "quota", "time": since}),
        "error: quota",
    ),
    "pending": (
        lambda since: thing(
            since, phase="Pending", reason="NotMet", message="no API", lastTransitionTime=since
        ),
        "phase Pending: NotMet: no API",
    ),
    "host": (
        lambda since: thing(since, operationalStatus="error", errorMessage="BMC timeout"),
        "operationalStatus error: BMC timeout",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "words"), FAULTS.values(), ids=FAULTS)
def test_a_lasting_fault_is_said(make, words):
    (line,) = told(OLD, make(OLD))
    assert words in line
    assert told(YOUNG, make(YOUNG)) == []


@pytest.mark.parametrize(
    "healthy",
    [
        refused(OLD, "ReplicaSet"),
        refused(OLD, "Job"),
        thing(OLD, phase="Failed", message="bad disk", completionTimestamp="2026-11-20T10:00:00Z"),
        thing(OLD, phase="FailedOver", message="the other site has it"),
        thing(OLD, v1beta2={"conditions": [condition("Ready", "False", OLD, "said already")]}),
        thing(OLD, conditions=[condition("Progressing", "True", OLD, "rolls out")]),
        manifest(
            "kubevirt.io/v1", "VirtualMachineInstance", "db", "shop", status={"phase": "Failed"}
        ),
        thing(OLD, conditions=[condition("IPsAvailable", "Unknown", OLD, "254", "noreason")]),
        thing(OLD, zones=[{"conditions": [condition("Ready", "Unknown", OLD, "not managed")]}]),
        thing(
            OLD,
            conditionalUpdates=[{"conditions": [condition("Applied", "False", OLD, "at risk")]}],
        ),
        manifest(
            "longhorn.io/v1beta2", "Engine", "e-1", "shop",
            spec={"desireState": "running"}, status={"currentState": "starting"},
        ),
        thing(OLD, lastSyncError="timed out"),
        manifest("v1", "Pod", "installer-5", "etcd", status={"phase": "Failed", "message": "old"}),
        manifest(
            "velero.io/v1", "Backup", "b-1", "velero",
            metadata={"creationTimestamp": "2026-11-20T10:00:00Z"},
            status={"phase": "FailedValidation", "validationErrors": ["no location"]},
        ),
        paused(),
        restarting(OLD, reason="Unknown", code=255),
        restarting("2026-01-01T00:00:00Z"),
        manifest(
            "cdi.kubevirt.io/v1beta1", "DataSource", "win10", "images",
            status={"conditions": [condition("Ready", "False", OLD, "PVC not found", "NotFound")]},
        ),
        thing(OLD, conditions=[condition("Upgradeable", "False", OLD, "ack", "AdminAckRequired")]),
        thing(OLD, operation={"phase": "Failed", "message": "no access", "finishedAt": OLD}),
        manifest(
            "example.com/v1", "Replication", "r-1", "shop", spec={"replicationState": "secondary"},
            status={"conditions": [condition("Degraded", "True", OLD, "volume is degraded")]},
        ),
    ],
    ids=[
        *("left over", "job", "ended", "failed over", "repeated", "progress", "VMI", "Cilium"),
        *("unmanaged", "offered", "attaching", "former error", "installer", "old backup", "paused"),
        *("rebooted", "few restarts", "data source"),
        *("acknowledgement", "former run", "standby"),
    ],
)  # fmt: skip
def test_what_is_usual_is_not(healthy):
    assert told(OLD, healthy) == []


def test_one_cause_of_several_objects_is_one_line():
    message = "cannot attach pvc-0b1f43a1-0a3d-4d7c-9d7b-{}"
    things = [
        manifest(
            "example.com/v1", "Thing", f"t-{end}", "shop",
            status={"state": "error", "message": message.format(end)},
        )
        for end in ("0a1b2c3d4e5f", "5f4e3d2c1b0a")
    ]  # fmt: skip
    (line,) = told(OLD, *things)
    assert "shop/t-0a1b2c3d4e5f and shop/t-5f4e3d2c1b0a report" in line


def test_a_pod_of_a_node_that_is_not_ready_says_nothing_of_its_own():
    status = {"conditions": [condition("Ready", "False", OLD)]}
    node = manifest("v1", "Node", "n1", status=status)
    assert len(told(OLD, pod(OLD, "Running"))) == 1
    assert told(OLD, pod(OLD, "Running"), node) == []


def test_of_a_kind_of_two_groups_the_group_is_said():
    status = {"conditions": [condition("Ready", "False", OLD, "no infrastructure")]}
    kinds = [("provisioning.cattle.io/v1", {}), ("cluster.x-k8s.io/v1beta1", status)]
    both = [manifest(version, "Cluster", "local", status=status) for version, status in kinds]
    (line,) = told(OLD, *both)
    assert line.startswith("Cluster.cluster.x-k8s.io local reports: ")
    (line,) = told(OLD, both[1])
    assert line.startswith("Cluster local reports: ")


def test_what_a_finding_says_of_the_vm_or_the_volume_is_not_repeated():
    why = "volume pv-1 of storage system west is not ready for workloads"
    launcher = pod(OLD, owner="VirtualMachineInstance")
    launcher.data["status"]["containerStatuses"] = [waiting("FailedAttachVolume", why)]
    attachment = manifest(
        "storage.k8s.io/v1", "VolumeAttachment", "csi-1",
        spec={"source": {"persistentVolumeName": "pv-1"}},
        status={"attachError": {"message": f"rpc error: code = Aborted desc = {why}", "time": NOW}},
    )  # fmt: skip
    assert len(told(OLD, launcher)) == len(told(OLD, attachment)) == 1
    cluster = Snapshot([launcher, attachment], ["*"], time=NOW)
    said = [f"shop/web-7: its pod has not started for 2 h: {why}. Repair the volume."]
    assert reported.of_cluster(cluster, said) == ()


def test_secrets_are_not_said():
    message = "Get https://bob:hunter2@git.example.com/r?token=abcdef: Bearer eyJhbGciOiJSUzI1NiJ9"
    (line,) = told(OLD, thing(OLD, error=message))
    assert "error: Get https://git.example.com/r: Bearer …" in line


@pytest.mark.parametrize(
    ("said", "is_told"),
    [
        ("pod web-7-x: it demands label pool=spot (nodeSelector), which no node has", 0),
        ("pod web-7-y: it demands label pool=spot (nodeSelector), which no node has", 1),
        ("pod web-7-x is not ready", 1),
    ],
)
def test_a_deployment_whose_pod_is_told_with_its_cause_is_not_told_again(said, is_told):
    own = pod(OLD, spec={"nodeName": "", "nodeSelector": {"pool": "spot"}})
    made = manifest(
        "apps/v1", "ReplicaSet", "web-7", "shop",
        metadata={"ownerReferences": [{"kind": "Deployment", "name": "web", "controller": True}]},
    )  # fmt: skip
    lacks = condition("Available", "False", OLD, "no", "MinimumReplicasUnavailable")
    status = {"conditions": [lacks]}
    deployment = manifest(
        "apps/v1", "Deployment", "web", "shop", spec={"replicas": 1}, status=status
    )
    objects = [own, made, deployment, manifest("v1", "Node", "n1")]
    found = reported.of_cluster(Snapshot(objects, ["*"], time=NOW), [said])
    assert len([each for each in found if each.kind == "Deployment"]) == is_told
