"""VMs of a lost node whose new launcher pod the API server refuses,
whatever becomes of the node.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.forecasts.outage.losses import lose, manifest, nhc, node, snapshot, vm
from tests.healthy.parts import ago
from virt_admit.forecasts.outage.lost_vms import LostVm

NODES = [node("n1"), node("n2"), node("n3")]


def limit_range(**limits: Any) -> Any:
    return manifest(
        "v1", "LimitRange", "defaults", "shop", spec={"limits": [{"type": "Container", **limits}]}
    )


def quota(hard: str, used: str) -> Any:
    usage = {"hard": {"requests.memory": hard}, "used": {"requests.memory": used}}
    return manifest(
        "v1", "ResourceQuota", "limits", "shop", spec={"hard": usage["hard"]}, status=usage
    )


def lost(*objects: Any, time: str | None = None) -> LostVm:
    guest = vm("db", "n1", "20Gi", domain={"memory": {"guest": "20Gi"}, "devices": {}})
    (row,) = lose(snapshot(NODES, guest, *objects, time=time), "n1").outages[0].vms
    return row


@pytest.mark.parametrize("check", [(), (nhc(),)], ids=["no health check", "a health check"])
def test_a_default_below_the_request(check: tuple[Any, ...]) -> None:
    found = lost(limit_range(default={"memory": "1Gi"}), *check)
    assert found.outcome == "never restarts"
    assert found.by_hand is None
    assert found.reason.startswith(
        "LimitRange defaults: container compute: memory: the default limit 1Gi is below the"
    )
    assert found.reason.endswith("every new pod of it is refused")
    assert ": kubectl edit limitrange defaults -n shop; or change what" in found.remedy


def test_a_quota_was_lowered_below_what_others_use() -> None:
    found = lost(quota("40Gi", "60Gi"), nhc())
    assert found.outcome == "never restarts"
    assert found.reason.startswith("ResourceQuota limits: requests.memory: 20.")
    assert found.remedy.endswith(": kubectl edit resourcequota limits -n shop")


@pytest.mark.parametrize(
    "allowed",
    [
        limit_range(default={"memory": "100Gi"}),
        limit_range(max={"cpu": "64"}),
        quota("21Gi", "20Gi"),
    ],
)
def test_what_refuses_nothing_or_only_a_second_pod(allowed: Any) -> None:
    assert lost(allowed, nhc()).outcome == "restarts"


@pytest.mark.parametrize(
    ("phase", "outcome"), [("Running", "restarts"), ("Succeeded", "never restarts")]
)
def test_a_quota_counts_no_pod_that_has_ended(phase: str, outcome: str) -> None:
    """What a pod of the lost node has is freed, unless the quota has not counted it."""
    requests = {"containers": [{"name": "a", "resources": {"requests": {"memory": "50Gi"}}}]}
    other = manifest(
        "v1", "Pod", "job", "shop", spec={"nodeName": "n1", **requests}, status={"phase": phase}
    )
    assert lost(quota("40Gi", "60Gi"), other, nhc()).outcome == outcome


# --- virt-handler ---------------------------------------------------------------------------------


def crashing(on: str, **since: float) -> Any:
    """Return a virt-handler that crashes for some time, on a node that has its label still."""
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": ago(**since)}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    container = {"name": "virt-handler", "ready": False, "restartCount": 30, "state": waiting}
    return manifest(
        "v1",
        "Pod",
        f"virt-handler-{on}",
        "kubevirt",
        metadata={"labels": {"kubevirt.io": "virt-handler"}, "creationTimestamp": ago(days=3)},
        spec={"nodeName": on, "containers": [{"name": "virt-handler"}]},
        status={"phase": "Running", "conditions": [ready], "containerStatuses": [container]},
    )


def test_no_vm_starts_where_virt_handler_crashes() -> None:
    others = [crashing(name, hours=2) for name in ("n2", "n3")]
    found = lost(*others, nhc(), time=ago())

    assert found.outcome == "waits for room"
    assert "on n2 virt-handler is not ready: CrashLoopBackOff" in found.reason
    assert "repair pod virt-handler-n2" in found.remedy


@pytest.mark.parametrize(
    "handlers",
    [
        [crashing("n1", hours=2)],
        [crashing("n2", hours=2)],
        [crashing("n2", minutes=3), crashing("n3", minutes=3)],
    ],
    ids=["its own", "one of the others", "for a moment"],
)
def test_a_vm_starts_where_virt_handler_works(handlers: list[Any]) -> None:
    found = lost(*handlers, nhc(), time=ago())

    assert found.outcome == "restarts"
