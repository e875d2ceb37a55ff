"""``check --fix`` writes each finding's own fix: the text changes only where it must, and a second
run changes nothing.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.rule_cases import rule_cases
from virt_admit.cli import main
from virt_admit.documents.edit import edit_text
from virt_admit.engine import review as engine
from virt_admit.engine.admission_review import Request
from virt_admit.model.kubernetes import json_patch, kinds
from virt_admit.model.kubernetes.cluster import NOTHING
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.objects import Path as FieldPath
from virt_admit.policy import parser
from virt_admit.policy.policy import Policy
from virt_admit.rules import load_rules

OWN = [rule for rule in load_rules() if rule.fixable and not rule.fix_by_default]
CASES = [
    pytest.param(rule.id, case, id=f"{rule.id}/{case['name']}")
    for rule in OWN
    for case in rule_cases()[rule.id]
    if case.get("fix") and not case.get("cluster") and not case.get("params") and "old" not in case
    if case["object"]["kind"] != "VirtualMachineInstance"  # KubeVirt writes them
]

VM = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: db, namespace: shop}
spec:
  # always on
  running: true # since 2021
  template:
    spec:
      evictionStrategy: livemigrate # for drains
      domain: {devices: {}}
"""
FIXED = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: db, namespace: shop}
spec:
  runStrategy: Always
  # always on
  template:
    spec:
      evictionStrategy: LiveMigrate # for drains
      domain: {devices: {}}
"""


def check(*args: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(main.virt_admit, ["check", *map(str, args)], standalone_mode=False)
    assert result.exception is None, result.exception
    return result.return_value, result.output


def fixable(file: Path) -> list[str]:
    """The rules whose findings still have a fix."""
    report = json.loads(
        CliRunner().invoke(main.virt_admit, ["check", str(file), "-q", "-o", "json"]).stdout
    )
    own = {rule.id for rule in OWN}
    return [each["rule"] for each in report["results"] if each["rule"] in own and each["fix"]]


def test_a_vm_is_fixed_and_its_comments_stay(tmp_path: Path) -> None:
    file = tmp_path / "vm.yaml"
    file.write_text(VM)
    assert check(file, "--fix")[0] == 0
    assert file.read_text() == FIXED
    assert check(file)[0] == 0
    assert check(file, "--fix")[0] == 0
    assert file.read_text() == FIXED


def test_only_check_with_fix_uses_them(tmp_path: Path) -> None:
    file = tmp_path / "vm.yaml"
    file.write_text(VM)
    code, output = check(file, "-o", "json")
    assert code == 1
    (found,) = json.loads(output[: output.rindex("}") + 1])["objects"]
    assert not found.get("patch")


@pytest.mark.parametrize("forbidden", ["vm-running-deprecated", "vm-eviction-strategy-unknown"])
def test_the_policy_forbids_single_fixes(tmp_path: Path, forbidden: str) -> None:
    (tmp_path / "policy.yaml").write_text(f"rules: {{{forbidden}: {{fix: false}}}}\n")
    file = tmp_path / "vm.yaml"
    file.write_text(VM)
    check(file, "--fix", "--policy", tmp_path / "policy.yaml")
    assert ("running: true" in file.read_text()) == (forbidden == "vm-running-deprecated")
    assert ("livemigrate" in file.read_text()) == (forbidden == "vm-eviction-strategy-unknown")


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_every_fix_is_written_once(tmp_path: Path, rule: str, case: dict[str, object]) -> None:
    file = tmp_path / "object.yaml"
    file.write_text(yaml.safe_dump(case["object"], sort_keys=False))
    before = file.read_text()
    assert rule in fixable(file)
    check(file, "--fix", "--select", rule)
    after = file.read_text()
    assert after != before
    assert rule not in fixable(file)
    check(file, "--fix", "--select", rule)
    assert file.read_text() == after


def test_there_is_a_case_for_each_rule() -> None:
    assert {case.values[0] for case in CASES} >= {rule.id for rule in OWN} - {
        "vm-run-strategy-unknown"
    }
    assert len(OWN) >= 14


def test_the_webhook_applies_them_if_the_policy_says_so_and_only_once() -> None:
    obj = Object(yaml.safe_load(VM))
    request = Request("CREATE", kinds.VM, obj, namespace="shop")
    assert "runStrategy" not in str(engine.fix(request, load_rules(), NOTHING, Policy()).patch)
    policy = parser.parse(b"rules: {vm-running-deprecated: {fix: true}}", load_rules())
    answer = engine.fix(request, load_rules(), NOTHING, policy)
    assert [str(step) for step in answer.patch] == [
        "set spec.runStrategy to Always",
        "remove spec.running",
    ]
    again = Request("CREATE", kinds.VM, json_patch.apply(obj, answer.patch), namespace="shop")
    assert engine.fix(again, load_rules(), NOTHING, policy).patch == ()


REMOVALS = {
    "a line": ("a: 1\nb: 2 # two\nc: 3\n", ("b",), "a: 1\nc: 3\n"),
    "the last line": ("a: 1\nb: 2", ("b",), "a: 1\n"),
    "the first member of an item": (
        "x:\n- a: 1\n  b: 2\n- c: 3\n",
        ("x", 0, "a"),
        "x:\n- b: 2\n- c: 3\n",
    ),
    "a comment of its own stays": ("a: 1\n# why\nb: 2\n", ("b",), "a: 1\n# why\n"),
    "braces": ("x: {a: 1, b: 2}\n", ("x", "a"), "x: {b: 2}\n"),
    "the last in braces": ("x: {a: 1, b: 2}\n", ("x", "b"), "x: {a: 1}\n"),
    "an item": ("x:\n- 1\n- 2 # two\n- 3\n", ("x", 1), "x:\n- 1\n- 3\n"),
    "an item with members": (
        "x:\n- a: 1\n  b:\n    c: 2\n# end\n- d: 3\n",
        ("x", 0),
        "x:\n# end\n- d: 3\n",
    ),
    "brackets": ("x: [1, 2]\n", ("x", 1), "x: [1]\n"),
    "the only member": ("x:\n  a: 1 # one\nz: 2\n", ("x", "a"), "x: {} # one\nz: 2\n"),
    "JSON": ('{\n  "a": 1,\n  "b": 2\n}\n', ("a",), '{\n  "b": 2\n}\n'),
}


@pytest.mark.parametrize("name", REMOVALS)
def test_removals(name: str) -> None:
    before, path, after = REMOVALS[name]
    result = edit_text(before.encode(), "a.yaml", [[Patch("remove", FieldPath(*path))]])
    assert (result.content.decode(), result.refused, result.roundtrips) == (after, {}, True)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("x: # why\n  a: 1\nz: 2\n", ("x", "a")),
        ("x:\n  # why\n  a: 1\nz: 2\n", ("x", "a")),
        ("x:\n- 1\n", ("x", 0)),
        ("x: |\n  text\nz: 2\n", ("x",)),
        ("x: &a 1\nz: *a\n", ("x",)),
        ("x: {a: &a 1, b: 2}\nz: *a\n", ("x",)),
    ],
)
def test_a_removal_that_would_damage_the_rest_is_refused(
    text: str, path: tuple[str | int, ...]
) -> None:
    result = edit_text(text.encode(), "a.yaml", [[Patch("remove", FieldPath(*path))]])
    assert result.content.decode() == text
    assert list(result.refused) == [0]
