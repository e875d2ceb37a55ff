"""Mistakes of rule authors: one line each, which names the file and says what to write."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.rules import author, cases, never_break_world, test_never_break_cases, test_rules
from virt_admit import rules
from virt_admit.model.kubernetes.cluster import Unseen
from virt_admit.model.kubernetes.kinds import PVC, VM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.rule import Action, Context, Finding, Findings, InvalidRule, rule
from virt_admit.rules import Rules, load_rules

PAGE = '"""A synthetic rule.\n\n**Why.** To see the message.\n\n**Fix.** Nothing.\n"""\n'
IMPORTS = "from virt_admit.rule import VM, Action, Context, Findings, Object, rule\n"
CHECK = "def check(obj: Object, context: Context) -> Findings:\n    yield from ()\n"
OPTIONS = "kinds=(VM,), action=Action.WARN"
VM_OBJECT = "{apiVersion: kubevirt.io/v1, kind: VirtualMachine}"


def source(options: str = OPTIONS) -> str:
    return f"{PAGE}{IMPORTS}\n@rule({options})\n{CHECK}"


def table(*ids: str) -> str:
    """A family file with a row for each id."""
    declared = (f"rule(id={rule_id}, doc=__doc__, {OPTIONS})(check)" for rule_id in ids)
    return f"{PAGE}{IMPORTS}\n{CHECK}\nRULES = ({', '.join(declared)},)\n"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Rules]]:
    """Load a tree of rule files instead of the shipped one."""
    package = rules.__name__
    for attribute, value in (
        ("FOLDER", tmp_path),
        ("FAMILIES", tmp_path / "families"),
        ("__path__", [str(tmp_path)]),
    ):
        monkeypatch.setattr(rules, attribute, value)
    hidden = {
        name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(f"{package}.")
    }

    def run(**files: str) -> Rules:
        for name, text in files.items():
            file = tmp_path / f"{name.replace('__', '/')}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        rules._families.cache_clear()
        return load_rules.__wrapped__()

    yield run
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        del sys.modules[name]
    sys.modules |= hidden
    rules._families.cache_clear()


def test_the_tree_of_these_tests_is_loaded(load: Any) -> None:
    found = load(vm__vm_a=source(), families__numbers=table('"vm-b"', '"mhc-c"'))
    assert list(found.by_id) == ["mhc-c", "vm-a", "vm-b"]
    assert found.by_id["vm-b"].module == "virt_admit.rules.families.numbers"
    assert rules._file("vm-b").stem == "numbers"
    assert rules._file("vm-a").stem == "vm_a"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"vm__vm_a": source(f"{OPTIONS}, raeds={{}}")},
            "rules/vm/vm_a.py: unknown option raeds of @rule. Did you mean reads?",
        ),
        (
            {"vm__vm_a": source(f"{OPTIONS}, colour=1")},
            (
                "rules/vm/vm_a.py: unknown option colour of @rule. Use one of action, "
                "at_admission, denials, doc, drain_advice, effect, event, fix_by_default, fixable, "
                "id, in_scan, kinds, metadata, not_in_cel, of_deleted, only_with, operations, "
                "params, reads, sources, subresources, target, urgency"
            ),
        ),
        (
            {"vm__vm_a": source("kinds=(VM,)")},
            (
                "rules/vm/vm_a.py: @rule has no action. Write @rule(kinds=(VM,), "
                "action=Action.WARN, ...)"
            ),
        ),
        (
            {"vm__vm_a": PAGE + IMPORTS + CHECK},
            (
                "rules/vm/vm_a.py: no rule. Write @rule(kinds=(VM,), action=Action.WARN, ...) "
                "above its check"
            ),
        ),
        (
            {"vm__vm_a": source(), "families__numbers": table('"vm-a"')},
            (
                "rules/vm/vm_a.py: vm-a is also the id of a rule in rules/families/numbers.py. "
                "Change one of them"
            ),
        ),
        (
            {"families__numbers": table('"vm-a"', '"vm-a"')},
            (
                "rules/families/numbers.py: vm-a is also the id of a rule in "
                "rules/families/numbers.py. Change one of them"
            ),
        ),
        ({"vm__mhc_a": source()}, "rules/vm/mhc_a.py: move the rule mhc-a to rules/mhc/mhc_a.py"),
        (
            {"vm__vm_a": source(f'{OPTIONS}, id="vm-b"')},
            "rules/vm/vm_a.py: move the rule vm-b to rules/vm/vm_b.py",
        ),
        (
            {"families__numbers": table('"vm-" + "a"')},
            (
                'rules/families/numbers.py: write out the id "vm-a", so that a search for it finds '
                "the file"
            ),
        ),
        (
            {"vm__vm_a": source(f"{OPTIONS}, reads=[VM]")},
            'rules/vm/vm_a.py: reads is not a mapping. Write reads={PVC: ("status.phase",)}',
        ),
    ],
    ids=lambda value: value[-40:] if isinstance(value, str) else "",
)
def test_a_rule_file_that_is_not_valid(load: Any, files: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRule) as caught:
        load(**files)
    assert str(caught.value) == message


def test_a_family_row_without_cases(load: Any, tmp_path: Path) -> None:
    found = load(families__numbers=table('"vm-a"', '"vm-b"'))
    (tmp_path / "vm").mkdir()
    (tmp_path / "vm" / "vm_a.yaml").write_text(
        f"- {{name: a, object: {VM_OBJECT}, finds: [spec]}}\n- {{name: b, object: {VM_OBJECT}}}"
    )
    assert list(cases.problems(found, tmp_path)) == [
        (
            "rules/families/numbers.py: no cases of vm-b. Write rules/vm/vm_b.yaml, one case with "
            "a finding and one without"
        )
    ]


def test_a_kind_without_a_case(load: Any, tmp_path: Path) -> None:
    found = load(families__numbers=table('"vm-a"'))
    (tmp_path / "vm").mkdir()
    (tmp_path / "vm" / "vm_a.yaml").write_text(
        "- {name: a, object: {}, finds: [spec]}\n- {name: b, object: {}}"
    )
    assert list(cases.problems(found, tmp_path)) == [
        (
            "rules/vm/vm_a.yaml: no case with a VirtualMachine. Write one for each kind that the "
            "rule judges"
        )
    ]


def test_a_look_up_that_the_rule_does_not_declare() -> None:
    @rule(id="vm-a", doc=PAGE, kinds=(VM,), action=Action.WARN)
    def check(vm: Object, context: Context) -> Findings:
        context.cluster.get(PVC, vm.namespace, "disk")
        yield from ()

    case = {"name": "a disk", "object": {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}}
    _, read = test_rules.ask(check, case)
    assert list(test_rules.undeclared_kinds(check, case, read)) == [
        (
            "webhook/tests/rules/test_author_errors.py: the check looks up persistentvolumeclaims "
            "(case 'a disk'). Add PVC: (...) to reads"
        )
    ]


# --- hazards that the check of a rule may bring


def denies_what_it_cannot_see(vm: Object, context: Context) -> Findings:
    try:
        context.cluster.get(PVC, vm.namespace, "disk")
    except Unseen:
        yield Finding(vm["spec"].path, "no claim. Write one.", value="no claim")


def denies_every_edit(vm: Object, context: Context) -> Findings:
    if context.old is not None:
        yield Finding(vm["spec"].path, "do not edit. Write nothing.")


@pytest.mark.parametrize(
    ("check", "hazard"),
    [
        (denies_what_it_cannot_see, "is denied only while the cluster cannot be read"),
        (denies_every_edit, "an edit of something else is denied"),
    ],
)
def test_a_rule_that_breaks_a_cluster(
    monkeypatch: pytest.MonkeyPatch, check: Any, hazard: str
) -> None:
    bad = rule(id="vm-a", doc=PAGE, kinds=(VM,), reads={PVC: ()}, action=Action.DENY)(check)
    machine = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "a", "namespace": "b"},
    }
    case = {
        "name": "a",
        "object": {**machine, "spec": {"runStrategy": "Always", "template": {"spec": {}}}},
    }
    assert list(test_never_break_cases.hazards("vm-a", case)) == []
    monkeypatch.setattr(never_break_world, "RULES", Rules((*never_break_world.RULES, bad)))
    assert any(hazard in found for found in test_never_break_cases.hazards("vm-a", case))


# --- make try


def test_each_case_that_fails_is_named_with_its_file_and_line(tmp_path: Path) -> None:
    """The rule of a shipped case file is made to find nothing,
    so each of its cases with a result fails.
    """
    plugin = tmp_path / "broken_rule.py"
    plugin.write_text(
        "from virt_admit.rules import load_rules\n"
        "object.__setattr__(load_rules().by_id['vm-pinned-to-one-node'], 'check', lambda obj, "
        "context: iter(()))\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "broken_rule",
        "-p",
        "no:cacheprovider",
        "tests/rules/test_rules.py",
    ]
    command += ["-q", "-n0", "--tb=short", "-k", "test_cases and [vm-pinned-to-one-node]"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
    )
    assert done.returncode == 1, done.stdout
    pinned = load_rules().by_id["vm-pinned-to-one-node"]
    for _, case in cases.read(Rules([pinned])):
        assert (f"{cases.place(pinned, case)}\n" in done.stdout) == bool(
            case.get("finds") or case.get("unseen")
        ), done.stdout


def test_the_line_of_a_case_is_that_of_its_name() -> None:
    pinned = load_rules().by_id["vm-pinned-to-one-node"]
    for _, case in cases.read(Rules([pinned])):
        file, line = cases.place(pinned, case).split(":")
        assert (ROOT / file).read_text().splitlines()[int(line) - 1] == f"- name: {case['name']}"


def test_make_try_asks_the_hazards() -> None:
    assert "rules/test_never_break_cases" in author.TESTS
    assert all((ROOT / "tests" / f"{name}.py").exists() for name in author.TESTS)
