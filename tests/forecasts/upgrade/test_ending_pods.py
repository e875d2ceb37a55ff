"""What an upgrade says of pods that take long to end,
and of one cause that stops it at several nodes.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import manifest, node
from virt_admit.forecasts.upgrade.rehearsal import Options, Rehearsal, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.upgrade import text

HOOK = {"lifecycle": {"preStop": {"exec": {"command": ["await-peers"]}}}}


def pod(on: str, until: str = "", grace: int = 604800) -> Any:
    owner = [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "queue", "controller": True}]
    gone = {"deletionTimestamp": until, "deletionGracePeriodSeconds": grace} if until else {}
    spec = {
        "nodeName": on,
        "terminationGracePeriodSeconds": grace,
        "containers": [{"name": "main", **HOOK}],
    }
    metadata = {"labels": {"app": "queue"}, "ownerReferences": owner, **gone}
    return manifest(
        "v1",
        "Pod",
        f"queue-{on}",
        "shop",
        metadata=metadata,
        spec=spec,
        status={"phase": "Running"},
    )


def upgraded(*objects: Any) -> Rehearsal:
    cluster = Snapshot([node("a"), node("b"), *objects], ["*"], time="2026-01-01T12:00:00Z")
    return rehearse(cluster, Options(), forecast_only=True)


def test_a_hook_of_days_stops_it() -> None:
    found = upgraded(pod("a", "2026-01-08T09:00:00Z"))
    (stop,) = found.stops
    assert (found.possible, stop.node) == (False, "a")
    assert (
        "in 6 days 21 h, and its preStop hook may hold it until then (await-peers)" in stop.reason
    )


@pytest.mark.parametrize(
    ("held", "says"),
    [
        (
            pod("a"),
            "its preStop hook may hold it for up to 7 days after its eviction (await-peers)",
        ),
        (
            pod("a", "2026-01-08T11:59:57Z"),
            "it has been ending for 3 s; its grace period of 7 days ends at",
        ),
        (
            pod("a", "2026-01-01T12:20:00Z", 1800),
            "it has been ending for 10 min; its grace period of 30 min ends at",
        ),
    ],
)
def test_the_estimate_rests_on_it(held: Any, says: str) -> None:
    found = upgraded(held)
    assert found.stops == ()
    assert any(
        f"Pod shop/queue-a on a ends within minutes: {says}" in each for each in found.rests_on
    )


def test_two_budgets_are_one_cause() -> None:
    budgets = [
        manifest(
            "policy/v1",
            "PodDisruptionBudget",
            name,
            "shop",
            spec={"selector": {"matchLabels": {"app": "queue"}}},
        )
        for name in ("chart", "team")
    ]
    said = text.text(upgraded(pod("a"), pod("b"), *budgets))
    assert said.startswith("No: the upgrade stops (1 cause).")
    assert "stops at a, b: PodDisruptionBudget shop/chart: it and team select the same pods" in said
