"""``make demo``, the first command that a newcomer runs, and where the server needs to write."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import yaml

from tests.install.test_docs import blocks
from tests.paths import EXAMPLES, ROOT
from tools import example_cluster
from virt_admit import api
from virt_admit.serving.gunicorn_app import heartbeat_folder


def test_the_first_run_says_that_it_installs(tmp_path):
    """Where there is no virtual environment yet,
    the minute of installing is announced before it begins.
    """
    for name in ("Makefile", "requirements-dev.lock", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    done = subprocess.run(
        ["make", "--dry-run", "demo"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = done.stdout.splitlines()
    (said,) = (
        number
        for number, line in enumerate(lines)
        if line.startswith("echo") and "up to a minute" in line
    )
    installs = [number for number, line in enumerate(lines) if "--require-hashes" in line]
    assert installs
    assert said < min(installs)


@pytest.mark.slow
def test_every_example_gets_its_decision():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py"],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "80"},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
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
    lines = done.stdout.splitlines()
    too_long = [line for line in lines if len(line) > 80 and len(line.split()) > 1]
    assert not too_long, (
        "a terminal has 80 columns; one long word stays whole, so that its command can be copied"
    )
    for verb in ("drain --all --summary", "upgrade"):
        assert f"$ virt-admit {verb} --cluster examples/clusters/stuck.json" in lines
    assert "7 of 7 nodes cannot be drained" in " ".join(done.stdout.split())
    page = ROOT / done.stdout.partition("as a page to hand on: ")[2].split()[0]
    assert "<title>Drain: No" in page.read_text()
    assert "On your own cluster, read-only: virt-admit drain --all" in lines


def test_gunicorn_writes_its_heartbeats_to_shared_memory_only_where_it_can(tmp_path):
    assert heartbeat_folder(str(tmp_path)) == str(tmp_path)
    assert heartbeat_folder(str(tmp_path / "missing")) is None


class TestStuckCluster:
    """The example of a cluster in which no node can be drained keeps what it is an example of."""

    STATE = api.read(EXAMPLES / "clusters" / "stuck.json")

    def test_it_is_what_the_generator_makes(self):
        (content,) = example_cluster.files().values()
        assert example_cluster.FILE.read_text() == content
        assert example_cluster.files() == {example_cluster.FILE: content}

    def test_no_node_can_be_drained_and_each_for_a_reason_of_its_own(self):
        report = api.drain(self.STATE)
        assert [node.drainable for node in report.nodes] == [False] * 7
        vms = [vm for node in report.nodes for vm in node.vms if not vm.from_]
        assert (len(vms), len({vm.namespace for vm in vms})) == (40, 6)
        blocking = {vm.name: vm.reason for vm in vms if vm.outcome == "blocks the drain"}
        reasons = {
            "finance-01": "ResourceQuota pods",
            "tape-robot": "HostDeviceNotLiveMigratable",
            "archive": "DisksNotLiveMigratable",
            "licence-server": "node selector",
            "simulation": "missing on gpu-1",
        }
        assert {name: text in blocking[name] for name, text in reasons.items()} == dict.fromkeys(
            reasons, True
        )
        (stuck,) = [vm for vm in vms if vm.name == "db"]
        assert (stuck.outcome, stuck.state) == ("unknown", "running")
        assert [one.name for node in report.nodes for one in node.blockers] == ["checkout"]

    def test_the_other_verbs_have_something_to_say(self):
        assert api.upgrade(self.STATE).possible is False
        rules = {each.rule for each in api.scan(self.STATE).results}
        assert {
            "mhc-nhc-conflict",
            "mhc-max-unhealthy-unlimited",
            "quota-blocks-migration",
        } <= rules

    def test_three_commands_lead_from_a_clone_to_the_answer(self):
        """The README begins with them."""
        (block, *_) = blocks((ROOT / "README.md").read_text(), "console")
        commands = [line for line in block.splitlines() if line.strip()]
        assert [command.split()[0] for command in commands] == ["make", ".venv/bin/virt-admit"]
        done = subprocess.run(
            commands[-1].split(), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 1
        assert done.stdout.startswith("No node can certainly be drained now.")
