"""Health checks against the API server's validation and Cluster API's own controller,
for a few random objects.

``make verify-upstream COUNT=5000`` compares many.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.programs import required
from tests.upstream.health import compare
from tests.upstream.renderer import HEALTH, program


@pytest.fixture(scope="module")
def binary() -> Path:
    """Upstream's code as a program."""
    return required(lambda: program(HEALTH))


def test_our_health_checks_agree_with_upstream(binary: Path) -> None:
    found = dict(compare(binary, range(200)))

    if not found:
        pytest.skip("no real definition of a health check at hand (tests/definitions.py)")
    assert {seed: differs for seed, differs in found.items() if differs} == {}
