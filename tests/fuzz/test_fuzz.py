"""A few inputs of each target in every run of the tests: the same ones each time."""

from __future__ import annotations

import pytest

from tests.fuzz.targets import TARGETS, case

pytestmark = pytest.mark.slow

INPUTS = {"size": 40, "files": 60, "fixes": 40, "wire": 25, "snapshots": 30, "item-order": 15,
          "hostile-names": 30, "wrong-types": 25}  # fmt: skip
"""How many inputs of a target are tried; 200 of those that are not named here."""


@pytest.mark.parametrize("name", TARGETS)
def test_what_must_hold_for_every_input(name: str) -> None:
    for seed in range(INPUTS.get(name, 200)):
        try:
            case(name, seed)
        except Exception as error:
            error.add_note(f"again: python -m tests.fuzz 0 {name} {seed}")
            raise
