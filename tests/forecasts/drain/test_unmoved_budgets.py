"""Budgets of operators that are not known: only a drain shows that the operator makes no way."""

import itertools

import pytest

from tests.builders import manifest
from tests.forecasts.drain import operator_clusters as world
from tests.forecasts.drain.operator_clusters import pod
from tests.forecasts.drain.test_operator_budgets import drained
from tests.rules.test_rules import ALL, context_of
from virt_admit.forecasts.drain.budgets import operator_eviction, pod_budgets
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubevirt.instances import migrations

TIME = "2026-11-27T12:00:00Z"
OWNER = {"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "name": "serving"}


def at(time):
    return f"2026-11-27T{time}:00Z"


def node(name, cordoned=None):
    key = "node.kubernetes.io/unschedulable"
    taints = [{"key": key, "timeAdded": at(cordoned)}] if cordoned else []
    spec = {"unschedulable": bool(cordoned), "taints": taints}
    return manifest("v1", "Node", name, spec=spec, status=world.READY)


def strict(healthy=3, since="09:00", name="cache"):
    condition = {"type": "DisruptionAllowed", "status": "False", "lastTransitionTime": at(since)}
    return manifest(
        "policy/v1",
        "PodDisruptionBudget",
        name,
        "shop",
        metadata={"ownerReferences": [OWNER]},
        spec={"selector": {"matchLabels": {"app": name}}, "minAvailable": "80%"},
        status={
            "expectedPods": 3,
            "desiredHealthy": 3,
            "currentHealthy": healthy,
            "disruptionsAllowed": 0,
            "conditions": [condition],
        },
    )


def caches(name="cache"):
    return [pod(f"{name}-{on}", "shop", {"app": name}, on) for on in "abc"]


def cluster_of(*more, cordoned="11:00", budget=None):
    nodes = [node("a", cordoned), node("b"), node("c")]
    return [*nodes, *caches(), budget or strict(), *more]


def vmi(on, leaves="", asked="11:05", left=""):
    status = {"phase": "Running", "nodeName": on}
    if leaves:
        condition = {"type": "EvictionRequested", "status": "True", "lastTransitionTime": at(asked)}
        status |= {"evacuationNodeName": leaves, "conditions": [condition]}
    if left:
        state = {"migrationUid": "m-1", "sourceNode": left, "endTimestamp": at("11:05")}
        status["migrationState"] = {**state, "completed": True}
    spec = {"evictionStrategy": "LiveMigrate"}
    return manifest(
        "kubevirt.io/v1", "VirtualMachineInstance", f"vm-{on}", "vms", spec=spec, status=status
    )


def migration(of, began="11:05"):
    metadata = {"uid": "m-1", "creationTimestamp": at(began), "annotations": {of: "a"}}
    kind = "VirtualMachineInstanceMigration"
    return manifest("kubevirt.io/v1", kind, "move", "vms", metadata=metadata)


def maintenance():
    spec = {"nodeName": "a"}
    status = {"phase": "Running"}
    created = {"creationTimestamp": at("11:05")}
    kind = "NodeMaintenance"
    api = "nodemaintenance.medik8s.io/v1beta1"
    return manifest(api, kind, "a", metadata=created, spec=spec, status=status)


def web(*nodes):
    return [pod(f"web-{on}", "shop", {"app": "web"}, on) for on in nodes]


def lenient(allowed):
    return world.budget("web", "shop", {"app": "web"}, allowed=allowed, expected=3, minAvailable=1)


EVACUATION, UPDATE = migrations.AUTOMATIC
MOVED = [vmi("b", left="a"), *web("b", "c")]
GONE = [migration(EVACUATION), *MOVED]
"""What the drain of node a has moved."""


def scanned(objects):
    cluster = Snapshot(objects, ["*"], time=TIME)
    (rule,) = (each for each in ALL if each.id == "pod-budget-blocks-drain")
    budget = next(each for each in cluster.known(kinds.PDB) if each.name == "cache")
    found = rule.check(budget, context_of(rule, {}, budget, None, cluster))
    return [each.message for each in found]


@pytest.mark.parametrize(
    "objects",
    [
        cluster_of(*GONE),
        cluster_of(migration(EVACUATION), vmi("b", left="a")),
        cluster_of(vmi("a", leaves="a")),
        cluster_of(migration(EVACUATION), vmi("a", leaves="a", asked="11:55")),
        cluster_of(maintenance()),
        cluster_of(*GONE, *caches("log"), strict(name="log")),
        cluster_of(*GONE, *web("a"), lenient(0), *(pod(f"x-{on}", "x", {}, on) for on in "bc")),
    ],
    ids=[
        "pods gone",
        "VMs gone",
        "a VM leaves",
        "a VM has failed to leave",
        "maintenance",
        "another one is kept",
        "held by a budget",
    ],
)
def test_an_operator_that_has_not_made_way(objects):
    found = drained(objects, time=TIME)
    block = next(each for each in found["blockers"] if each["name"].endswith("cache"))
    (message,) = scanned(objects)
    for words in (block["reason"], message):
        assert "80% of 3 pods, which is all of them (rounded up)" in words
        assert "has not made way for a, whose drain began 55 min ago" in words
    assert "Ask for at least 5 pods" in block["remedy"]
    assert block["remedy"].endswith("kubectl edit knativeserving serving -n shop")


@pytest.mark.parametrize(
    "objects",
    [
        cluster_of(*GONE, cordoned="11:50"),
        cluster_of(vmi("a", leaves="a", asked="11:55")),
        cluster_of(*GONE, budget=strict(healthy=2)),
        cluster_of(*GONE, budget=strict(since="11:55")),
        cluster_of(*GONE, cordoned=None),
        cluster_of(*GONE, *web("a")),
        cluster_of(*GONE, *web("a"), lenient(2)),
        cluster_of(*GONE, vmi("a")),
        cluster_of(*GONE, vmi("a", leaves="b")),
        cluster_of(*web("b", "c")),
        cluster_of(vmi("b"), *web("c")),
        cluster_of(migration(EVACUATION, "10:55"), *MOVED),
        cluster_of(migration(UPDATE), *MOVED),
        cluster_of(*MOVED),
    ],
    ids=[
        "a young drain",
        "cordoned long before",
        "one is not healthy",
        "only now",
        "no drain",
        "a pod without a budget stays",
        "a pod that may go stays",
        "a VM stays",
        "a VM has come",
        "it may never have run others",
        "a VM that was never there",
        "a VM that left before",
        "a VM that left for an update",
        "a VM that was perhaps moved by hand",
    ],
)
def test_a_cordon_alone_shows_nothing(objects):
    found = drained(objects, time=TIME)
    assert any("whether it makes way is not known" in each for each in found["unseen"])
    assert not scanned(objects)


def test_what_was_not_read_shows_no_drain():
    read = ["Node", "Pod", "PodDisruptionBudget"]
    for complete, known in ((["*"], True), (read, False)):
        cluster = Snapshot(cluster_of(*GONE), complete, time=TIME)
        (budget,) = cluster.known(kinds.PDB)
        assert bool(operator_eviction.drained_around(budget, cluster)) is known


def test_each_pod_is_looked_at_once(monkeypatch):
    """However many pods and budgets are judged."""
    looked = itertools.count()
    selecting = pod_budgets.selecting

    def counted(*args):
        next(looked)
        return selecting(*args)

    monkeypatch.setattr(pod_budgets, "selecting", counted)
    many = [pod(f"cache-{number}", "shop", {"app": "cache"}, "a") for number in range(100)]
    cluster = Snapshot(cluster_of(*GONE, *many), ["*"], time=TIME)
    (budget,) = cluster.known(kinds.PDB)
    for _ in range(100):
        assert operator_eviction.drained_around(budget, cluster)
    assert next(looked) <= 2 * len(many) + 20
