"""Guards of the control plane while OpenShift rolls a revision out, or updates their node: a wait
for as long as that takes.
"""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.drain import pod_evictions
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = "2026-01-01T12:00:00Z"
LONG = "2025-06-01T00:00:00Z"
SCHEDULER = "openshift-kube-scheduler"
GROUP = "machineconfiguration.openshift.io"
BACK = {
    f"{GROUP}/currentConfig": "rendered-1",
    f"{GROUP}/desiredConfig": "rendered-2",
    f"{GROUP}/state": "Working",
    f"{GROUP}/desiredDrain": "drain-2",
    f"{GROUP}/lastAppliedDrain": "drain-2",
}


def at(time):
    return f"2026-01-01T{time}Z"


def master(name, *, ready=LONG, cordoned="", notes=None, status="True"):
    unchanged = {f"{GROUP}/currentConfig": "rendered-1", f"{GROUP}/desiredConfig": "rendered-1"}
    labels = {"node-role.kubernetes.io/master": "", "node-role.kubernetes.io/control-plane": ""}
    taint = {"key": "node.kubernetes.io/unschedulable", "timeAdded": cordoned}
    spec = {"unschedulable": True, "taints": [taint]} if cordoned else {}
    condition = {"type": "Ready", "status": status, "lastTransitionTime": ready}
    return manifest(
        "v1",
        "Node",
        name,
        metadata={"labels": labels, "annotations": unchanged | (notes or {})},
        spec=spec,
        status={"conditions": [condition]},
    )


def static(name, space=SCHEDULER, *, created=LONG, restarts=0, waiting=""):
    state = {"waiting": {"reason": waiting}} if waiting else {"running": {}}
    container = {"name": "x", "ready": False, "restartCount": restarts, "state": state}
    metadata = {"creationTimestamp": created, "labels": {"revision": "15"}}
    status = {"phase": "Running", "containerStatuses": [container]}
    return manifest(
        "v1", "Pod", name, space, metadata=metadata, spec={"nodeName": "c"}, status=status
    )


def operator(name="kube-scheduler", degraded="False", reason="NodeInstaller"):
    conditions = [
        {"type": "Progressing", "status": "True", "reason": reason},
        {"type": "Degraded", "status": degraded},
    ]
    kind, version = "ClusterOperator", "config.openshift.io/v1"
    return manifest(version, kind, name, status={"conditions": conditions})


def guard(on, since=LONG, *, ready="True", created=LONG):
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    return manifest(
        "v1",
        "Pod",
        f"openshift-kube-scheduler-guard-{on}",
        SCHEDULER,
        metadata={"labels": {"app": "guard"}, "creationTimestamp": created},
        spec={"nodeName": on},
        status={"phase": "Running", "conditions": [condition]},
    )


def budget(healthy, since=LONG):
    status = {"expectedPods": 3, "desiredHealthy": 2, "disruptionsAllowed": 0}
    refuses = {"type": "DisruptionAllowed", "status": "False", "lastTransitionTime": since}
    return manifest(
        "policy/v1",
        "PodDisruptionBudget",
        "openshift-kube-scheduler-guard-pdb",
        SCHEDULER,
        metadata={"creationTimestamp": LONG},
        spec={"selector": {"matchLabels": {"app": "guard"}}, "minAvailable": 2},
        status=status | {"currentHealthy": healthy, "conditions": [refuses]},
    )


def down(since, created=LONG, on="c"):
    """The guards of three nodes, of which some are not ready."""
    ready = [guard(name) for name in "abc" if name not in on]
    unready = [guard(name, since, ready="False", created=created) for name in on]
    return [*ready, *unready, budget(3 - len(on))]


def bare(**fields):
    """The guards of two nodes: the third one has none."""
    return [guard("a"), guard("b"), budget(2, **fields)]


def drain(*objects, nodes=None):
    nodes = nodes or [master(name) for name in "abc"]
    pool = manifest(
        f"{GROUP}/v1",
        "MachineConfigPool",
        "master",
        spec={"nodeSelector": {"matchLabels": {"node-role.kubernetes.io/master": ""}}},
    )
    found = Snapshot([*nodes, pool, *objects], complete=["*"], time=NOW)
    return pod_evictions.of_node(found, "a")


ROLLS = "openshift-kube-scheduler on c has been rolling to "
LIMIT = ", and only one control-plane node may be down at a time"


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        (
            [*down(at("11:58:57")), static("openshift-kube-scheduler-c", created=at("11:59:24"))],
            f"{ROLLS}revision 15 for 63 s",
        ),
        ([*down(at("11:58:57")), operator()], f"{ROLLS}a new revision for 63 s"),
        (
            [*down(at("11:59:50"), created=at("11:59:40"))],
            "the guard of openshift-kube-scheduler on c was created only 20 s ago",
        ),
    ],
    ids=["new pod", "operator", "guard was made again"],
)
def test_a_revision_that_is_rolled_out_is_waited_for(objects, words):
    found = drain(*objects)
    assert found.blockers == ()
    assert [wait.reason for wait in found.waits] == [f"{words}{LIMIT}"]


@pytest.mark.parametrize(
    "objects",
    [
        down(at("11:58:57")),
        [*down(at("11:49:00")), operator()],
        [*down(at("11:58:57")), operator(degraded="True")],
        [*down(at("11:58:57")), operator(reason="GuardController")],
        [*down(at("11:58:57")), operator("etcd")],
        [
            *down(at("11:58:57")),
            operator(),
            static("openshift-kube-scheduler-c", waiting="CrashLoopBackOff"),
        ],
        [
            *down(at("11:58:57")),
            static("openshift-kube-scheduler-c", created=at("11:58:57"), restarts=1),
        ],
        [*down(at("11:58:57"), on="bc"), operator()],
    ],
    ids=[
        "nothing rolls",
        "takes too long",
        "operator is degraded",
        "operator does something else",
        "another operator",
        "pod fails",
        "pod restarts",
        "two at once",
    ],
)
def test_a_component_that_is_down_for_another_reason_blocks(objects):
    (blocker,) = drain(*objects).blockers
    assert "not ready" in blocker.reason
    # the budget is as old as the time of its condition, before the control plane was complete
    assert "allowed none for" not in blocker.reason


@pytest.mark.parametrize(
    ("node", "passes", "words"),
    [
        (
            {"ready": at("11:59:26"), "cordoned": at("11:51:00"), "notes": BACK},
            True,
            "MachineConfigPool master, which ends its update (Ready again for 34 s)",
        ),
        (
            {"cordoned": at("11:51:00"), "notes": BACK},
            True,
            "MachineConfigPool master, which has been updating it for 9 min",
        ),
        (
            {"cordoned": at("11:51:00"), "notes": BACK | {f"{GROUP}/lastAppliedDrain": "x"}},
            False,
            "MachineConfigPool master updates it",
        ),
        (
            {"ready": at("11:30:00"), "cordoned": at("11:20:00"), "notes": BACK},
            False,
            "MachineConfigPool master updates it",
        ),
    ],
    ids=["has rebooted", "before its reboot", "is drained", "takes too long"],
)
def test_what_updates_a_node_uncordons_it_itself(node, passes, words):
    found = drain(*bare(), nodes=[master("a"), master("b"), master("c", **node)])
    (each,) = found.passing if passes else found.blockers
    assert each.reason.endswith(f"{LIMIT}. That ends once c is back: {words}")
    assert each.awaits == ("c",)
    assert each.remedy.startswith("Wait until c is back")
    assert bool(found.waits) is passes


def test_the_maintenance_of_an_administrator_is_to_be_finished():
    nodes = [master("a"), master("b"), master("c", cordoned=at("11:51:00"))]
    (blocker,) = drain(*bare(since=at("08:00:00")), nodes=nodes).blockers
    assert blocker.remedy.startswith("Finish the maintenance of c first")
    assert "it has allowed none for 4 h" in blocker.reason


@pytest.mark.parametrize(("ready", "waits"), [(at("11:59:26"), True), (at("11:50:00"), False)])
def test_a_guard_is_made_again_once_its_node_is_ready(ready, waits):
    found = drain(*bare(), nodes=[master("a"), master("b"), master("c", ready=ready)])
    assert bool(found.waits) is waits
    assert bool(found.blockers) is not waits
