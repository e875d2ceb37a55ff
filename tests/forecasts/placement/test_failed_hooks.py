"""A Job before the upgrade of a chart that failed: the update has not begun."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import manifest
from virt_admit.forecasts.placement.components.controllers import failed_hooks
from virt_admit.model.kubernetes.cluster import Snapshot

NOW, BEGUN, FAILED = "2027-03-01T12:00:00Z", "2027-03-01T11:43:00Z", "2027-03-01T11:44:00Z"
LONGHORN, ROOK = "longhorn-system", "rook-ceph"
NEW = "longhorn-107.0.0_up1.10.0"
REFUSES = "failed to upgrade since upgrading from v1.8.1 to {} for minor version is not supported"


def job(
    chart: str = "longhorn-1.10.0",
    space: str = LONGHORN,
    hook: str = "pre-upgrade",
    at: str = FAILED,
    kind: str = "Failed",
    labels: dict[str, str] | None = None,
) -> object:
    own = {"helm.sh/chart": chart} if chart else {}
    metadata = {"annotations": {"helm.sh/hook": hook}, "labels": own | (labels or {})}
    failed = {"type": kind, "status": "True", "reason": "DeadlineExceeded"}
    status = {"startTime": BEGUN, "conditions": [failed | {"lastTransitionTime": at}]}
    name = "longhorn-pre-upgrade" if space == LONGHORN else "check"
    return manifest("batch/v1", "Job", name, space, metadata=metadata, status=status)


def running(release: str = "v1.8.1") -> object:
    name = "current-longhorn-version"
    return manifest("longhorn.io/v1beta2", "Setting", name, LONGHORN, value=release)


def event(said: str, reason: str = "FailedUpgradePreCheck", at: str = FAILED) -> object:
    about = {"name": "longhorn-pre-upgrade", "namespace": LONGHORN}
    return manifest(
        *("v1", "Event", "e", LONGHORN),
        type="Warning",
        reason=reason,
        message=said,
        involvedObject=about,
        lastTimestamp=at,
    )


def operator(*charts: str, space: str = ROOK) -> list[object]:
    return [
        manifest("apps/v1", "Deployment", each, space, metadata={"labels": {"helm.sh/chart": each}})
        for each in charts
    ]


def held(*items: Any) -> list[str]:
    found = failed_hooks.held(Snapshot(items, complete=["*"], time=NOW))
    return [f"{each.reason}. {each.remedy}" for each in found]


def test_longhorn_refuses_to_skip_minor_releases() -> None:
    refused = event(REFUSES.format("v1.11.0"))
    (said,) = held(job("longhorn-1.11.0"), running(), refused)
    assert "from v1.8.1 to v1.11.0 is stuck: its hook Job longhorn-system/longhorn-pre-u" in said
    assert "failed 16 min ago (DeadlineExceeded), so Helm has changed nothing" in said
    assert "this skips v1.9, v1.10" in said
    assert "to the latest v1.9.x, then the latest v1.10.x, let the engines" in said


def test_an_event_is_left_of_the_job() -> None:
    (said,) = held(running(), event(REFUSES.format("v1.10.0")))
    assert "v1.10.0 is stuck: its check before the upgrade refused it 16 min ago" in said
    assert "Upgrade Longhorn to the latest v1.9.x, let" in said


@pytest.mark.parametrize(
    "own",
    [
        job(NEW),
        job("longhorn-107.0.0", labels={"app.kubernetes.io/version": "v1.10.0"}),
        job("longhorn-107.0.0"),
        job(""),
    ],
    ids=["packaged", "label", "event", "no chart"],
)
def test_the_release_is_that_of_longhorn_not_of_a_chart_that_packages_it(own: object) -> None:
    (said,) = held(own, running(), event(REFUSES.format("v1.10.0")))
    assert "of Longhorn from v1.8.1 to v1.10.0 is stuck" in said
    assert "this skips v1.9. Upgrade Longhorn to the latest v1.9.x, let" in said


def test_another_check_of_longhorn_names_no_release_to_go_through() -> None:
    (said,) = held(job("longhorn-1.9.0"), running(), event("iscsiadm is not installed"))
    assert "changed nothing: iscsiadm is not installed. End what made it fail, then repeat" in said


def test_a_pod_of_any_chart_says_why() -> None:
    ended = {"exitCode": 1, "message": "crd cephclusters is not ready"}
    owner = [{"kind": "Job", "name": "check", "controller": True}]
    pod = manifest(
        *("v1", "Pod", "check-1", ROOK),
        metadata={"ownerReferences": owner},
        status={"containerStatuses": [{"name": "c", "state": {"terminated": ended}}]},
    )
    (said,) = held(job("rook-1.2.0", ROOK), *operator("rook-1.1.0"), pod)
    assert "The update of chart rook from 1.1.0 to 1.2.0 is stuck: its hook Job" in said
    assert "crd cephclusters is not ready. End what made it fail" in said
    assert "kubectl logs check-1 -n rook-ceph" in said


@pytest.mark.parametrize(
    "items",
    [
        (job(), running("v1.10.0"), event(REFUSES.format("v1.10.0"))),
        (running("v1.9.2"), event(REFUSES.format("v1.10.0"))),
        (job(kind="Complete"), running(), event(REFUSES.format("v1.10.0"))),
        (running(), event(REFUSES.format("v1.10.0"), "PassedUpgradeCheck")),
        (job(hook="post-upgrade"), running()),
        (job(at="2027-02-01T11:44:00Z"), running()),
        (job("shop-2.0.0", "shop"), running()),
        (job("rook-1.2.0", ROOK), *operator("rook-1.2.0", "rook-1.1.0")),
        (job("rook-1.2.0", ROOK), *operator("toolbox-1.1.0")),
        (job("rook-1.2.0", ROOK), *operator("rook-1.3.0")),
        (job(NEW), running("v1.10.0")),
        (job(NEW), running(), *operator(NEW, space=LONGHORN)),
    ],
    ids=[
        "installed since",
        "another step was taken",
        "tried again",
        "passed",
        "after the upgrade",
        "a month ago",
        "not of the platform",
        "workloads of the new release",
        "the release before is not known",
        "a newer release is installed",
        "Longhorn of another chart is installed",
        "workloads of the packaged release",
    ],
)
def test_upgrades_that_are_not_held(items: tuple[Any, ...]) -> None:
    assert held(*items) == []
