"""Files and folders that hang a reader, exhaust memory, or change while they are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.work import measured
from virt_admit.cli import main
from virt_admit.documents import edit
from virt_admit.kube import snapshots
from virt_admit.policy import files as policies
from virt_admit.policy.parser import MAX_BYTES, MAX_PROBLEMS
from virt_admit.policy.policy import PolicyError
from virt_admit.rules import load_rules
from virt_admit.serving.reload import Reloaded, stamp
from virt_admit.settings import SettingError

VM = (
    "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: %s}\n"
    "spec: {template: {spec: {}}}\n"
)

pytestmark = pytest.mark.timeout(30)


def test_aliases_of_long_texts_are_limited(tmp_path: Path) -> None:
    """A packed document has each copy of a text for itself."""
    file = tmp_path / "bomb.yaml"
    file.write_text(VM % "vm" + f"x: &a {'y' * 50_000}\nz: [{', '.join(['*a'] * 8_000)}]\n")
    done = CliRunner().invoke(main.virt_admit, ["check", str(file)], standalone_mode=False)
    assert done.return_value == 2
    assert "the aliases repeat more than 4 MiB of text" in done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Manifests between links to the folder itself, pipes, devices and links to nothing."""
    below = tmp_path / "all" / "below"
    below.mkdir(parents=True)
    for number, place in enumerate((below.parent, below)):
        (place / "vm.yaml").write_text(VM % f"vm-{number}")
        for name in ("loop-a", "loop-b", "loop-c"):
            (place / name).symlink_to(below.parent, target_is_directory=True)
        os.mkfifo(place / "pipe.yaml")
        (place / "zero.json").symlink_to("/dev/zero")
        (place / "gone.yaml").symlink_to("/does/not/exist")
    return below.parent


def test_a_snapshot_folder_is_read_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert sorted(obj.name for obj in snapshots.load(folder)) == ["vm-0", "vm-1"]
    assert "pipe.yaml: not a regular file" in caplog.text
    assert "zero.json: not a regular file" in caplog.text


def test_a_snapshot_folder_is_compared_once(folder: Path) -> None:
    assert len(stamp(folder)) < 30
    names = Reloaded(lambda path: sorted(obj.name for obj in snapshots.load(path)), folder)
    assert names() == ["vm-0", "vm-1"]
    (folder / "below" / "vm.yaml").write_text(VM % "changed")
    assert names() == ["changed", "vm-0"]


def test_check_names_what_it_skips(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    done = CliRunner().invoke(main.virt_admit, ["check", str(folder), "--fail-on=never"])
    assert "checked 2 objects" in done.stderr
    assert "pipe.yaml: not a regular file" in caplog.text
    assert "zero.json: not a regular file" in caplog.text


@pytest.mark.parametrize("depth", [5_000, 200_000])
@pytest.mark.parametrize("text", ["[%s]", '{"a":%s}'])
def test_a_deep_snapshot_is_an_error(tmp_path: Path, depth: int, text: str) -> None:
    before, after = text.split("%s")
    file = tmp_path / "snapshot.json"
    file.write_text('{"kind": "List", "items": ' + before * depth + "1" + after * depth + "}")
    with pytest.raises(SettingError, match=r"nest|deep|level"):
        snapshots.load(file)


def test_a_policy_has_a_size(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("rules: {}\n" + "# comment\n" * (10 * MAX_BYTES // 10))
    with pytest.raises(PolicyError, match="larger than 1,048,576 bytes"):
        policies.load_policy(str(file), load_rules())
    file.write_text("rules: {}\n" + "#" * (MAX_BYTES - 10))
    assert policies.load_policy(str(file), load_rules())


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (  # 4.7 s with a suggestion for each
            "rules:\n" + "".join(f"  vm-unknown-rule-{number}: {{}}\n" for number in range(5_000)),
            "there is no rule vm-unknown-rule-99",
        ),
        (  # 5 s with all 300,000 problems
            "exempt: {users: [" + "{}," * 100_000 + "]}",
            "exempt.users[33].match: is required",
        ),
    ],
    ids=["unknown rules", "empty exemptions"],
)
def test_thousands_of_problems_do_not_stall_answers(tmp_path: Path, text: str, last: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    rules = load_rules()
    with measured() as work, pytest.raises(PolicyError) as refused:
        policies.load_policy(str(file), rules)
    assert work.seconds < 2
    assert refused.value.problems[MAX_PROBLEMS - 1].endswith(last)
    assert refused.value.problems[MAX_PROBLEMS:] == [
        f"{file}: further problems are not listed. Fix these first"
    ]


def test_a_fix_does_not_overwrite_an_editor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "vm.yaml"
    file.write_text(FIXABLE)
    edited, edit_text = FIXABLE + "# by an editor\n", edit.edit_text

    def slow(*arguments: object) -> object:
        file.write_text(edited)
        return edit_text(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(edit, "edit_text", slow)
    done = CliRunner().invoke(main.virt_admit, ["check", "--fix", str(file)], standalone_mode=False)
    assert file.read_text() == edited
    assert "vm.yaml: not fixed: the file changed while its fixes were computed" in done.stderr
    assert done.return_value == 2
    assert os.listdir(tmp_path) == ["vm.yaml"]

    monkeypatch.undo()
    CliRunner().invoke(main.virt_admit, ["check", "--fix", str(file)])
    assert "evictionStrategy" in file.read_text()
    assert "# by an editor" in file.read_text()


FIXABLE = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: a, namespace: shop}
spec:
  runStrategy: Always
  template:
    spec:
      domain: {devices: {}}
"""
