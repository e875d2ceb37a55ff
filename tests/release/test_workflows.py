"""The workflows: valid for actionlint, and every command is a script of this repository that tests
run.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from release import __main__ as steps
from release import dry_run, pins
from release.tools import tool
from tests.apiserver.binaries import Unavailable
from tests.paths import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
GATE = {".ci/run", "make setup", "sudo --preserve-env make image-test"} | {
    f"make {target}"
    for target in (
        *("unit SLOW=1", "test-lowest", "audit", "soak MINUTES=5"),
        *(f"verify-{what}" for what in ("random", "installation", "helm", "rotations", "years")),
    )
}
"""The commands of test.yaml: the gate itself, and targets of the Makefile.

What ``make test`` leaves to a longer version is among them.
"""


def commands(workflow: Path) -> list[str]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def test_actionlint_accepts_the_workflows():
    try:
        actionlint = tool("actionlint")
    except Unavailable as reason:
        pytest.skip(str(reason))
    command = [actionlint, "-shellcheck=", "-pyflakes=", *WORKFLOWS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_each_command_is_a_script_of_this_repository():
    makefile = (ROOT / "Makefile").read_text()
    assert {file.name for file in WORKFLOWS} == {"release.yaml", "test.yaml"}
    assert set(commands(ROOT / ".github/workflows/test.yaml")) == GATE
    for command in commands(ROOT / ".github/workflows/release.yaml"):
        found = re.fullmatch(r"(?:sudo --preserve-env )?make release-([a-z]+)", command)
        assert found, command
        assert found[1] in {*steps.STEPS, "image"}
    assert re.search(r"^release-%:.*\n\t@\$\(BIN\)/python -m release \$\*$", makefile, re.MULTILINE)


def test_the_dry_run_executes_each_command_of_the_release_in_its_order():
    release = [
        command.removeprefix("sudo --preserve-env ")
        for command in commands(ROOT / ".github/workflows/release.yaml")
    ]
    assert list(dry_run.steps()) == release
    assert [command.rpartition("-")[2] for command in release][:3] == ["check", "files", "login"]
    assert {command.rpartition("-")[2] for command in release} == {*steps.STEPS, "image"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_has_few_rights_and_runs_no_input(workflow):
    content = yaml.safe_load(workflow.read_text())
    assert content["permissions"] in ({}, {"contents": "read"})
    assert all("${{" not in command for command in commands(workflow))
    for name, job in content["jobs"].items():
        assert job["timeout-minutes"] <= 90
        rights = job.get("permissions", content["permissions"])
        writes = {right for right, access in rights.items() if access == "write"}
        assert len(writes) <= 1 or (name, writes) == ("sign", {"id-token", "packages"})
        token = "GH_TOKEN" in {**content.get("env", {}), **job.get("env", {})}
        assert token == (not writes.isdisjoint({"contents", "packages"})), name
        uses = [step["uses"] for step in job["steps"] if "uses" in step]
        assert all(re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", use) for use in uses), uses
        checkouts = [
            step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")
        ]
        assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_every_action_is_named_by_its_commit():
    assert [line for line in pins.missing(ROOT) if not line.startswith("Dockerfile")] == []
