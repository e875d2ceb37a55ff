"""Two drains, each of which keeps the only node from which the budget of the other is satisfied."""

import pytest

from tests.builders import manifest
from virt_admit.forecasts.drain import drain_plan, pod_evictions
from virt_admit.forecasts.drain.budgets import mutual_drains
from virt_admit.forecasts.upgrade import rehearsal
from virt_admit.forecasts.upgrade.rehearsal import Options
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = "2026-01-01T12:00:00Z"
GROUP = "machineconfiguration.openshift.io"
STATE = "sriovnetwork.openshift.io/state"


def node(name, *, cordoned=True, current="old", desired="old", state="Idle"):
    action = f"drain-{desired}" if current != desired else f"uncordon-{desired}"
    notes = {f"{GROUP}/currentConfig": current, f"{GROUP}/desiredConfig": desired, STATE: state}
    notes |= {f"{GROUP}/state": "Working" if current != desired else "Done"}
    notes |= {f"{GROUP}/desiredDrain": action}
    notes |= {f"{GROUP}/lastAppliedDrain": action if current == desired else "uncordon-old"}
    taint = {"key": "node.kubernetes.io/unschedulable", "timeAdded": "2026-01-01T11:20:00Z"}
    spec = {"unschedulable": True, "taints": [taint | {"effect": "NoSchedule"}]} if cordoned else {}
    labels = {"node-role.kubernetes.io/worker": "", "kubernetes.io/hostname": name}
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2025-12-01T00:00:00Z"}
    size = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return manifest(
        "v1",
        "Node",
        name,
        metadata={"labels": labels, "annotations": notes},
        spec=spec,
        status={"allocatable": size, "conditions": [condition]},
    )


def pool():
    spec = {
        "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
        "configuration": {"name": "new"},
    }
    status = {"conditions": [{"type": "Updating", "status": "True"}]}
    return manifest(f"{GROUP}/v1", "MachineConfigPool", "worker", spec=spec, status=status)


def replicas(app, *places):
    """Return the replicas of an application, one for each node, and its budget."""
    labels = {"app": app}
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    owners = [{"kind": "StatefulSet", "name": app, "controller": True}]
    found = []
    for number, on in enumerate(places):
        spec = {"affinity": apart, "containers": [{"name": "c"}]} | ({"nodeName": on} if on else {})
        ready = [{"type": "Ready", "status": "True"}]
        status = {"phase": "Running", "conditions": ready} if on else {"phase": "Pending"}
        metadata = {"labels": labels, "ownerReferences": owners}
        name = f"{app}-{number}"
        found.append(
            manifest("v1", "Pod", name, "shop", metadata=metadata, spec=spec, status=status)
        )
    limit = {"selector": {"matchLabels": labels}, "minAvailable": 2}
    running = sum(map(bool, places))
    status = {"expectedPods": 3, "desiredHealthy": 2, "currentHealthy": running}
    status["disruptionsAllowed"] = running - 2
    kind = "PodDisruptionBudget"
    return [*found, manifest("policy/v1", kind, app, "shop", spec=limit, status=status)]


KAFKA, REDIS = replicas("kafka", "a", "b", ""), replicas("redis", "a", "", "c")
UPDATED, DONE = node("b", desired="new"), node("a", cordoned=False, current="new", desired="new")


def cluster(*objects):
    return Snapshot([pool(), DONE, *objects], complete=["*"], time=NOW)


def both(**last):
    return cluster(UPDATED, node("c", **last), *KAFKA, *REDIS)


def test_drains_that_hold_each_other_have_one_cause_and_one_way_out():
    held = both(state="Draining")
    found = [*pod_evictions.of_node(held, "b").blockers, *pod_evictions.of_node(held, "c").blockers]
    assert {each.reason.partition("; it has")[0] for each in found} == {
        "the drains of b (MachineConfigPool worker, 40 min) and c (the SR-IOV network operator, "
        "40 min) hold each other for good: pod kafka-1 leaves b once kafka-2 runs, which needs c; "
        "pod redis-2 leaves c once redis-1 runs, which needs b"
    }
    assert {each.remedy for each in found} == {
        "Uncordon c so that pod kafka-2 starts there, and let it be drained again later: "
        "kubectl uncordon c"
    }
    (third,) = pod_evictions.of_node(held, "a").blockers[:1]
    assert "That ends once b is back with pod redis-1, but the drains of b " in third.reason
    assert (third.remedy, third.awaits) == (found[0].remedy, ())
    (notes,) = (node.notes for node in drain_plan.plan(held).nodes if node.name == "c")
    (own,) = (each for each in notes if "SR-IOV" in each)
    assert "It takes all pods away" in own
    assert "It has not paused MachineConfigPool worker, which drains b" in own
    assert "Do not uncordon" not in own
    stops = rehearsal.rehearse(held, Options()).stops
    assert [(stop.node, stop.remedy) for stop in stops] == [("b", found[0].remedy)]


@pytest.mark.parametrize(
    "objects",
    [
        (UPDATED, node("c"), *KAFKA),
        (UPDATED, node("c", cordoned=False), *KAFKA, *REDIS),
        (UPDATED, node("c"), node("d", cordoned=False), *KAFKA, *REDIS),
        (UPDATED, node("c"), *KAFKA, *replicas("redis", "a", "b", "c")),
    ],
    ids=["one direction", "one drain", "room elsewhere", "the other may go"],
)
def test_drains_that_do_not_hold_each_other(objects):
    found = cluster(*objects)
    assert mutual_drains.of_node("b", found) is None
    assert mutual_drains.of_node("c", found) is None


def test_another_node_may_take_them_where_not_all_were_read():
    objects = (pool(), DONE, UPDATED, node("c"), *KAFKA, *REDIS)
    assert mutual_drains.of_node("b", Snapshot([*objects], complete=[], time=NOW)) is None


def test_updates_of_both_are_not_undone_by_hand():
    found = mutual_drains.of_node("b", both(desired="new"))
    assert (found.frees, "kubectl" in found.remedy) == ("", False)


def test_the_drain_controller_takes_only_pods_with_devices():
    (own,) = (
        note
        for node in drain_plan.plan(both(state="Drain_Required")).nodes
        for note in node.notes
        if node.name == "c" and "SR-IOV" in note
    )
    assert "only the pods with SR-IOV devices" in own
    assert "not paused" not in own


def test_a_node_in_deletion_is_not_brought_back():
    for going, stays in ("bc", "cb"):
        gone = node(going)
        gone.data["metadata"] |= {"deletionTimestamp": "2026-01-01T11:50:00Z", "finalizers": ["x"]}
        found = mutual_drains.of_node("b", cluster(gone, node(stays), *KAFKA, *REDIS))
        assert found.frees == stays


def test_what_was_cordoned_by_hand_is_given_up_first():
    found = mutual_drains.of_node(
        "b", cluster(node("b"), node("c", state="Draining"), *KAFKA, *REDIS)
    )
    assert found.frees == "b"
    found = mutual_drains.of_node(
        "b", cluster(node("c"), node("b", state="Draining"), *KAFKA, *REDIS)
    )
    assert found.frees == "c"


def test_a_budget_is_asked_once(monkeypatch):
    placed = []
    monkeypatch.setattr(mutual_drains, "_homes", lambda pod, _: placed.append(pod.name) or [])
    many = replicas("kafka", *"bc" * 20, *[""] * 50)
    many[-1].data["status"] |= {"disruptionsAllowed": 0}
    assert mutual_drains.of_node("b", cluster(node("b"), node("c"), *many)) is None
    assert len(placed) == 10
