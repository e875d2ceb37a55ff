"""Claims that are being deleted, which the pods that use them keep."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import manifest, node, partial
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.placement.refusals import dying_claims
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.drain.text import text

NOW = "2026-06-01T12:00:00Z"
DYING = {
    "deletionTimestamp": "2026-06-01T02:00:00Z",
    "finalizers": ["kubernetes.io/pvc-protection"],
}

OTHERS = DYING | {"finalizers": [*DYING["finalizers"], "example.com/x"]}


def _claim(**metadata: Any) -> Object:
    return manifest(
        *("v1", "PersistentVolumeClaim", "data", "ns"),
        spec={"volumeName": "pv-1"},
        metadata=metadata,
    )


def _volume(policy: str) -> Object:
    return manifest(
        *("v1", "PersistentVolume", "pv-1"), spec={"persistentVolumeReclaimPolicy": policy}
    )


def _pod(name: str, node: str | None, phase: str = "Running", **metadata: Any) -> Object:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    spec = {"volumes": volumes} | ({"nodeName": node} if node else {})
    return manifest("v1", "Pod", name, "ns", spec=spec, status={"phase": phase}, metadata=metadata)


def _cluster(*objects: Object) -> Snapshot:
    return Snapshot(objects, ["*"], time=NOW)


def test_a_new_pod_learns_who_keeps_its_claim() -> None:
    new = _pod("new", None, "Pending")
    cluster = _cluster(_claim(**DYING), _volume("Delete"), _pod("old", "n1"), new)
    (found,) = dying_claims.of_pod(new, cluster)
    assert found.why(cluster) == (
        "claim ns/data is being deleted for 10 h and stays only while pod old uses it"
    )
    assert "let volume pv-1 be retained, then copy its data before old ends" in found.remedy
    assert "kubectl patch persistentvolume pv-1" in found.remedy
    assert list(dying_claims.of_pod(_pod("old", "n1"), cluster)) == []


def test_a_volume_that_is_kept_needs_no_patch() -> None:
    new = _pod("new", None, "Pending")
    cluster = _cluster(_claim(**DYING), _volume("Retain"), _pod("old", "n1"), new)
    (found,) = dying_claims.of_pod(new, cluster)
    assert "patch" not in found.remedy


def test_a_drain_takes_the_last_pod() -> None:
    claim, volume = _claim(**DYING), _volume("Delete")
    alone = _cluster(claim, volume, _pod("a", "n1"), _pod("b", "n1"))
    assert len(list(dying_claims.lost_with("n1", alone))) == 1
    assert list(dying_claims.lost_with("n2", alone)) == []


@pytest.mark.parametrize(
    "objects",
    [
        [_claim(), _pod("a", "n1")],
        [_claim(**DYING), _pod("a", "n1"), _pod("b", "n2")],
        [_claim(**DYING), _pod("a", "n1", "Succeeded")],
        [_claim(**DYING), _pod("a", "n1", deletionTimestamp=NOW)],
        [_claim(deletionTimestamp=NOW, finalizers=["example.com/x"]), _pod("a", "n1")],
        [_claim(**OTHERS), _pod("a", "n1")],
        [_claim(**DYING), _pod("a", "n1", labels={"kubevirt.io": "virt-launcher"})],
    ],
    ids=[
        *("not deleted", "used elsewhere too", "ended", "ends already", "another finalizer"),
        *("a second finalizer", "of a VM"),
    ],
)
def test_no_claim_is_lost_with_the_drain(objects: list[Object]) -> None:
    assert list(dying_claims.lost_with("n1", _cluster(*objects))) == []


def test_another_finalizer_keeps_the_claim_as_well():
    new = _pod("new", None, "Pending")
    cluster = _cluster(_claim(**OTHERS), _pod("old", "n1"), new)
    (found,) = dying_claims.of_pod(new, cluster)
    assert found.why(cluster).endswith("and stays while pod old uses it")


def test_a_missing_volume_is_not_promised() -> None:
    cluster = partial(_claim(**DYING), _pod("a", "n1"))
    (found,) = dying_claims.lost_with("n1", cluster)
    assert found.volume is None


def test_the_answer_of_a_drain_says_that_data_go():
    held = _cluster(node("n1"), _claim(**DYING), _volume("Delete"), _pod("a", "n1"))
    said = text(drain_plan.plan(held, "n1"))
    assert "so a drain deletes it and its volume pv-1 (reclaim policy Delete)" in said
    assert "A drain of n1 ends. But it deletes data" in said
