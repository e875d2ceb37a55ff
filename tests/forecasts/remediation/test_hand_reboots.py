"""Nodes that an administrator reboots by hand, and nodes that are just back."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement import virt_handlers
from virt_admit.forecasts.remediation import awaited_return, hand_reboots, node_faults
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.node_updates import kured
from virt_admit.model.node_updates.node_phases import Phase

NOON = "2026-01-01T12:00:00Z"


def node(
    name,
    ready="True",
    changed="2025-12-01T00:00:00Z",
    kubelet="v1.35.1",
    cordoned="",
    taints=(),
    labels=None,
):
    spec = {"taints": list(taints)}
    if cordoned:
        spec["unschedulable"] = True
        spec["taints"].append(
            {
                "key": "node.kubernetes.io/unschedulable",
                "effect": "NoSchedule",
                "timeAdded": cordoned,
            }
        )
    condition = {
        "type": "Ready",
        "status": ready,
        "lastTransitionTime": changed,
        "lastHeartbeatTime": NOON if ready == "True" else changed,
    }
    status = {"conditions": [condition], "nodeInfo": {"kubeletVersion": kubelet}}
    metadata = {"creationTimestamp": "2025-12-01T00:00:00Z", "labels": labels or {}}
    return manifest("v1", "Node", name, spec=spec, status=status, metadata=metadata)


def silent(**fields):
    given = {
        "changed": "2026-01-01T11:57:00Z",
        "kubelet": "v1.34.4",
        "cordoned": "2026-01-01T11:50:00Z",
    } | fields
    return node("w3", "Unknown", **given)


def handler(ready_since="2025-12-01T00:00:00Z", state=None):
    condition = {"type": "Ready", "status": "False", "lastTransitionTime": ready_since}
    labels = {"kubevirt.io": "virt-handler"}
    metadata = {"labels": labels, "creationTimestamp": "2025-12-01T00:00:00Z"}
    status = {"phase": "Running", "conditions": [condition]}
    if state:
        status["containerStatuses"] = [
            {"name": "virt-handler", "state": {"waiting": {"reason": state}}}
        ]
    return manifest(
        "v1",
        "Pod",
        "virt-handler-x",
        "kubevirt",
        spec={"nodeName": "w3"},
        status=status,
        metadata=metadata,
    )


def vmi(on="w3"):
    return manifest(
        "kubevirt.io/v1",
        "VirtualMachineInstance",
        "db",
        "shop",
        status={"nodeName": on, "phase": "Running"},
    )


def cluster(*objects, complete=("*",)):
    return Snapshot([*objects], complete=list(complete), time=NOON)


def test_a_reboot_in_an_upgrade_by_hand():
    paused = manifest(
        "remediation.medik8s.io/v1alpha1",
        "NodeHealthCheck",
        "workers",
        spec={"pauseRequests": ["upgrade-1.35"]},
    )
    here = cluster(silent(), node("w1"), node("w2"), paused)
    said = awaited_return.return_of("w3", here)
    assert said == (
        "wait for its reboot (it was cordoned and without VMs before, silent for 3 min; its "
        "kubelet had v1.34.4, that of w1, w2 has v1.35.1, NodeHealthCheck workers is paused for "
        "upgrade-1.35); see its console if it is not back by 12:17 UTC"
    )
    assert {name: each.phase for name, each in hand_reboots.phases(here).items()} == {
        "w1": Phase.DONE,
        "w2": Phase.DONE,
        "w3": Phase.REBOOTING,
    }
    assert (
        next(node_faults.faults(silent(), here))
        == f"This node has not reported for 3 min. W{said[1:]}."
    )


MASTER = {"node-role.kubernetes.io/control-plane": ""}


@pytest.mark.parametrize(
    ("master", "done", "kubelets"),
    [
        ("v1.35.1", {"m1", "w1"}, "v1.35.1"),
        ("v1.36.0", {"m1", "w1"}, "v1.35.1 or newer"),
        ("v1.34.4", {"w1"}, "v1.35.1"),
    ],
)
def test_a_kubelet_no_older_than_the_newest_of_the_role_is_done(master, done, kubelets):
    others = node("w1"), node("w2", kubelet="v1.35.0"), node("m1", kubelet=master, labels=MASTER)
    here = cluster(silent(), *others)
    phases = {name: each.phase for name, each in hand_reboots.phases(here).items()}
    assert phases == dict.fromkeys(done, Phase.DONE) | {"w3": Phase.REBOOTING}
    who = f"{', '.join(sorted(done))} {'count' if len(done) > 1 else 'counts'}"
    assert list(hand_reboots.counted(here)) == [f"{who} as updated, with kubelet {kubelets}"]


def test_a_control_plane_that_is_newer_than_all_workers_may_await_the_next_update():
    here = cluster(silent(), node("w1", kubelet="v1.34.4"), node("m1", labels=MASTER))
    assert list(hand_reboots.phases(here)) == ["w3"]


def test_a_newer_node_that_reboots_is_not_done():
    other = node("w2", "Unknown", changed="2026-01-01T11:57:00Z", cordoned="2026-01-01T11:50:00Z")
    here = cluster(other, silent(), node("w1", kubelet="v1.34.4"))
    assert {each.phase for each in hand_reboots.phases(here).values()} == {Phase.REBOOTING}


@pytest.mark.parametrize(
    "objects",
    [
        (silent(), vmi()),
        (silent(changed="2026-01-01T11:30:00Z"),),
        (silent(cordoned="2026-01-01T11:58:00Z"),),
        (silent(cordoned=""),),
        (silent(taints=[{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]),),
        (node("w3", cordoned="2026-01-01T11:50:00Z", changed="2026-01-01T11:57:00Z"),),
    ],
)
def test_no_reboot_by_hand(objects):
    here = cluster(*objects, node("w1"))
    assert hand_reboots.of_node("w3", here) is None
    assert not awaited_return.is_planned("w3", here)


def test_vms_that_cannot_be_read():
    here = cluster(silent(), node("w1"), complete=("nodes",))
    assert hand_reboots.of_node("w3", here) is None
    assert hand_reboots.unread(silent(), here) == "virtualmachineinstances.kubevirt.io"


SERVER = {"node-role.kubernetes.io/control-plane": "true"}


@pytest.mark.parametrize(
    ("first", "second", "worker", "done"),
    [
        ("v1.35.1", "v1.34.4", "v1.34.4", ["s0"]),
        ("v1.35.1", "v1.35.1", "v1.34.4", []),
        ("v1.34.4", "v1.34.4", "v1.35.1", []),
    ],
    ids=["one server is ahead", "all servers are", "a worker alone is"],
)
def test_servers_that_are_updated_by_hand(first, second, worker, done):
    nodes = [
        node("s0", kubelet=first, labels=SERVER),
        node("s1", kubelet=second, labels=SERVER),
        node("w1", kubelet=worker),
    ]
    phases = hand_reboots.phases(Snapshot(nodes, complete=["*"], time=NOON))

    assert {name: each.phase for name, each in phases.items()} == dict.fromkeys(done, Phase.DONE)


def test_servers_that_are_not_all_known():
    nodes = [node("s0", labels=SERVER), node("s1", kubelet="v1.34.4", labels=SERVER)]

    assert hand_reboots.phases(Snapshot(nodes, time=NOON)) == {}


def test_a_node_with_a_newer_kubelet_than_others_may_be_done():
    here = cluster(node("w1"), node("w2", kubelet="v1.34.4"))
    (said,) = hand_reboots.newer({"w1", "w2"}, here)
    assert said == "w1 is updated too, although w2 has an older kubelet (v1.34.4, not v1.35.1)"
    assert not list(hand_reboots.newer({"w1"}, here))


TAINT = {"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}
AGENT = manifest("apps/v1", "DaemonSet", "cilium", "kube-system")


@pytest.mark.parametrize("state", [None, "CrashLoopBackOff"])
def test_virt_handler_of_a_node_that_is_just_back(state):
    back = node("w3", changed="2026-01-01T11:59:20Z", taints=[TAINT])
    here = cluster(back, handler(state=state), AGENT)
    assert virt_handlers.is_starting(here, "w3")
    assert list(node_faults.faults(back, here)) == [
        (
            "This node became Ready 40 s ago. It takes VMs once virt-handler runs there and its "
            "agent removes taint node.cilium.io/agent-not-ready, usually within minutes."
        )
    ]


def test_virt_handler_that_does_not_come_back_after_a_boot():
    back = node("w3", changed="2026-01-01T11:30:00Z")
    here = cluster(back, handler())
    assert not virt_handlers.is_starting(here, "w3")
    (said,) = node_faults.faults(back, here)
    assert said.startswith(
        "This node takes no VM for 30 min: virt-handler on w3 is not ready. That does not end by "
        "itself."
    )


@pytest.mark.parametrize(
    ("changed", "guests", "phase"),
    [
        ("2026-01-01T11:59:20Z", (), Phase.RETURNING),
        ("2026-01-01T11:59:20Z", (vmi(),), Phase.DRAINING),
        ("2026-01-01T11:00:00Z", (), Phase.DRAINING),
    ],
)
def test_a_node_that_kured_has_rebooted(changed, guests, phase):
    lock = '{"nodeID": "w3", "created": "2026-01-01T11:55:00Z", "TTL": 0}'
    daemon = manifest(
        "apps/v1", "DaemonSet", "kured", "kured", metadata={"annotations": {kured.LOCK: lock}}
    )
    here = cluster(node("w3", changed=changed, cordoned="2026-01-01T11:55:00Z"), daemon, *guests)
    assert kured.updates(here)["w3"].phase is phase
    assert ("back and uncordoned" in next(kured.words(here))) is (phase is Phase.RETURNING)


def talos(name, release, **fields):
    made = node(name, **fields)
    made.data["status"]["nodeInfo"]["osImage"] = f"Talos ({release})"
    return made


@pytest.mark.parametrize(
    ("cordoned", "release", "phases"),
    [
        ("2026-01-01T11:57:00Z", "v1.11.2", {"w1": Phase.DONE, "w2": Phase.DRAINING}),
        ("2026-01-01T11:57:00Z", "v1.11.5", {}),  # it may be cordoned for another reason
        ("2026-01-01T09:57:00Z", "v1.11.2", {}),
        ("", "v1.11.2", {}),
    ],
)
def test_a_node_that_talosctl_drains(cordoned, release, phases):
    nodes = [
        talos("w1", "v1.11.5"),
        talos("w2", release, cordoned=cordoned),
        talos("w3", "v1.11.2"),
        node("other"),
    ]
    found = Snapshot(nodes, complete=["*"], time=NOON)
    assert {name: each.phase for name, each in hand_reboots.phases(found).items()} == phases
    says = ["w1 counts as updated, with Talos v1.11.5"] if phases else []
    assert list(hand_reboots.counted(found)) == says


def test_a_node_that_something_else_cordons_is_not_upgraded():
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
    turn = talos("w2", "v1.11.2", cordoned="2026-01-01T11:57:00Z", taints=[taint])
    found = Snapshot([talos("w1", "v1.11.5"), turn], complete=["*"], time=NOON)
    assert hand_reboots.phases(found) == {}


def test_a_node_that_reboots_into_its_new_release():
    turn = silent(kubelet="v1.35.1")
    turn.data["status"]["nodeInfo"]["osImage"] = "Talos (v1.11.2)"
    found = Snapshot([talos("w1", "v1.11.5"), turn], complete=["*"], time=NOON)
    phases = {name: each.phase for name, each in hand_reboots.phases(found).items()}
    assert phases == {"w1": Phase.DONE, "w3": Phase.REBOOTING}
