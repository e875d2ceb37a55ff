"""Each controller that cordons nodes is named by what it leaves on the node,
or by the object that orders it.
"""

import json
from typing import Any

import pytest

from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates import cordoners, kured
from virt_admit.model.node_updates.operators import left_maintenances

CORDONED = {"unschedulable": True}


def node(name="a", spec=CORDONED, **metadata):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **metadata},
        "spec": dict(spec),
    }


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
PLAN = {
    "apiVersion": "upgrade.cattle.io/v1",
    "kind": "Plan",
    "metadata": {"name": "os", "namespace": "system-upgrade"},
    "spec": {"cordon": True},
}
MAINTENANCE = {
    "apiVersion": "nodemaintenance.medik8s.io/v1beta1",
    "kind": "NodeMaintenance",
    "metadata": {"name": "disks"},
    "spec": {"nodeName": "a"},
    "status": {"phase": "Succeeded"},
}
DRAINED = {"key": "medik8s.io/drain", "effect": "NoSchedule"}
EXCLUDED = "remediation.medik8s.io/exclude-from-remediation"
LEFT = node(spec={**CORDONED, "taints": [DRAINED]}, labels={EXCLUDED: "true"})
MACHINE = {
    "apiVersion": "cluster.x-k8s.io/v1beta1",
    "kind": "Machine",
    "metadata": {"name": "m", "namespace": "capi", "deletionTimestamp": "2026-06-01T12:00:00Z"},
    "spec": {},
    "status": {"nodeRef": {"name": "a"}},
}
UPGRADED = {"labels": {"nvidia.com/ofed-driver-upgrade-state": "drain-required"}}
REBOOT = {"annotations": {"sriovnetwork.openshift.io/state": "Reboot_Required"}}

SRIOV = "the SR-IOV network operator or by hand"
CASES = {
    "Plan": ([node(), PLAN_POD, PLAN], "Plan os of the system upgrade controller", None),
    "maintenance": ([node(), MAINTENANCE], "NodeMaintenance disks", False),
    "maintenance that is gone": (
        [LEFT],
        "the Node Maintenance Operator, for a NodeMaintenance that does not exist any more",
        False,
    ),
    "taint of a maintenance that is gone": (
        [tainted("medik8s.io/drain")],
        "the Node Maintenance Operator, for a NodeMaintenance that does not exist any more",
        False,
    ),
    "deletion": ([node(), MACHINE], "the deletion of Machine capi/m", None),
    "Talos": (
        [node(annotations={"talos.dev/cordoned": "true"})],
        "Talos, which upgrades or reboots it",
        None,
    ),
    "network operator": (
        [node(**UPGRADED)],
        "the NVIDIA network operator for its driver upgrade",
        None,
    ),
    "reboot for SR-IOV": ([node(**REBOOT)], SRIOV, None),
    "Karpenter": (
        [tainted("karpenter.sh/disrupted")],
        "Karpenter, which deletes it (taint karpenter.sh/disrupted)",
        None,
    ),
    "autoscaler": (
        [tainted("ToBeDeletedByClusterAutoscaler")],
        "the cluster autoscaler, which deletes it",
        None,
    ),
}
BEFORE = "an order from before kured drained it"
BEGUN = "weave.works/kured-reboot-in-progress"
RECORD = "kured.dev/node-unschedulable-before-drain"


def taken(minute: int, **annotations: str) -> list[dict[str, Any]]:
    """Return a node that kured began to reboot at 12:05,
    and that was cordoned at a minute of that hour.
    """
    taint = {
        "key": "node.kubernetes.io/unschedulable",
        "effect": "NoSchedule",
        "timeAdded": f"2026-06-01T12:{minute:02}:00Z",
    }
    spec = {**CORDONED, "taints": [taint]}
    return [node(spec=spec, annotations={BEGUN: "2026-06-01T12:05:00Z", **annotations})]


def locked(*, before: bool, **annotations: str) -> list[dict[str, Any]]:
    """Return a node with the lock of kured, which says whether it was cordoned before."""
    value = {
        "nodeID": "a",
        "metadata": {"unschedulable": before},
        "created": "2026-06-01T12:05:00Z",
        "TTL": 0,
    }
    metadata = {
        "name": "kured",
        "namespace": "kube-system",
        "annotations": {kured.LOCK: json.dumps(value)},
    }
    return [
        node(annotations=annotations),
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata},
    ]


@pytest.mark.parametrize(
    ("objects", "by"),
    [
        (taken(5), "kured"),
        (taken(4), BEFORE),
        (taken(4, **{RECORD: "false"}), "kured"),
        (taken(6, **{RECORD: "true"}), BEFORE),
        (locked(before=False), "kured"),
        (locked(before=True), BEFORE),
        (locked(before=False, **{RECORD: "true"}), BEFORE),
    ],
)
def test_kured_records_a_cordon_from_before(objects: list[dict[str, Any]], by: str) -> None:
    found = cordon(objects)
    assert found is not None
    assert found.by.startswith(by)
    assert ("uncordons the node itself" in found.waits) is (by == "kured")


MARKED_AT = 1780300800
"""2026-06-01T08:00:00Z"""
KEEP = "Do not uncordon it by hand meanwhile."
NOTHING = {
    "by hand": [node()],
    "label alone": [node(labels={EXCLUDED: "true"})],
    "not cordoned": [
        node(spec={}, annotations={"talos.dev/cordoned": "true"}),
        PLAN_POD,
        MAINTENANCE,
    ],
    "Plan of another node": [
        node("a"),
        {
            **PLAN_POD,
            "metadata": {**PLAN_POD["metadata"], "labels": {"upgrade.cattle.io/plan": "os"}},
        },
    ],
    "pod of a deleted Plan that does not cordon": [node(), PLAN_POD],
    "Plan that has ended": [node(), {**PLAN_POD, "status": {"phase": "Succeeded"}}],
    "driver that waits": [node(labels={"nvidia.com/gpu-driver-upgrade-state": "upgrade-required"})],
}


MARKED = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "a"},
    "spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "value": str(MARKED_AT)}]},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-06-03T08:00:00Z"}
        ]
    },
}


def test_a_mark_of_the_autoscaler_is_forgotten_unless_a_machine_is_deleted():
    found = cordon([MARKED])
    assert found is not None
    assert found.ends is None
    assert "older releases not those of cordoned nodes" in found.waits
    assert found.remedy.endswith("kubectl taint nodes a ToBeDeletedByClusterAutoscaler-")
    assert "Do not uncordon" not in found.words
    unread = cordoners.of_node(Object(MARKED), Snapshot([Object(MARKED)]))
    assert unread is not None
    assert unread.ends is None
    assert cordoners.of_node(Object(MARKED), Snapshot([], complete=["*"])).ends is None


def test_a_node_in_deletion_is_not_called_cordoned():
    deleted = {**MARKED, "metadata": {"name": "a", "deletionTimestamp": "2026-06-03T07:55:00Z"}}
    found = cordon([deleted])
    assert found is not None
    assert found.words == "This node is being deleted for 5 min. " + KEEP
    assert not found.remedy


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


def test_a_maintenance_is_named_with_the_reason_of_its_administrator():
    spec = {**MAINTENANCE["spec"], "reason": "CHG1: new\n  memory"}
    found = cordon([node(), {**MAINTENANCE, "spec": spec}])
    assert found is not None
    assert found.words.startswith(
        "This node is cordoned by NodeMaintenance disks (its reason: CHG1: new memory)."
    )


@pytest.mark.parametrize(
    ("taken", "said"),
    [
        (
            "2026-06-01T12:00:01.6Z",
            "took Lease medik8s-leases/node-a again at 2026-06-01T12:00:01Z.",
        ),
        ("2026-06-01T10:00:00Z", "took Lease medik8s-leases/node-a at 2026-06-01T10:00:00Z."),
    ],
)
def test_what_a_maintenance_has_left_is_taken_back_as_a_whole(taken, said):
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "a.1", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "a"},
        "reason": "UncordonNode",
        "lastTimestamp": "2026-06-01T12:00:00Z",
    }
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "node-a", "namespace": "medik8s-leases"},
        "spec": {"holderIdentity": "node-maintenance", "acquireTime": taken},
    }
    known = Snapshot(map(Object, [LEFT, event, lease]), complete=["*"])
    found = cordoners.of_node(Object(LEFT), known)
    assert found is not None
    found = left_maintenances.with_lease(found, Object(LEFT), known)
    assert "uncordoned the node at 2026-06-01T12:00:00Z (event UncordonNode)" in found.waits
    assert said in found.waits
    steps = ("uncordon a", "taint nodes a medik8s.io/drain-", f"label node a {EXCLUDED}-")
    assert all(f"kubectl {each}" in found.remedy for each in steps)


def test_a_maintenance_that_exists_or_may_exist_is_not_left():
    goes = {**MAINTENANCE["metadata"], "deletionTimestamp": "2026-06-01T12:00:00Z"}
    assert cordon([LEFT, {**MAINTENANCE, "metadata": goes}]) is None
    unread = Snapshot([Object(LEFT)])
    assert cordoners.of_node(Object(LEFT), unread) is None
