"""Jobs of Harvester that change the CPU manager of a node."""

import json

import pytest

from tests.builders import manifest
from virt_admit.forecasts.drain.changes import readiness
from virt_admit.forecasts.drain.changes.readiness import Readiness
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.node_updates.rancher import cpu_manager_jobs

KEY = "harvesterhci.io/cpu-manager-update-status"


def node(status="running", job="update-cpu", policy="static"):
    told = json.dumps({"policy": policy, "status": status, "jobName": job})
    return manifest("v1", "Node", "a", metadata={"annotations": {KEY: told}})


def job(*conditions, made="2026-01-01T11:59:00Z"):
    status = {"conditions": [{"type": each, "status": "True"} for each in conditions]}
    return manifest(
        "batch/v1",
        "Job",
        "update-cpu",
        "harvester-system",
        metadata={"creationTimestamp": made},
        status=status,
    )


def test_a_drain_makes_such_a_job_fail():
    cluster = Snapshot([node(), job()], complete=["*"])
    (note,) = cpu_manager_jobs.note(cluster.get(cpu_manager_jobs.NODE, "", "a"), cluster)

    assert note.startswith("Job update-cpu changes the CPU manager of this node")
    assert list(cpu_manager_jobs.rests_on(cluster)) == [
        "Job update-cpu, which changes the CPU manager of a, has ended before a is drained"
    ]


@pytest.mark.parametrize(
    ("objects", "complete", "busy"),
    [
        ((node(),), (), True),
        ((node("requested", ""),), ("*",), True),
        ((node(),), ("*",), False),
        ((node(), job("Complete")), ("*",), False),
        ((node(), job("Failed")), ("*",), False),
        ((node("success"), job()), ("*",), False),
        ((node(), job(made="2026-01-01T11:00:00Z")), ("*",), False),
        ((node("requested", "", "other"),), ("*",), False),
        ((manifest("v1", "Node", "a", metadata={"annotations": {KEY: "{"}}),), ("*",), False),
    ],
    ids=[
        *("Jobs unseen", "asked for", "Job gone", "ended", "failed", "done", "hangs"),
        *("never made", "not valid"),
    ],
)
def test_whether_such_a_job_runs(objects, complete, busy):
    cluster = Snapshot(list(objects), complete=list(complete), time="2026-01-01T12:00:00Z")
    assert bool(cpu_manager_jobs.busy(cluster)) is busy
    ready = Readiness.LATER if busy else Readiness.NOW
    assert readiness.of_node("a", (), cluster) is ready
