"""The index of the rules: the same rules, and a command imports only those that it uses."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.rules.test_one_place import LOOKING_UP, ON_NODES
from virt_admit.model.kubernetes.kinds import PVC, VM
from virt_admit.model.releases import UpgradeTarget
from virt_admit.rules import INDEX, Rules, index, listed_rules, load_rules

SELECTIONS: list[Any] = [
    lambda rules: rules,
    lambda rules: rules.at_admission,
    lambda rules: rules.in_scan,
    lambda rules: rules.about(),
    lambda rules: rules.about(UpgradeTarget(kubevirt="1.9")),
]


def test_the_index_is_current() -> None:
    assert INDEX.read_text(encoding="utf-8") == index(load_rules())


@pytest.mark.parametrize("select", SELECTIONS)
def test_every_selection_has_the_same_rules(select: Any) -> None:
    listed, loaded = select(listed_rules()), select(load_rules())
    assert list(listed.by_id) == list(loaded.by_id)
    assert list(listed) == list(loaded)
    assert listed.kinds == loaded.kinds
    assert {**listed.by_kind} == {**loaded.by_kind}
    assert {**listed.metadata} == {**loaded.metadata}


def test_a_kind_without_rules_has_none() -> None:
    rules = Rules([ON_NODES, LOOKING_UP])
    assert rules.by_kind.get(PVC) is None
    assert PVC not in rules.by_kind
    assert rules.by_kind[VM] == (LOOKING_UP,)
    with pytest.raises(KeyError):
        rules.by_id["vm-no-such-rule"]


MODULES = """
import sys
from virt_admit.cli.main import main
sys.argv = ["virt-admit", "check", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert end.code == 0, end.code
print(*(name for name in sys.modules if name.startswith("virt_admit.")))
"""


def test_check_imports_only_rules_for_the_kinds_in_the_files(tmp_path: Any) -> None:
    (tmp_path / "vm.yaml").write_text(
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: a}\n"
        "spec: {runStrategy: Always, template: {spec: {domain: {devices: {}}}}}\n"
    )
    command = [sys.executable, "-c", MODULES, "vm.yaml", "-q", "-o", f"text={tmp_path / 'report'}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    imported = {
        name
        for name in done.stdout.split()
        if name.startswith("virt_admit.rules.") and name.count(".") == 3
    }
    assert imported == {rule.module for rule in load_rules().about().by_kind[VM]}
    assert "virt_admit.reports.findings.formats.sarif" not in done.stdout.split()
    assert "virt_admit.documents.edit" not in done.stdout.split()
