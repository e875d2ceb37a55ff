"""Budgets that refuse an eviction while pods of them have just begun to start."""

import pytest

from tests.forecasts.drain import operator_clusters as world
from tests.forecasts.drain.test_operator_budgets import drained
from virt_admit.model.kubernetes.objects import Object

NOW = "2027-03-01T12:00:00Z"
DAYS = "2027-02-20T11:43:00Z"
YOUNG, OLD = "2027-03-01T11:59:40Z", "2027-03-01T11:43:00Z"


def starting(found: Object, created: str, placed: str = "", restarts: int = 0) -> Object:
    """Return a pod that is not ready, since when it has its node, and how often it began."""
    found.data["metadata"]["creationTimestamp"] = created
    found.data["status"] = {
        "phase": "Pending",
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": placed or created},
            {"type": "Ready", "status": "False", "lastTransitionTime": created},
        ],
        "containerStatuses": [{"name": "main", "restartCount": restarts}],
    }
    return found


def node(name: str, ready_since: str = OLD) -> Object:
    found = world.node(name)
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": ready_since}
    found.data["status"] = {**found.data["status"], "conditions": [condition]}
    return found


def monitors(*args: object, back: str = OLD, most: int = 1, running: str = ""):
    """Return what the drain of a meets while the monitor on b starts so.

    ``running``: since when its container runs.
    """
    first, second, third, budget = world.monitors(allowed=0)
    down = starting(second, *args)
    if running:
        state = {"restartCount": 1, "state": {"running": {"startedAt": running}}}
        down.data["status"]["containerStatuses"] = [{"name": "main"} | state]
    budget.data["spec"]["maxUnavailable"] = most
    budget.data["status"] |= {"currentHealthy": 2, "desiredHealthy": 3 - most}
    nodes = [node("a"), node("b", back), node("c")]
    return drained([*nodes, first, down, third, budget], time=NOW)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (monitors(YOUNG), "was created only 20 s ago"),
        (monitors(YOUNG, most=0), "was created only 20 s ago"),
        (monitors(OLD, YOUNG), "got its node only 20 s ago"),
        (monitors(OLD, OLD, 1, back=YOUNG), "got its node back only 20 s ago"),
        (monitors(OLD, back=YOUNG, running=YOUNG), "got its node back only 20 s ago"),
    ],
    ids=["new", "Rook lowers the budget", "waited for its node", "rebooted node", "and runs"],
)
def test_a_monitor_that_has_just_begun_to_start_is_waited_for(found, says):
    (only,) = found["waits"]
    assert (found["drainable"], found["blockers"]) == (True, [])
    assert only["reason"].endswith(f"pod rook-ceph-mon-b on b is not ready, but {says}")


@pytest.mark.parametrize(
    "found",
    [
        monitors(OLD),
        monitors(OLD, YOUNG, 2),
        monitors(YOUNG, YOUNG, 2),
        monitors(DAYS, DAYS, 57, back=YOUNG),
        monitors(OLD, back=YOUNG, running=OLD),
    ],
    ids=["minutes", "restarts on its node", "restarts", "ill for days", "runs on"],
)
def test_a_monitor_that_may_not_come_back_blocks(found):
    (only,) = found["blockers"]
    assert (found["drainable"], found["waits"]) == (False, [])
    assert only["reason"].startswith("a Ceph monitor is down: pod rook-ceph-mon-b on b")


def joining(since: str):
    """Return what the drain of a meets while the monitor on b has been ready since then."""
    first, second, third, budget = world.monitors(allowed=0)
    for each, at in ((first, OLD), (second, since), (third, OLD)):
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": at}
        each.data["status"] = {**each.data["status"], "conditions": [condition]}
    return drained([*map(node, "abc"), first, second, third, budget], time=NOW)


def test_a_monitor_that_has_just_become_ready_joins_the_quorum():
    (only,) = joining(YOUNG)["waits"]
    assert only["reason"].endswith("pod rook-ceph-mon-b has been ready for only 20 s")
    assert joining(OLD)["drainable"] is False


REPLICAS = {"kubevirt.io": "virt-api"}


def replica_of_kubevirt(created: str):
    by = {"app.kubernetes.io/managed-by": "virt-operator"}
    pods = [world.pod(f"virt-api-{on}", "kubevirt", REPLICAS, on) for on in "ab"]
    rule = world.budget(
        "virt-api-pdb", "kubevirt", REPLICAS, allowed=0, expected=2, own_labels=by, minAvailable=1
    )
    down = starting(pods[1], created)
    return drained([node("a"), node("b"), pods[0], down, rule], time=NOW)


def test_a_replica_of_any_operator_that_starts_is_waited_for():
    assert replica_of_kubevirt(YOUNG)["drainable"] is True
    assert replica_of_kubevirt(OLD)["drainable"] is False


PX = {"name": "portworx", "storage": "true"}
"""Labels of the pods that budget px-storage selects."""


def portworx(back: str):
    """Return what the drain of a meets while Portworx starts on b after its reboot."""
    owner = ("core.libopenstorage.org/v1", "StorageCluster", "px")
    pods = [world.pod(f"px-{on}", "portworx", PX, on, owner="StorageCluster") for on in "abc"]
    rule = world.budget(
        "px-storage", "portworx", PX, allowed=0, expected=3, owner=owner, minAvailable=2
    )
    nodes = [node("a"), node("b", back), node("c")]
    return drained([*nodes, pods[0], starting(pods[1], OLD, OLD, 1), pods[2], rule], time=NOW)


def test_portworx_that_starts_after_a_reboot_is_waited_for():
    found = portworx(YOUNG)
    (only,) = found["waits"]
    assert (found["drainable"], found["blockers"]) == (True, [])
    assert only["reason"].endswith("px-b on b is not ready, but got its node back only 20 s ago")
    assert portworx(OLD)["drainable"] is False
