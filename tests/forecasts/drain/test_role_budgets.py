"""Budgets that select only the pods of a workload with a role: more pods do not help, another pod
takes the role over.
"""

from __future__ import annotations

import pytest

from tests.builders import manifest
from tests.forecasts.drain.operator_clusters import budget, node, pod
from tests.forecasts.drain.test_operator_budgets import blocker, drained, unknown, wait
from virt_admit.model.kubernetes.objects import Object

NOW = "2026-01-01T12:00:00Z"
SPILO = {"application": "spilo", "cluster-name": "db"}


def member(number: int, on: str, *, ready: bool = True, **labels: str) -> Object:
    found: Object = pod(
        f"db-{number}", "shop", {"app": "db", **labels}, on, ready=ready, owner="StatefulSet"
    )
    found.data["metadata"]["ownerReferences"][0]["name"] = "db"
    return found


def of_role(*pods: Object, minimum: int = 1, **labels: str) -> list[Object]:
    found = budget(
        "db", "shop", {"app": "db", **labels}, allowed=0, expected=minimum, minAvailable=minimum
    )
    return [*(node(name) for name in "abc"), *pods, found]


def three(**more: str) -> list[Object]:
    return [
        member(0, "a", role="primary", **more),
        member(1, "b", role="replica", **more),
        member(2, "c", role="replica", **more),
    ]


def test_more_pods_do_not_help() -> None:
    found = blocker(of_role(*three(), role="primary"))
    assert found["reason"] == (
        "minAvailable is 1 for 1 pod, and it selects only role=primary, which db-0 alone has of 3 "
        "pods of StatefulSet db"
    )
    assert found["remedy"].startswith(
        "Let another pod, such as db-1, take over role=primary (a switch-over); more pods"
    )
    assert "Run at least" not in found["remedy"]
    assert "maxUnavailable" not in found["remedy"]


SAID = {
    "no other pod is ready": (
        [
            member(0, "a", role="primary"),
            member(1, "b", ready=False, role="x"),
            member(2, "a", role="x"),
        ],
        {"role": "primary"},
        (
            "Get another pod of StatefulSet db ready on another node, and let it take over "
            "role=primary"
        ),
    ),
    "two pods, whose roles are known": (
        [member(0, "a", role="primary"), member(1, "b", role="x")],
        {"role": "primary"},
        "Let another pod, such as db-1,",
    ),
    "two pods, one of which is a replica": (
        [member(0, "a", role="replica"), member(1, "b", role="x")],
        {"role": "replica"},
        "Run at least 2 pods with role=replica, or set maxUnavailable: 1",
    ),
    "one pod by its name": (
        [member(0, "a", **{"statefulset.kubernetes.io/pod-name": "db-0"}), member(1, "b")],
        {"statefulset.kubernetes.io/pod-name": "db-0"},
        "More pods do not help, as it selects one by its name",
    ),
    "all pods of the workload": (
        [member(0, "a")],
        {},
        "Run at least 2 pods of StatefulSet db, or set",
    ),
    "a pod of another revision": (
        [
            member(0, "a", **{"controller-revision-hash": "x"}),
            member(1, "b", **{"controller-revision-hash": "y"}),
        ],
        {"controller-revision-hash": "x"},
        "Run at least 2 pods of StatefulSet db, or set",
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_remedy(name: str) -> None:
    pods, labels, remedy = SAID[name]
    assert blocker(of_role(*pods, **labels))["remedy"].startswith(remedy)


# --- Zalando's Postgres operator ------------------------------------------------------------------


def postgres(
    *more: Object, cordoned: str = "", role: str = "master", **node_labels: str
) -> list[Object]:
    """Return a cluster of three pods, whose master is on node a; ``cordoned``:
    since when that is.
    """
    pods = [member(number, on, **SPILO) for number, on in enumerate("abc")]
    for each in pods:
        each.data["metadata"]["labels"]["spilo-role"] = (
            "master" if each.name == "db-0" else "replica"
        )
    labels = {**SPILO, "spilo-role": role} if role else SPILO
    own = budget(
        "postgres-db-pdb",
        "shop",
        labels,
        allowed=0 if role else 2,
        expected=1 if role else 3,
        minAvailable=1,
    )
    first = node("a", cordoned=bool(cordoned))
    first.data["metadata"]["labels"] = node_labels
    first.data["spec"]["taints"] = [
        {"key": "node.kubernetes.io/unschedulable", "timeAdded": cordoned}
    ]
    return [first, node("b"), node("c"), *pods, own, *more]


def configured(**labels: str) -> Object:
    found = manifest("acid.zalan.do/v1", "OperatorConfiguration", "postgres", "shop")
    found.data["configuration"] = {"kubernetes": {"node_readiness_label": labels}}
    return found


def test_the_operator_has_not_moved_the_master() -> None:
    found = drained(postgres(configured(), cordoned="2026-01-01T11:35:00Z"), time=NOW)
    assert found["drainable"] is False
    (only,) = found["blockers"]
    assert "has not moved this role since the node was cordoned 25 min ago" in only["reason"]
    assert "db-0 alone has of 3 pods of StatefulSet db" in only["reason"]
    assert only["remedy"].endswith("kubectl exec -it db-0 -n shop -- patronictl switchover")


def test_the_operator_may_move_the_master() -> None:
    assert "unless node_readiness_label keeps it, and that is not known" in unknown(postgres())
    assert (
        "moves the master of StatefulSet db off the cordoned node"
        in wait(postgres(configured()))["reason"]
    )
    young = drained(postgres(configured(), cordoned="2026-01-01T11:55:00Z"), time=NOW)
    assert (young["drainable"], young["blockers"]) == (True, [])


def test_a_readiness_label_keeps_the_master() -> None:
    found = blocker(postgres(configured(status="ready"), status="ready"))
    assert "only off a node without status=ready" in found["reason"]
    assert found["remedy"].endswith("kubectl label node a status-")
    assert wait(postgres(configured(status="ready"), status="old"))


def test_a_budget_of_all_members_lets_one_go() -> None:
    found = drained(postgres(role=""))
    assert (found["drainable"], found["blockers"]) == (True, [])


def test_a_critical_operation() -> None:
    objects = postgres(role="")
    objects[3].data["metadata"]["labels"]["critical-operation"] = "true"
    objects[-1] = budget(
        "postgres-db-critical-op-pdb",
        "shop",
        {**SPILO, "critical-operation": "true"},
        allowed=0,
        expected=1,
        maxUnavailable=0,
    )
    found = blocker(objects)
    assert (found["now"], found["reason"].startswith("an operation of db runs")) == (True, True)
