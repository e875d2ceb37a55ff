"""The cases of the rules, read once for all tests.
tests/rules/test_rules.py says what a case means.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from tests.paths import RULE_FOLDER

Case = dict[str, Any]


@cache
def rule_cases() -> dict[str, list[Case]]:
    """Return the cases by rule id.

    They are shared by all tests, so a test that changes one copies it first.
    """
    files = sorted(RULE_FOLDER.rglob("*.yaml"))
    return {file.stem.replace("_", "-"): parsed(file.read_text()) for file in files}


@cache
def parsed(text: str) -> Any:
    """Return what a case file says, the same objects for each reader. Raises YAMLError."""
    return yaml.load(text, yaml.CSafeLoader)
