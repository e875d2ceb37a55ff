"""Time that the cluster tells."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import manifest
from virt_admit.model.kubernetes.clock import (
    bounded,
    duration,
    has_lasted,
    instant,
    is_overdue,
    now,
)
from virt_admit.model.kubernetes.cluster import Snapshot, Unseen


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-01T10:20:30Z", datetime(2026, 11, 1, 10, 20, 30, tzinfo=UTC)),
        ("2026-11-01T10:20:30.5Z", datetime(2026, 11, 1, 10, 20, 30, 500_000, tzinfo=UTC)),
        ("2026-11-01T12:20:30+02:00", datetime(2026, 11, 1, 10, 20, 30, tzinfo=UTC)),
        ("2026-11-01T10:20:30", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("0001-01-01T00:00:00Z", None),
        ("9999-12-31T23:59:59-12:00", None),
        ("9999-12-31T23:59:59Z", None),
        ("2026-11-01", None),
        ("yesterday", None),
        ("", None),
        (None, None),
    ],
)
def test_instant(text, expected):
    assert instant(text) == expected


@given(st.text(max_size=30))
def test_reading_a_time_never_raises(text):
    instant(text)


def node(name, *heartbeats):
    conditions = [{"type": "Ready", "lastHeartbeatTime": each} for each in heartbeats]
    return manifest("v1", "Node", name, status={"conditions": conditions})


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (
            [node("a", "2026-11-01T10:00:00Z", "soon"), node("b", "2026-11-01T10:05:00Z", None)],
            "2026-11-01T10:05:00Z",
        ),
        ([node("a")], None),
        ([], None),
    ],
)
def test_now(nodes, expected):
    assert now(Snapshot(nodes)) == instant(expected)


@pytest.mark.parametrize(
    ("since", "certain", "overdue"),
    [
        ("2026-11-01T09:50:00Z", True, True),
        ("2026-11-01T09:50:01Z", False, False),
        (None, False, True),
        ("soon", False, False),
    ],
)
def test_a_patience_is_over(since, certain, overdue):
    cluster = Snapshot([node("a", "2026-11-01T10:00:00Z")], complete=["*"])
    patience = timedelta(minutes=10)
    assert has_lasted(since, patience, cluster) is certain
    assert is_overdue(since, patience, cluster) is overdue


def test_unread_nodes_may_tell_that_a_patience_is_over():
    since, patience = "2026-11-01T09:50:00Z", timedelta(minutes=10)
    assert not has_lasted(since, patience, Snapshot())
    with pytest.raises(Unseen, match="node"):
        is_overdue(since, patience, Snapshot())


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (71, "71 h"),
        (72, "3 days"),
        (76, "3 days 4 h"),
        (239, "9 days 23 h"),
        (250, "10 days"),
        (840, "35 days"),
    ],
)
def test_a_long_time_is_told_in_days(hours, words):
    assert duration(timedelta(hours=hours)) == words


@pytest.mark.parametrize(("seconds", "least"), [(-3, 0), (30, 30), (10**12, 30 * 365 * 24 * 3600)])
def test_seconds_of_a_field_move_a_time(seconds, least):
    assert bounded(seconds) >= least
    assert datetime(2026, 11, 1, tzinfo=UTC) + timedelta(seconds=bounded(seconds))
