"""Each controller that cordons nodes is named by what it leaves on the node, or by the object that orders it."""

import pytest

from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates import cordoners

CORDONED = {"unschedulable": True}


def node(name="a", spec=CORDONED, **metadata):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}, "spec": dict(spec)}


def tainted(key):
    return node(spec={"taints": [{"key": key, "effect": "NoSchedule"}]})


PLAN_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "apply-os-on-a",
        "namespace": "system-upgrade",
        "labels": {"upgrade.cattle.io/plan": "os", "upgrade.cattle.io/node": "a"},
    },
    "spec": {"nodeName": "a"},
    "status": {"phase": "Pending"},
}
MAINTENANCE = {
    "apiVersion": "nodemaintenance.medik8s.io/v1beta1",
    "kind": "NodeMaintenance",
    "metadata": {"name": "disks"},
    "spec": {"nodeName": "a"},
    "status": {"phase": "Succeeded"},
}
MACHINE = {
    "apiVersion": "cluster.x-k8s.io/v1beta1",
    "kind": "Machine",
    "metadata": {"name": "m", "namespace": "capi", "deletionTimestamp": "2026-06-01T12:00:00Z"},
    "spec": {},
    "status": {"nodeRef": {"name": "a"}},
}
UPGRADED = {"labels": {"nvidia.com/ofed-driver-upgrade-state": "drain-required"}}
REBOOT = {"annotations": {"sriovnetwork.openshift.io/state": "Reboot_Required"}}

CASES = {
    "Plan": ([node(), PLAN_POD], "Plan os of the system upgrade controller", None),
    "maintenance": ([node(), MAINTENANCE], "NodeMaintenance disks", False),
    "deletion": ([node(), MACHINE], "the deletion of Machine capi/m", None),
    "Talos": ([node(annotations={"talos.dev/cordoned": "true"})], "Talos, which upgrades or reboots it", None),
    "network operator": ([node(**UPGRADED)], "the NVIDIA network operator for its driver upgrade", None),
    "reboot for SR-IOV": ([node(**REBOOT)], "the SR-IOV network operator", None),
    "Karpenter": (
        [tainted("karpenter.sh/disrupted")],
        "Karpenter, which deletes it (taint karpenter.sh/disrupted)",
        None,
    ),
    "autoscaler": ([tainted("ToBeDeletedByClusterAutoscaler")], "the cluster autoscaler, which deletes it", None),
}
NOTHING = {
    "by hand": [node()],
    "not cordoned": [node(spec={}, annotations={"talos.dev/cordoned": "true"}), PLAN_POD, MAINTENANCE],
    "Plan of another node": [
        node("a"),
        {**PLAN_POD, "metadata": {**PLAN_POD["metadata"], "labels": {"upgrade.cattle.io/plan": "os"}}},
    ],
    "Plan that has ended": [node(), {**PLAN_POD, "status": {"phase": "Succeeded"}}],
    "driver that waits": [node(labels={"nvidia.com/gpu-driver-upgrade-state": "upgrade-required"})],
}


def cordon(objects):
    return cordoners.of_node(Object(objects[0]), Snapshot(map(Object, objects), complete=["*"]))


@pytest.mark.parametrize("case", CASES)
def test_who_cordoned_a_node_is_known(case):
    objects, by, ends = CASES[case]
    found = cordon(objects)
    assert found is not None
    assert found.by.startswith(by)
    assert found.ends is ends
    assert not found.uncordon


@pytest.mark.parametrize("case", NOTHING)
def test_nothing_is_accused_without_a_mark(case):
    assert cordon(NOTHING[case]) is None
