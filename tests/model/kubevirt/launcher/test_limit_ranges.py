"""LimitRanges of a namespace: what they write into a second launcher pod,
and why they refuse it.
"""

from __future__ import annotations

from typing import Any

from tests.builders import manifest
from tests.for_each import for_each
from tests.forecasts.drain.test_capacity import BIG, DISK, HOSTS, LAUNCHER, NS, VOLUME
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.placement import quotas
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.problems import Problem

MEMORY = "memory"


def limit_range(*limits: dict[str, Any], name: str = "bounds") -> Object:
    return manifest("v1", "LimitRange", name, "shop", spec={"limits": list(limits)})


def for_containers(**bounds: Any) -> Object:
    return limit_range({"type": "Container", **bounds})


def refusal(*found: Object, complete: tuple[str, ...] = ("*",)) -> Problem | None:
    known = Snapshot([*HOSTS, BIG, LAUNCHER, DISK, VOLUME, NS, *found], complete)
    return quotas.refusal(BIG, known)


def refused(*found: Object, complete: tuple[str, ...] = ("*",)) -> str:
    problem = refusal(*found, complete=complete)
    return problem.reason if problem else ""


@for_each(
    "found, says",
    [
        (for_containers(default={MEMORY: "512Mi"}), "limit 512Mi is below the request 200Gi"),
        (for_containers(max={MEMORY: "100Gi"}), "limit 100Gi is below the request 200Gi"),
        (for_containers(default={MEMORY: "300Gi"}), ""),
        (
            for_containers(max={MEMORY: "150Gi"}, default={MEMORY: "300Gi"}),
            "limit 300Gi, the maximum is 150Gi",
        ),
        (for_containers(min={"cpu": "1"}), ""),  # the minimum is the default request
        (
            for_containers(min={"cpu": "2"}, defaultRequest={"cpu": "1"}),
            "cpu: request 1, the minimum is 2",
        ),
        (
            for_containers(default={MEMORY: "400Gi"}, maxLimitRequestRatio={MEMORY: "1.5"}),
            "more than 1.5 times",
        ),
        (for_containers(default={MEMORY: "300Gi"}, maxLimitRequestRatio={MEMORY: "1.5"}), ""),
        (for_containers(maxLimitRequestRatio={MEMORY: "2"}), "a request and a limit are necessary"),
        (
            limit_range({"type": "Pod", "max": {MEMORY: "400Gi"}}),
            "the pod: memory: no limit, the maximum is 400Gi",
        ),
        (limit_range({"type": "Pod", "min": {MEMORY: "400Gi"}}), "the pod: memory: request 200Gi"),
        (
            limit_range({"type": "Pod", "max": {"ephemeral-storage": "1Gi"}}),
            "ephemeral-storage: no limit",
        ),
        (limit_range({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}), ""),
        (
            manifest(
                "v1",
                "LimitRange",
                "bounds",
                "other",
                spec={"limits": [{"type": "Pod", "max": {"cpu": "1"}}]},
            ),
            "",
        ),
    ],
)
def test_a_second_pod_is_judged_as_the_api_server_judges_it(found: Object, says: str) -> None:
    assert says in refused(found)
    assert bool(refused(found)) is bool(says)


def test_the_default_limit_counts_in_the_quota() -> None:
    status = {"hard": {"requests.memory": "900Gi"}, "used": {"requests.memory": "200Gi"}}
    assert not refused(manifest("v1", "ResourceQuota", "free", "shop", status=status))
    of_limits = manifest(
        "v1", "ResourceQuota", "team", "shop", spec={"hard": {"limits.memory": "250Gi"}}
    )
    assert "limits.memory: a limit of each container is missing" in refused(of_limits)
    assert "limits.memory: 50Gi missing" in refused(
        of_limits, for_containers(default={MEMORY: "300Gi"})
    )


@for_each(
    "hard, also",
    [
        ({"limits.memory": "900Gi", "pods": "1"}, "pods 2"),
        ({"limits.memory": "399Gi"}, "limits.memory 400Gi"),
        ({"limits.memory": "400Gi", "pods": "2"}, ""),
    ],
)
def test_a_limit_that_is_set_does_not_suffice_where_the_quota_is_full(
    hard: dict[str, str], also: str
) -> None:
    """The limit of a container is no less than its request of 200Gi."""
    status = {"hard": hard, "used": {"limits.memory": "200Gi", "pods": "1"}}
    problem = refusal(manifest("v1", "ResourceQuota", "team", "shop", status=status))

    assert problem is not None
    assert problem.remedy.startswith("add a LimitRange to shop with default limits")
    raised = f"; in each case also raise ResourceQuota team to at least {also}"
    assert problem.remedy.endswith(raised if also else "of the VMs, and restart them")


def test_limit_ranges_that_cannot_be_read_leave_the_drain_undetermined() -> None:
    objects = [*HOSTS, BIG, LAUNCHER, DISK, VOLUME, NS]
    whole = drain_plan.plan(Snapshot(objects, ["*"]), "n2").nodes[0]
    blind = drain_plan.plan(Snapshot(objects, ["*"], unreadable=["limitranges"]), "n2").nodes[0]
    assert whole.drainable is True
    assert blind.drainable is None
    assert any("limitranges" in what for what in blind.unseen)
