"""The hazards of an admission webhook: every line of the catalogues' "never break" lists has a test
with its number.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.paths import ROOT

LINES = {"vm": 24, "health": 12, "order": 6}
"""How many hazards each list has: VMs, health checks and nodes, and cluster configuration."""

never_break = pytest.mark.never_break
"""``@never_break("vm", 19)``: the test holds the webhook to that line."""


def lines_with_a_test() -> dict[str, set[int]]:
    """Return the lines that tests carry, by list;
    those against a real API server count without running.
    """
    found: dict[str, set[int]] = {area: set() for area in LINES}
    for file in (ROOT / "tests").rglob("test_*.py"):
        for area, line in _marks(file):
            found[area].add(line)
    return found


def _marks(file: Path) -> list[tuple[str, int]]:
    text = file.read_text()
    if "@never_break(" not in text:
        return []
    functions = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.FunctionDef)]
    calls = [
        each
        for function in functions
        for each in function.decorator_list
        if isinstance(each, ast.Call)
    ]
    marks = [
        call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "never_break"
    ]
    return [ast.literal_eval(ast.Tuple(mark.args, ast.Load())) for mark in marks]
