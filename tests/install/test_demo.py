"""``make demo``, the first command that a newcomer runs, and where the server needs to write."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml

from tests.paths import EXAMPLES, ROOT
from virt_admit.serving.gunicorn_app import heartbeat_folder


def test_the_first_run_says_that_it_installs(tmp_path):
    """Where there is no virtual environment yet, the minute of installing is announced before it begins."""
    for name in ("Makefile", "requirements-dev.lock", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    done = subprocess.run(
        ["make", "--dry-run", "demo"], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60
    )
    lines = done.stdout.splitlines()
    (said,) = (number for number, line in enumerate(lines) if line.startswith("echo") and "about a minute" in line)
    (installs,) = (number for number, line in enumerate(lines) if "--require-hashes" in line)
    assert said < installs


@pytest.mark.slow
def test_every_example_gets_its_decision():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=120
    )
    assert "verified" in done.stdout
    for file in sorted(EXAMPLES.glob("0*.yaml")):
        judged = [
            obj
            for obj in yaml.safe_load_all(file.read_text())
            if obj["kind"] in ("VirtualMachine", "MachineHealthCheck")
        ]
        assert judged, file.name
        for obj in judged:
            assert re.search(rf"/{obj['metadata']['name']}\b", done.stdout), file.name
    for decision in ("allowed", "denied", "warned"):
        assert decision in done.stdout


def test_gunicorn_writes_its_heartbeats_to_shared_memory_only_where_it_can(tmp_path):
    assert heartbeat_folder(str(tmp_path)) == str(tmp_path)
    assert heartbeat_folder(str(tmp_path / "missing")) is None
