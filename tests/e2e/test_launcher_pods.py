"""Launcher pods against KubeVirt's own TemplateService and migration controller,
for a few random VMIs.

``make verify-launcher COUNT=2000`` compares many.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.programs import required
from tests.upstream.launcher_pods import compare
from tests.upstream.renderer import renderer


@pytest.fixture(scope="module")
def program() -> Path:
    """KubeVirt's templates as a program."""
    return required(renderer)


def test_our_launcher_pods_are_those_of_kubevirt(program: Path) -> None:
    found = dict(compare(program, range(100)))

    assert {seed: differs for seed, differs in found.items() if differs} == {}
