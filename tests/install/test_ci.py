"""The doors for pipelines and shells: the GitHub Action, the pre-commit hook, completion."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.cli.test_check import BOTH, FINE
from tests.cli.test_check_folders import MIXED
from tests.paths import ROOT
from virt_admit import __version__
from virt_admit.cli import main

TOOL = Path(sys.executable).with_name("virt-admit")
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
INSTALL, CHECK, UPLOAD = ACTION["runs"]["steps"]

# --- the action


def run(step, folder, **inputs):
    """Run a step of the action as GitHub would."""
    values = {f"inputs.{name}": each["default"] for name, each in ACTION["inputs"].items()}
    values |= {f"inputs.{name}": value for name, value in inputs.items()} | {
        "runner.temp": str(folder)
    }
    env = {
        name: re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda match: values[match[1]], text)
        for name, text in step["env"].items()
    }
    env |= {"PATH": os.environ["PATH"], "TOOL": str(TOOL)}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_the_action_annotates_and_leaves_a_report(tmp_path):
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "vm.yaml").write_text(BOTH)
    (tmp_path / "-c.yaml").write_text(FINE)
    args = "--select=vm-running-and-run-strategy\n\n--quiet\n"
    done = run(CHECK, tmp_path, paths="a b\n-c.yaml\n", args=args)
    assert done.returncode == 1
    assert done.stdout.startswith("::error file=a b/vm.yaml,line=7,")
    assert done.stderr == ""
    log = json.loads((tmp_path / "virt-admit.sarif").read_text())
    assert [each["ruleId"] for each in log["runs"][0]["results"]] == ["vm-running-and-run-strategy"]
    (tmp_path / "a b" / "vm.yaml").unlink()
    assert run(CHECK, tmp_path, args=args).returncode == 0


def test_the_default_path_of_the_action_works_on_a_repository_with_other_files(tmp_path):
    for name, text in MIXED.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    done = run(CHECK, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        "skipped 10 documents without apiVersion and kind; skipped 1 template file" in done.stderr
    )
    (tmp_path / ".virt-admit.yaml").write_text("excludes: [charts, '*.json']\n")
    again = run(CHECK, tmp_path, paths="")
    assert again.returncode == 2
    assert "set paths in .virt-admit.yaml" in again.stderr
    assert "template" not in run(CHECK, tmp_path).stderr


def test_inputs_of_the_action_are_no_scripts(tmp_path):
    (tmp_path / "vm.yaml").write_text(FINE)
    run(CHECK, tmp_path, paths="vm.yaml; touch stolen\n$(touch stolen)\n", args="`touch stolen`")
    assert not (tmp_path / "stolen").exists()
    scripts = "".join(step.get("run", "") for step in ACTION["runs"]["steps"])
    assert "${{" not in scripts, "what is filled in there is run"


def test_the_action_installs_what_is_locked_and_uploads_only_when_told():
    assert ACTION["runs"]["using"] == "composite"
    assert ACTION["inputs"]["upload"]["default"] == "false"
    assert "inputs.upload == 'true'" in UPLOAD["if"]
    assert all(
        f'--require-hashes -r "$SOURCE/{name}' in INSTALL["run"]
        for name in ("requirements.lock", "requirements-build.lock")
    )
    assert all(step.get("shell") == "bash" for step in (INSTALL, CHECK))


def test_the_docs_name_this_version_and_flags_that_are_there():
    page = (ROOT / "docs" / "ci.md").read_text()
    assert set(re.findall(r"\bv?(\d+\.\d+\.\d+)\b", page)) - {"2.1.0"} == {__version__}
    workflow, step, gitlab, hooks = (
        yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    )
    used = workflow["jobs"]["check"]["steps"][-1]
    assert used["with"].keys() <= ACTION["inputs"].keys()
    assert step[0]["with"]["sarif_file"] == ACTION["inputs"]["sarif"]["default"]
    (script,) = gitlab["virt-admit"]["script"]
    assert all(
        f"={file}" in script for file in gitlab["virt-admit"]["artifacts"]["reports"].values()
    )
    assert {each["id"] for each in hooks["repos"][0]["hooks"]} == {each["id"] for each in HOOKS}


# --- pre-commit


def test_the_hook():
    (hook,) = HOOKS
    assert hook.pop("name")
    assert hook.pop("description")
    assert hook == {
        "id": "virt-admit",
        "entry": "virt-admit check",
        "language": "python",
        "types_or": ["yaml", "json"],
        "require_serial": False,
    }


# --- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(shell):
    done = CliRunner().invoke(main.virt_admit, ["--completion", shell])
    assert done.exit_code == 0
    assert f"_VIRT_ADMIT_COMPLETE={shell}_complete" in done.stdout
    assert CliRunner().invoke(main.virt_admit, ["--completion", "tcsh"]).exit_code == 2


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("virt-admit sc", "plain,scan"),
        ("virt-admit check --fail-on w", "plain,warn"),
        ("virt-admit check --no-such", ""),
        ("virt-admit nonsense x", ""),
        ("virt-admit check --stdin-f", "plain,--stdin-filename"),
        ("virt-admit check man", "file,man"),
        ("virt-admit check --cluster snap", "file,snap"),
    ],
)
def test_what_is_completed(typed, offered):
    words = typed.split()
    env = {
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(words) - 1),
        "_VIRT_ADMIT_COMPLETE": "bash_complete",
    }
    done = CliRunner().invoke(main.virt_admit, [], env=env, prog_name="virt-admit")
    assert done.stdout.strip() == offered
