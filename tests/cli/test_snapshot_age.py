"""``--max-age`` of ``drain`` and ``upgrade``: snapshots that are old,
and snapshots without a time.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from virt_admit.cli import main
from virt_admit.model.kubernetes import clock
from virt_admit.settings import API_VERSION

READY = {"conditions": [{"type": "Ready", "status": "True"}]}
NODES = [
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": READY}
    for name in ("a", "b")
]


@pytest.fixture
def saved(tmp_path):
    """Return a function that writes a snapshot of this age in hours; None: without time."""

    def write(hours):
        time = (
            {}
            if hours is None
            else {"time": clock.stamp(datetime.now(UTC) - timedelta(hours=hours))}
        )
        head = {"apiVersion": API_VERSION, "kind": "Snapshot", "complete": ["*"], "unreadable": []}
        file = tmp_path / "cluster.json"
        file.write_text(json.dumps({**head, **time, "items": NODES}))
        return str(file)

    return write


def run(*command):
    return CliRunner().invoke(main.virt_admit, command, standalone_mode=False)


VERBS = (["drain", "a"], ["drain", "--all"], ["upgrade", "--by", "plain"])


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("hours", "flags", "code", "says"),
    [
        (1, [], 0, ""),
        (25, [], 0, "this snapshot is 25h old, and --max-age is 24h"),
        (None, [], 0, "this snapshot has no time"),
        (1, ["--max-age", "2h"], 0, ""),
        (30 * 24, [], 0, "this snapshot is 30 days old, and --max-age is 24h"),
        (3, ["--max-age", "2h"], 2, "this snapshot is 3h old, and --max-age is 2h"),
        (None, ["--max-age", "24h"], 2, "this snapshot has no time"),
        (-0.1, ["--max-age", "24h"], 0, ""),
        (
            -3.01,
            ["--max-age", "24h"],
            2,
            "the time of this snapshot is 3h in the future. Correct the clock",
        ),
    ],
)
def test_the_age_of_a_snapshot(saved, verb, hours, flags, code, says):
    result = run(*verb, "--cluster", saved(hours), *flags)

    assert result.return_value == code
    assert says in result.stderr
    assert result.stderr.count("\n") == bool(says)
    assert result.stdout, "the report is printed in any case"


def test_the_highest_code_of_several_clusters(saved, tmp_path):
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / "cluster.json").write_text(Path(saved(1)).read_text())
    result = run(
        "drain", "--all", "--cluster", str(fresh), "--cluster", saved(30), "--max-age", "24h"
    )
    assert result.return_value == 2


@pytest.mark.parametrize("age", ["soon", "-1h", "5"])
def test_an_age_that_is_not_a_duration(saved, age):
    result = run("drain", "a", "--cluster", saved(1), f"--max-age={age}")
    assert "--max-age" in str(result.exception.format_message())
