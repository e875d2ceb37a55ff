"""The durations of the remediators, compared with the operators' own tests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.for_each import for_each
from virt_admit.model.kubernetes.cluster import NOTHING, Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import SECOND
from virt_admit.model.remediation import remediators


def config(name=remediators.SNR_CONFIG_NAME, namespace="wa", **spec):
    return Object({"apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
                   "kind": "SelfNodeRemediationConfig",
                   "metadata": {"name": name, "namespace": namespace}, "spec": spec})  # fmt: skip


def node(name, *, worker=True, watchdog=None):
    labels = {remediators.WORKER: ""} if worker else {}
    annotations = {remediators.WATCHDOG: watchdog} if watchdog is not None else {}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return Object({"apiVersion": "v1", "kind": "Node", "metadata": metadata})


def workers(count, watchdog=None):
    return [node(f"w{number}", watchdog=watchdog) for number in range(count)]


def template(**spec):
    return Object({"spec": {"template": {"spec": spec}}})


@for_each(
    "workers, expected",
    [
        (0, 0),
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 2),
        (6, 2),
        (7, 3),
        (20, 7),
        (33, 11),
        (42, 14),
        (43, 11),
        (53, 11),
    ],
)
def test_batches(workers, expected):
    assert remediators.batches(workers) == expected


@given(st.integers(0, 5_000))
def test_batches_ask_every_worker_once(workers):
    asked, left = 0, workers
    while left > 0:
        left -= 3 if left == workers else max(3, (workers - 3) // 10)
        asked += 1
    assert remediators.batches(workers) == asked


SLOW = {"apiCheckInterval": "25s", "apiServerTimeout": "7s", "maxApiErrorThreshold": 4,
        "peerDialTimeout": "11s", "peerRequestTimeout": "13s"}  # fmt: skip


@for_each(
    "spec, nodes, seconds",
    [
        ({}, workers(2), 180),
        ({}, workers(2, "10"), 130),
        (SLOW, workers(20, "25"), 351),
        ({}, workers(6), 180),
        ({}, workers(7), 60 + 36 + 60 + 30),
        ({}, workers(20, "0"), 60 + 84 + 0 + 30),
        ({}, [], 180),
        ({}, [*workers(2, "10"), node("m0", worker=False, watchdog="45")], 165),
        ({}, [node("w0", watchdog="ten")], 180),
        ({}, [node("w0", watchdog="10s")], 180),
        ({"maxApiErrorThreshold": 1}, workers(1), 140),
    ],
)
def test_safe_time(spec, nodes, seconds):
    cluster = Snapshot(nodes, complete=["*"])
    assert remediators.worst_safe_time(config(**spec), cluster) == seconds * SECOND


def test_safe_time_with_unseen_nodes():
    assert remediators.worst_safe_time(config(), Snapshot(workers(3, "600"))) == 180 * SECOND


def test_safe_time_of_some_nodes():
    fast, slow = node("w0", watchdog="10"), node("w1", watchdog="50")
    cluster = Snapshot([fast, slow], complete=["*"])
    assert remediators.worst_safe_time(config(), cluster, [fast]) == 130 * SECOND


@pytest.mark.parametrize(
    ("objects", "seconds"),
    [
        ([], 180),
        (workers(1, "10"), 130),
        ([config(safeTimeToAssumeNodeRebootedSeconds=600)], 600),
        ([config(safeTimeToAssumeNodeRebootedSeconds=6)], 180),
        ([config("other", safeTimeToAssumeNodeRebootedSeconds=600)], 180),
        ([config(), config(namespace="elsewhere", safeTimeToAssumeNodeRebootedSeconds=600)], 600),
        ([config(apiCheckInterval="often")], 180),
    ],
)
def test_snr_duration(objects, seconds):
    assert remediators.snr_duration(Snapshot(objects, complete=["*"])) == seconds * SECOND


def test_snr_duration_of_an_unseen_cluster():
    assert remediators.snr_duration(NOTHING) == remediators.DEFAULT_SAFE_TIME == 180 * SECOND


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({}, 320),
        ({"retrycount": 1}, 60),
        ({"retrycount": 3, "timeout": "30s", "retryinterval": "10s"}, 110),
        ({"retrycount": 0}, 320),
        ({"retrycount": -3}, 0),
    ],
)
def test_far_duration(spec, seconds):
    assert remediators.far_duration(template(**spec)) == seconds * SECOND


def test_far_duration_with_an_invalid_time():
    with pytest.raises(ValueError, match="not a duration"):
        remediators.far_duration(template(timeout="1 minute"))
