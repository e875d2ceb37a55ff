"""Notes of a drain about pods of other nodes."""

import pytest

from tests.builders import manifest, node
from virt_admit.forecasts.drain import drain_plan
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.drain import report, text
from virt_admit.reports.drain.surroundings import with_reported


@pytest.mark.parametrize(("on", "where"), [("worker-1", ""), ("worker-2", " on worker-2")])
def test_a_pod_of_another_node_is_told_with_its_node(on, where):
    started = {
        "name": "main",
        "ready": False,
        "restartCount": 30,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
    }
    pod = manifest(
        "v1",
        "Pod",
        "agent-x",
        "shop",
        metadata={"annotations": {"example.com/watches": "db-budget"}},
        spec={"nodeName": on, "containers": [{"name": "main"}]},
        status={"phase": "Running", "containerStatuses": [started]},
    )
    budget = manifest(
        "policy/v1",
        "PodDisruptionBudget",
        "db-budget",
        "shop",
        spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
        status={"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1},
    )
    held = manifest("v1", "Pod", "db-0", "shop", metadata={"labels": {"app": "db"}})
    held.data |= {"spec": {"nodeName": "worker-1"}, "status": {"phase": "Running"}}
    objects = [node("worker-1"), node("worker-2"), budget, held, pod]
    cluster = Snapshot(objects, ["*"], time="2026-01-02T00:00:00Z")
    (found,) = with_reported(drain_plan.plan(cluster, "worker-1"), cluster).nodes

    (note,) = found.notes
    assert note.startswith(f"Pod shop/agent-x{where} reports: container main: CrashLoopBackOff")


@pytest.mark.parametrize("named", [(), ("worker-1",)])
def test_what_the_platform_reports_stands_beside_the_answer(named):
    condition = {
        "type": "Degraded",
        "status": "True",
        "reason": "NoQuorum",
        "message": "two of three members are down",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    operator = manifest("config.openshift.io/v1", "ClusterOperator", "storage")
    operator.data["status"] = {"conditions": [condition]}
    cluster = Snapshot([node("worker-1"), operator], ["*"], time="2026-01-02T00:00:00Z")
    plan = with_reported(drain_plan.plan(cluster, *named), cluster)
    printed = text.text(plan)
    assert "ClusterOperator storage reports: Degraded is True (NoQuorum)" in printed
    assert [each.name for each in report.report(plan).reported] == ["storage"]
