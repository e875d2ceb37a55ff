"""``virt-admit check --diff`` and ``--fix``: what happens to files, and what is said of it."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from virt_admit.cli import main
from virt_admit.cli.fixes import replace
from virt_admit.documents import edit
from virt_admit.documents.edit import EditResult

UNSET = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: db, labels: {tier: db}}  # the one
spec:
  runStrategy: Always
  template:
    spec: # of the guest
      domain: {devices: {}}
"""
SET = UNSET.replace("      domain", "      evictionStrategy: LiveMigrateIfPossible\n      domain")
DENIED = SET.replace("  runStrategy: Always", "  runStrategy: Always\n  running: true")
SHARED = """\
apiVersion: v1
kind: List
items:
- apiVersion: kubevirt.io/v1
  kind: VirtualMachine
  metadata: {name: one}
  spec:
    runStrategy: Always
    template: &machine
      spec: {domain: {devices: {}}}
- apiVersion: kubevirt.io/v1
  kind: VirtualMachine
  metadata: {name: two}
  spec:
    runStrategy: Always
    template: *machine
"""
DIFF = """\
--- vm.yaml
+++ vm.yaml
@@ -5,4 +5,5 @@
   runStrategy: Always
   template:
     spec: # of the guest
+      evictionStrategy: LiveMigrateIfPossible
       domain: {devices: {}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def check(folder):
    """Run the verb: exit code, stdout, stderr."""

    def run(*args, stdin=None):
        result = CliRunner().invoke(
            main.virt_admit, ["check", *args], input=stdin, standalone_mode=False
        )
        if isinstance(result.exception, click.ClickException):
            return 2, result.stdout, result.exception.message
        assert result.exception is None, result.exception
        return result.return_value, result.stdout_bytes.decode(), result.stderr

    return run


def test_diff_shows_and_fix_writes_the_same(check, folder):
    file = folder / "vm.yaml"
    file.write_text(UNSET)

    code, out, err = check("--diff", "vm.yaml")
    assert (code, out, file.read_text()) == (1, DIFF, UNSET)
    assert "lack the data they need. " in err
    assert err.endswith("\nwould fix 1 object in 1 file\n")

    code, out, err = check("--fix", "vm.yaml")
    assert (code, file.read_text()) == (0, SET)
    assert ": fix: " not in out
    assert err.endswith("\nfixed 1 object in 1 file\n")


def test_the_second_time_there_is_nothing_to_do(check, folder):
    file = folder / "vm.yaml"
    file.write_text(SET)
    before = file.stat()

    code, out, err = check("--diff", ".")
    assert (code, out) == (0, "")
    assert err.endswith("\nwould fix nothing\n")

    code, _, err = check("--fix", ".")
    assert (code, file.stat().st_ino, file.stat().st_mtime_ns) == (
        0,
        before.st_ino,
        before.st_mtime_ns,
    )
    assert err.endswith("\nfixed nothing\n")


def test_the_report_is_about_the_files_as_they_are_afterwards(check, folder):
    (folder / "vm.yaml").write_text(
        UNSET.replace("  template:", "  running: true\n  template:") + "status: {a: 1}\n"
    )
    code, out, _ = check("--fix", "vm.yaml", "-o", "json")
    report = json.loads(out)
    assert code == 1
    assert report["objects"][0]["patch"] == []
    assert [each["location"]["line"] for each in report["results"] if each["action"] == "deny"] == [
        6
    ]


def test_a_diff_mentions_findings_without_a_fix(check, folder):
    (folder / "vm.yaml").write_text(DENIED)
    code, out, err = check("--diff", "vm.yaml")
    assert (code, out) == (1, "")
    assert err.endswith(
        "\nsome findings need more than a fix. Run without --diff to see the report\n"
    )
    assert check("--diff", "vm.yaml", "--fail-on", "never")[0] == 0


def test_many_objects_in_a_file_are_compared_one_by_one(check, folder):
    (folder / "vms.yaml").write_text(
        "---\n".join(UNSET.replace("db,", f"db-{number},") for number in range(30))
    )
    _, out, _ = check("--diff", "vms.yaml")
    changed = [line for line in out.splitlines() if line[0] in "+-"]
    assert changed == [
        "--- vms.yaml",
        "+++ vms.yaml",
        *["+      evictionStrategy: LiveMigrateIfPossible"] * 30,
    ]


def test_a_diff_needs_a_file_for_the_report(check, folder):
    (folder / "vm.yaml").write_text(UNSET)
    assert check("--diff", "vm.yaml", "-q", "-o", "json=report.json") == (1, DIFF, "")
    assert json.loads((folder / "report.json").read_text())["summary"]["objects"] == 1
    assert (
        check("--diff", "vm.yaml", "-o", "json")[2]
        == "stdout contains the diff. Write the report to a file: -o json=report.json"
    )


def test_either_diff_or_fix(check, folder):
    (folder / "vm.yaml").write_text(UNSET)
    assert check("--diff", "--fix", "vm.yaml")[0] == 2
    assert (folder / "vm.yaml").read_text() == UNSET


@pytest.mark.parametrize(
    "text", [UNSET, UNSET.removesuffix("\n"), UNSET.replace("\n", "\r\n"), "\ufeff" + UNSET]
)
def test_git_takes_the_diff(check, folder, text):
    (folder / "vm.yaml").write_bytes(text.encode())
    _, diff, _ = check("--diff", "vm.yaml")
    subprocess.run(["git", "apply", "-p0", "--whitespace=nowarn"], input=diff.encode(), check=True)
    patched = (folder / "vm.yaml").read_bytes()
    (folder / "vm.yaml").write_bytes(text.encode())
    check("--fix", "vm.yaml")
    assert patched == (folder / "vm.yaml").read_bytes() != text.encode()


def test_only_what_the_policy_lets_be_fixed(check, folder):
    (folder / "vm.yaml").write_text(UNSET)
    (folder / "policy.txt").write_text("rules: {vm-eviction-strategy-default: {fix: false}}\n")
    for options in (
        ["--policy", "policy.txt"],
        ["--ignore", "vm-eviction-*"],
        ["-l", "tier=cache"],
        ["--old", "vm.yaml"],
    ):
        assert check("--fix", "vm.yaml", *options)[0] == 0
        assert (folder / "vm.yaml").read_text() == UNSET


def test_what_others_share_is_named_and_left_alone(check, folder):
    (folder / "list.yaml").write_text(SHARED)
    (folder / "vm.yaml").write_text(UNSET)
    code, out, err = check("--fix", ".")
    assert code == 1
    assert (folder / "list.yaml").read_text() == SHARED
    assert (folder / "vm.yaml").read_text() == SET
    assert (
        "list.yaml:4: VirtualMachine/one has to be fixed by hand: spec.template is named by an "
        "anchor (&)\n"
    ) in err
    assert (
        "list.yaml:11: VirtualMachine/two has to be fixed by hand: spec.template is an alias (*)\n"
        in err
    )
    assert out.count(": fix: ") == 2
    assert check("--diff", "list.yaml")[:2] == (1, "")


def test_the_documents_beside_a_broken_one_are_fixed(check, folder):
    (folder / "vm.yaml").write_text("a: [\n---\n" + UNSET)
    assert check("--fix", "vm.yaml")[0] == 2
    assert (folder / "vm.yaml").read_text() == "a: [\n---\n" + SET


# --- standard input -------------------------------------------------------------------------------


def test_standard_input_comes_out_fixed(check):
    code, out, err = check("--fix", "-", stdin=UNSET)
    assert (code, out) == (0, SET)
    assert err.startswith("<stdin>:1:1: unseen: ")
    assert err.endswith("\nfixed 1 object in 1 file\n")


@pytest.mark.parametrize("text", [SET, "", "kind: A\r\n", "\ufeffa: [", SHARED])
def test_standard_input_comes_out_as_it_is_where_nothing_is_fixed(check, text):
    assert check("--fix", "-", stdin=text)[1] == text


def test_standard_input_is_never_a_file(check, folder):
    (folder / "vm.yaml").write_text("kind: Other\n")
    code, out, err = check("--fix", "-", "--stdin-filename", "vm.yaml", "-q", stdin=UNSET)
    assert (code, out, (folder / "vm.yaml").read_text()) == (0, SET, "kind: Other\n")
    assert err.startswith("vm.yaml:1:1: unseen: ")
    assert check("--diff", "-", "--stdin-filename", "vm.yaml", "-q", stdin=UNSET) == (1, DIFF, "")


def test_reports_go_into_files_beside_fixed_text(check, folder):
    assert check("--fix", "-", "-q", "-o", "json=report.json", stdin=UNSET) == (0, SET, "")
    assert json.loads((folder / "report.json").read_text())["objects"][0]["patch"] == []
    assert check("--fix", "-", "-o", "json", stdin=UNSET)[:2] == (2, "")


# --- files ----------------------------------------------------------------------------------------


def test_links_and_modes_stay(check, folder):
    (folder / "there").mkdir()
    file = folder / "there" / "vm.yaml"
    file.write_text(UNSET)
    file.chmod(0o640)
    (folder / "link.yaml").symlink_to("there/vm.yaml")
    assert check("--fix", "link.yaml")[0] == 0
    assert (folder / "link.yaml").is_symlink()
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (SET, 0o640)
    assert os.listdir(folder / "there") == ["vm.yaml"]


CODE = {"access": errno.EACCES, "chown": errno.ENOSPC}


@pytest.mark.parametrize("function", CODE)
def test_a_file_that_cannot_be_written(check, folder, monkeypatch, function):
    """The others are; tests may run as root, who may write everything."""
    for name in "abc":
        (folder / f"{name}.yaml").write_text(UNSET)
    monkeypatch.setattr("virt_admit.cli.fixes.os", Refusing(function))
    code, out, err = check("--fix", ".")
    assert code == 2
    assert [(folder / f"{name}.yaml").read_text() for name in "abc"] == [SET, UNSET, SET]
    assert f"b.yaml: cannot be written: {os.strerror(CODE[function])}\n" in err
    assert err.endswith("\nfixed 2 objects in 2 files\n")
    assert "b.yaml:7:5: fix: " in out
    assert sorted(os.listdir(folder)) == ["a.yaml", "b.yaml", "c.yaml"]


class Refusing:
    """``os`` with one file that is read-only or on a full disk."""

    def __init__(self, function):
        self._function = function

    def __getattr__(self, name):
        return getattr(self, f"_{name}") if name == self._function else getattr(os, name)

    def _access(self, path, mode):
        return Path(path).name != "b.yaml" and os.access(path, mode)

    def _chown(self, path, user, group):
        if "b.yaml" in Path(path).name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.chown(path, user, group)


def test_who_may_not_give_a_file_away_may_fix_it(folder, monkeypatch):
    (folder / "vm.yaml").write_text(UNSET)

    def chown(*_):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "chown", chown)
    replace("vm.yaml", b"new", UNSET.encode())
    assert (folder / "vm.yaml").read_text() == "new"


def test_a_pipe_cannot_be_fixed(folder):
    os.mkfifo(folder / "vm.yaml")
    with pytest.raises(OSError, match="not a regular file"):
        replace("vm.yaml", b"", b"")


def test_what_would_be_wrong_is_shown_and_not_written(check, folder, monkeypatch):
    """It cannot happen; so here is a splice that errs."""
    (folder / "vm.yaml").write_text(UNSET)
    monkeypatch.setattr(
        edit,
        "edit_text",
        lambda content, *_: EditResult(content.upper(), (), 1, {}, roundtrips=False),
    )
    for option in ("--fix", "--diff"):
        code, out, err = check(option, "vm.yaml")
        assert code == 2
        assert "+KIND: VIRTUALMACHINE" not in out
        assert (
            "vm.yaml: not fixed: the new text would not be correct. This is a bug:\n"
            "--- vm.yaml\n+++ vm.yaml\n"
        ) in err
        assert "+KIND: VIRTUALMACHINE\n" in err
        assert (folder / "vm.yaml").read_text() == UNSET
    assert check("--fix", "-", stdin=UNSET)[:2] == (2, UNSET)
