"""A pod whose grace period is not over: for how long it may hold a drain, and what holds it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import manifest, node
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.drain_plan import NodePlan
from virt_admit.model.kubernetes.cluster import Snapshot

NOW = "2026-01-01T12:00:00Z"
HOOK = {"exec": {"command": ["sh", "-c", "until drained; do sleep 1; done"]}}
RABBIT = {
    "exec": {
        "command": ["/bin/bash", "-c", "rabbitmq-upgrade await_online_quorum_plus_one -t 604800"]
    }
}


def pod(
    until: str = "", grace: int = 30, hook: Any = None, phase: str = "Running", **labels: str
) -> Any:
    lifecycle = {"lifecycle": {"preStop": hook}} if hook else {}
    metadata: dict[str, Any] = {
        "labels": labels,
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "queue", "controller": True}
        ],
    }
    if until:
        metadata |= {"deletionTimestamp": until, "deletionGracePeriodSeconds": grace}
    spec = {
        "nodeName": "a",
        "containers": [{"name": "queue", **lifecycle}],
        "terminationGracePeriodSeconds": grace,
    }
    return manifest(
        "v1", "Pod", "queue-1", "shop", metadata=metadata, spec=spec, status={"phase": phase}
    )


def drained(*objects: Any) -> NodePlan:
    return drain_plan.plan(Snapshot([node("a"), *objects], complete=["*"], time=NOW), "a").nodes[0]


def test_a_hook_holds_the_drain_for_days() -> None:
    found = drained(pod("2026-01-08T09:00:00Z", 604800, HOOK))
    (blocker,) = found.pods.blockers
    assert found.drainable is False
    assert blocker.reason == (
        "it has been ending for 3 h; its grace period of 7 days ends at 2026-01-08T09:00:00Z, in 6 "
        "days 21 h, and its preStop hook may hold it until then (until drained, do sleep 1, done)"
    )
    assert blocker.remedy.endswith(": kubectl logs queue-1 -n shop -c queue")
    assert found.pods.lasting == (blocker,)


def test_a_known_hook_says_what_it_waits_for() -> None:
    (blocker,) = drained(pod("2026-01-08T09:00:00Z", 604800, RABBIT)).pods.blockers
    assert "quorum queue" in blocker.remedy
    assert blocker.remedy.endswith(
        "-c queue -- rabbitmq-diagnostics check_if_node_is_quorum_critical"
    )


def test_a_drain_waits_for_minutes() -> None:
    found = drained(pod("2026-01-01T12:04:00Z", 300))
    (wait,) = found.pods.waits
    assert found.drainable is True
    assert wait.until == "2026-01-01T12:04:00Z"
    assert "in 4 min" in wait.reason


def test_less_than_an_hour_stops_no_upgrade() -> None:
    found = drained(pod("2026-01-01T12:20:00Z", 1800))
    assert found.drainable is False
    assert found.pods.lasting == ()


@pytest.mark.parametrize(
    ("until", "grace"), [("2026-01-01T12:29:57Z", 1800), ("2026-01-08T11:59:57Z", 604800)]
)
def test_a_pod_of_an_ordinary_roll_out_has_just_been_deleted(until: str, grace: int) -> None:
    found = drained(pod(until, grace, RABBIT))
    (wait,) = found.pods.waits
    assert (found.drainable, wait.until) == (True, until)
    assert wait.reason.startswith("it has been ending for 3 s")


def test_a_hook_that_has_slept_holds_nothing() -> None:
    (blocker,) = drained(
        pod("2026-01-01T12:50:00Z", 3600, {"sleep": {"seconds": 10}})
    ).pods.blockers
    assert "hook" not in f"{blocker.reason} {blocker.remedy}"


def test_a_hook_is_bounded_by_its_sleep() -> None:
    (wait,) = drained(
        pod(grace=7200, hook={"exec": {"command": ["sh", "-c", "sleep 30m"]}})
    ).pods.waits
    assert "may hold it for up to 30 min" in wait.reason


def shell(text: str) -> Any:
    return {"exec": {"command": ["sh", "-c", text]}}


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("sleep 15m; nginx -s quit", 15),
        ("echo bye > /proc/1/fd/1 && sleep 600 && exec timeout 10m drain --all", 20),
        ("timeout -s KILL 20m drain 2>&1\nexit 0", 20),
        ("sleep 5; drain --wait", 60),
        ("kill -QUIT 1; while kill -0 1; do sleep 1; done", 60),
        ("sleep 5 & drain", 60),
        ("kill $(drain); sleep 5", 60),
        ("sleep 1m 30m", 60),
        ("timeout 0 drain", 60),
        ("sleep infinity", 60),
        ("sleep 99999999d;" * 20, 60),
    ],
)
def test_a_hook_of_several_commands_is_bounded_where_each_is(text: str, minutes: int) -> None:
    (wait,) = drained(pod(grace=3600, hook=shell(text))).pods.waits
    assert (
        f"may hold it for up to {'1 h' if minutes == 60 else f'{minutes} min'} after" in wait.reason
    )


def test_a_hook_may_last_after_the_eviction() -> None:
    found = drained(pod(grace=604800, hook=HOOK))
    assert found.drainable is True
    (wait,) = found.pods.waits
    assert wait.reason.startswith(
        "its preStop hook may hold it for up to 7 days after its eviction"
    )


@pytest.mark.parametrize(
    "healthy",
    [
        pod("2026-01-01T12:00:20Z"),
        pod(grace=604800),
        pod(grace=60, hook=HOOK),
        pod(grace=3600, hook={"sleep": {"seconds": 10}}),
        pod(grace=3600, hook={"exec": {"command": ["/bin/sleep", "20"]}}),
        pod(grace=3600, hook=shell("sleep 20; /usr/sbin/nginx -s quit")),
        pod("2026-01-08T09:00:00Z", 604800, HOOK, phase="Succeeded"),
        pod("2026-01-08T09:00:00Z", 604800, **{"kubevirt.io": "virt-launcher"}),
    ],
)
def test_nothing_is_said(healthy: Any) -> None:
    found = drained(healthy).pods
    assert (found.blockers, found.waits) == ((), ())
