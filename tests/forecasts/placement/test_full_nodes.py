"""A pod that only one node may take, and for which that node lacks room, holds a budget."""

from tests.builders import manifest, node, owned_by
from tests.for_each import for_each
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.model.kubernetes.cluster import Snapshot

NOW, LONG_AGO = "2026-01-05T12:00:00Z", "2026-01-01T12:00:00Z"
ROOM = {"cpu": "8", "memory": "32Gi", "pods": "100"}
HOST = "kubernetes.io/hostname"


def home(name, memory="32Gi", **spec):
    return node(name, {HOST: name}, allocatable=ROOM | {"memory": memory}, **spec)


def pod(name, on="", memory="2Gi", **spec):
    placed = {"nodeName": on} if on else {}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return manifest(
        *("v1", "Pod", name, "shop"),
        metadata={
            "labels": {"app": "web"},
            "creationTimestamp": LONG_AGO,
            "ownerReferences": owned_by("ReplicaSet", "web"),
        },
        spec={"containers": [{"name": "c", "resources": {"requests": {"memory": memory}}}]}
        | placed
        | spec,
        status=status if on else {"phase": "Pending"},
    )


BUDGET = manifest(
    *("policy/v1", "PodDisruptionBudget", "web", "shop"),
    spec={"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1},
    status={
        **{"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 2}
    },
)
PINNED = {"nodeSelector": {HOST: "c"}}


def said(*objects):
    cluster = Snapshot((*objects, BUDGET, pod("web-a", "a")), complete=["*"], time=NOW)
    (blocker,) = plan(cluster, "a").nodes[0].pods.blockers
    return blocker


@for_each(
    "waiting, others, says",
    [
        (PINNED, [home("b"), home("c", "1Gi")], True),
        # the drained node may take it as well
        ({}, [home("b", taints=[{"key": "gpu", "effect": "NoSchedule"}]), home("c", "1Gi")], False),
        # several are full, or the one is closed
        ({}, [home("b", "1Gi"), home("c", "1Gi")], False),
        (PINNED, [home("b"), home("c", "1Gi", unschedulable=True)], False),
        (PINNED, [home("b"), home("c")], False),
    ],
)
def test_which_node_lacks_room(waiting, others, says):
    closed = home("a", unschedulable=True)
    found = said(closed, *others, pod("web-b", **waiting))

    assert ("only node c may take it" in found.reason) is says
    if says:
        assert f"(node selector {HOST}=c), but lacks memory: 1Gi" in found.reason
        assert found.remedy.startswith("Free that on c")
