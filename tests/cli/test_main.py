"""The command itself: how it starts, and what it says of a verb that does not exist."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from virt_admit import __version__
from virt_admit.cli import main
from virt_admit.cli.commands import rules

VM = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: db}
spec:
  runStrategy: Always
  template: {spec: {domain: {devices: {}}}}
"""

STARTS = {
    "command": [str(Path(sys.executable).with_name("virt-admit"))],
    "module": [sys.executable, "-m", "virt_admit"],
}


def start(args: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": "."}
    return subprocess.run(
        args, cwd=cwd, env=environ, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("how", STARTS)
def test_modules_in_the_working_directory_do_not_disturb_it(tmp_path, how):
    """A repository may have a webhook.py, and PYTHONPATH=.
    puts it before the installed packages.
    """
    for name in (
        "webhook",
        "certs",
        "cli",
        "model",
        "policy",
        "rules",
        "rule",
        "settings",
        "conftest",
    ):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name}.py was imported')\n")
    (tmp_path / "vm.yaml").write_text(VM)
    probe = start([sys.executable, "-c", "import webhook"], tmp_path)
    assert probe.stderr == "webhook.py was imported\n"  # the trap works
    done = start([*STARTS[how], "check", "vm.yaml"], tmp_path)
    assert "was imported" not in done.stdout + done.stderr
    assert done.stderr.startswith("checked 1 object of 1 kind in 1 file")
    assert done.returncode == 0


@pytest.mark.parametrize("how", STARTS)
def test_the_version(tmp_path, how):
    assert start([*STARTS[how], "--version"], tmp_path).stdout == f"virt-admit {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("chek", "no such verb 'chek': did you mean check?"),
        ("explian", "no such verb 'explian': did you mean explain or plan?"),
        ("doktor", "no such verb 'doktor': did you mean doctor?"),
        ("xyz", f"no such verb 'xyz': use one of {', '.join(main.VERBS)}"),
    ],
)
def test_a_mistyped_verb_gets_the_nearest_suggested(typed, hint):
    done = CliRunner().invoke(main.virt_admit, [typed, "vm.yaml"])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert hint in done.stderr


def test_a_mistyped_option_is_not_taken_for_a_verb():
    done = CliRunner().invoke(main.virt_admit, ["--versoin"])
    assert done.exit_code == 2
    assert "No such option" in done.stderr


@pytest.mark.parametrize(
    "args",
    [["rules"], ["rules", "vm-running-deprecated"], ["--help"], ["check", "-o", "json", "vm.yaml"]],
)
def test_a_full_disk_is_one_line_and_exit_2(tmp_path, args):
    (tmp_path / "vm.yaml").write_text(VM)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*STARTS["command"], *args],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "Error: cannot write the output: No space left on device"
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


BUG = """
import sys, types
from virt_admit.cli import main
def fail(**_): raise {error}
main.importlib.import_module = lambda _: types.SimpleNamespace(command=main.click.Command("rules", callback=fail))
sys.argv[1:] = ["rules"]
main.main()
"""  # noqa: E501


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            "OverflowError('date value\\x1b[2J\\nout of range')",
            "OverflowError: date value out of range",
        ),
        (
            "UnicodeEncodeError('utf-8', '\\ud800', 0, 1, 'no')",
            "UnicodeEncodeError: 'utf-8' codec can't encode",
        ),
        ("AssertionError", "AssertionError"),
        ("RecursionError('too deep')", "RecursionError: too deep"),
    ],
)
def test_an_unexpected_exception_is_one_line_and_exit_2(tmp_path, monkeypatch, error, shown):
    """Exit 1 would say "findings"."""
    monkeypatch.delenv("VIRT_ADMIT_DEBUG", raising=False)
    done = start([sys.executable, "-c", BUG.format(error=error)], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: internal error: {shown}")
    assert "run it again with VIRT_ADMIT_DEBUG=1 and report the traceback" in done.stderr
    assert done.stderr.count("\n") == 1

    monkeypatch.setenv("VIRT_ADMIT_DEBUG", "1")
    done = start([sys.executable, "-c", BUG.format(error=error)], tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("Traceback (most recent call last):")


def test_an_error_that_quotes_an_escape_sequence_is_printed_clean(tmp_path):
    done = start([*STARTS["command"], "check", "vm\x1b[31m\x9b.yaml"], tmp_path)
    assert done.returncode == 2
    assert "vm" in done.stderr
    assert not {"\x1b", "\x9b"} & set(done.stderr)


def test_the_page_of_a_rule_is_plain_on_a_terminal(monkeypatch):
    text = "# some-rule\n\n**Why.** ``running`` and `x`\n"
    assert rules.shown(text) == text
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert rules.shown(text) == "some-rule\n\nWhy. running and x\n"
    monkeypatch.delenv("NO_COLOR")
    assert rules.shown(text).startswith(click.style("some-rule", bold=True))
