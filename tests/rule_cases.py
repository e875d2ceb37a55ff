"""The cases of the rules, read once for all tests. tests/rules/test_rules.py says what a case means."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.paths import RULE_FOLDER

Case = dict[str, Any]


@cache
def rule_cases() -> dict[str, list[Case]]:
    """Return the cases by rule id. They are shared by all tests, so a test that changes one copies it first."""
    files = sorted(RULE_FOLDER.rglob("*.yaml"))
    return {file.stem.replace("_", "-"): _read(file) for file in files}


def _read(file: Path) -> list[Case]:
    cases: list[Case] = yaml.load(file.read_text(), yaml.CSafeLoader)
    return cases
