"""Pods that have ended and stay, because their node has lost the CSI driver of their volumes."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.drain import drain_plan, pod_evictions
from virt_admit.forecasts.drain.states import dying_pods
from virt_admit.forecasts.placement.components import node_drivers
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.drain import text as drain_text

NOON, LONGHORN = "2026-01-01T12:00:00Z", "driver.longhorn.io"
CLAIM = manifest("v1", "PersistentVolumeClaim", "disk", "shop", spec={"volumeName": "pv"})
FENCED = "bring w2 back or fence it, as its own report says: virt-admit explain node/w2"
UNREPORTED = "the kubelet has not reported its end"
FENCE = "node.kubernetes.io/out-of-service"


def node(name, *taints, status="True", seen=NOON):
    ready = {"type": "Ready", "status": status, "lastHeartbeatTime": seen}
    return manifest(
        "v1", "Node", name, spec={"taints": list(taints)}, status={"conditions": [ready]}
    )


def taint(effect="NoExecute", key="maintenance"):
    return {"key": key, "value": "firmware", "effect": effect}


def registered(on, *drivers):
    spec = {"drivers": [{"name": each, "nodeID": on} for each in drivers]}
    return manifest("storage.k8s.io/v1", "CSINode", on, spec=spec)


def plugin(name, space, on):
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "controller": True}
    metadata = {"ownerReferences": [owner]}
    running = {"phase": "Running"}
    return [
        manifest("apps/v1", "DaemonSet", name, space, spec={"template": {"spec": {}}}),
        manifest(
            "v1",
            "Pod",
            f"{name}-1",
            space,
            metadata=metadata,
            spec={"nodeName": on},
            status=running,
        ),
    ]


def ended(state="terminated"):
    volume = {"name": "d", "persistentVolumeClaim": {"claimName": "disk"}}
    status = {"phase": "Failed", "containerStatuses": [{"name": "app", "state": {state: {}}}]}
    metadata = {"deletionTimestamp": "2026-01-01T11:00:00Z", "deletionGracePeriodSeconds": 30}
    spec = {"nodeName": "w2", "volumes": [volume]}
    return manifest("v1", "Pod", "app", "shop", metadata=metadata, spec=spec, status=status)


def blocker(*objects, driver=LONGHORN, name="longhorn-csi-plugin", pod=None, here=()):
    volume = manifest("v1", "PersistentVolume", "pv", spec={"csi": {"driver": driver}})
    known = [node("w1"), registered("w1", driver), *plugin(name, "storage", "w1")]
    own = [CLAIM, volume, registered("w2", *here), pod or ended()]
    snapshot = Snapshot([*known, *own, *objects], complete=["*"], time=NOON)
    (found,) = pod_evictions.of_node(snapshot, "w2").lasting
    return found


def test_a_taint_took_the_driver_off_the_node_together_with_the_pods():
    found = blocker(node("w2", taint()))

    assert found.reason == (
        f"it should have ended 60 min ago, but its volumes cannot be unmounted: CSI driver "
        f"{LONGHORN} is not registered on w2 (no pod there: DaemonSet storage/longhorn-csi-plugin "
        "does not tolerate taint maintenance=firmware:NoExecute)"
    )
    assert "kubelet" not in found.remedy
    assert found.remedy.startswith(
        "Take the taint off w2, after a cordon (kubectl cordon w2) (Longhorn's setting"
    )
    assert found.remedy.endswith(": kubectl taint nodes w2 maintenance=firmware:NoExecute-")


def test_a_cordoned_node_is_not_cordoned_first():
    own = node("w2", taint())
    own.data["spec"]["unschedulable"] = True

    assert blocker(own).remedy.startswith("Take the taint off w2 (Longhorn's setting")


def test_several_pods_are_not_one():
    both = [ended(), ended()]
    both[1].data["metadata"]["name"] = "db"
    volume = manifest("v1", "PersistentVolume", "pv", spec={"csi": {"driver": LONGHORN}})
    daemons = plugin("longhorn-csi-plugin", "storage", "w1")
    known = [node("w1"), node("w2", taint()), registered("w1", LONGHORN), registered("w2")]
    snapshot = Snapshot([*known, *daemons, CLAIM, volume, *both], complete=["*"], time=NOON)

    told = drain_text.text(drain_plan.plan(snapshot, "w2"))
    assert ": each should have ended 60 min ago" in told


def test_a_node_that_is_kept_for_others_keeps_its_taint():
    kept = node("w2", taint(key="dedicated"))
    known = [node("w1"), registered("w1", LONGHORN), registered("w2", LONGHORN)]
    plugins = plugin("longhorn-csi-plugin", "storage", "w1")
    cluster = Snapshot([*known, *plugins, kept], complete=["*"], time=NOON)
    found = node_drivers.remedy(LONGHORN, "w2", cluster)

    assert found.startswith("let DaemonSet storage/longhorn-csi-plugin tolerate it by Longhorn's")
    assert "(or, as a decision, take the taint off w2)" in found
    assert ": kubectl edit " in found


def test_a_driver_of_others_tolerates_the_taint_at_once():
    found = blocker(node("w2", taint()), driver="csi.vsphere.vmware.com", name="vsphere-csi-node")

    assert "DaemonSet storage/vsphere-csi-node does not tolerate taint" in found.reason
    assert found.remedy.startswith("Let DaemonSet storage/vsphere-csi-node tolerate it")


@pytest.mark.parametrize(
    "taints", [[taint("NoSchedule")], [taint(key=FENCE)]], ids=["NoSchedule", "a fence"]
)
def test_no_other_taint_is_to_be_taken_off(taints):
    found = blocker(node("w2", *taints))

    assert "is not registered on w2" in found.reason
    assert "kubectl taint nodes" not in found.remedy


@pytest.mark.parametrize(
    ("pod", "here"),
    [(ended("running"), ()), (ended(), (LONGHORN,))],
    ids=["a container still runs", "the driver is there"],
)
def test_a_driver_that_is_not_the_cause_is_not_named(pod, here):
    found = blocker(
        node("w2"), *plugin("longhorn-csi-plugin", "storage", "w2")[1:], pod=pod, here=here
    )

    assert "driver" not in found.reason
    assert found.remedy.startswith("Repair the kubelet or the storage of w2")


@pytest.mark.parametrize(
    ("off", "why", "way"),
    [
        ({"status": "Unknown"}, "w2 does not report", FENCED),
        ({"seen": "2026-01-01T11:00:00Z"}, "w2 does not report", FENCED),
        ({"status": "False"}, UNREPORTED, "repair the kubelet or the storage of w2"),
        ({}, UNREPORTED, "repair the kubelet or the storage of w2"),
    ],
    ids=["it does not report", "its heartbeat is old", "it is not Ready", "no container is known"],
)
def test_a_node_that_is_off_is_not_blamed_on_its_taint(off, why, way):
    pod = ended()
    if not off:
        del pod.data["status"]["containerStatuses"]
    known = [node("w1"), node("w2", taint(), **off), registered("w1", LONGHORN), registered("w2")]
    plugins = plugin("longhorn-csi-plugin", "storage", "w1")
    volume = manifest("v1", "PersistentVolume", "pv", spec={"csi": {"driver": LONGHORN}})
    cluster = Snapshot([*known, *plugins, CLAIM, volume, pod], complete=["*"], time=NOON)
    found = dying_pods.of_pod(pod, cluster)

    assert (found.why, found.remedy, found.said) == (why, way, why != UNREPORTED)
