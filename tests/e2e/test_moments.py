"""``drain`` and ``upgrade`` at random moments, against what KubeVirt's own controllers did next.

``make verify-moments COUNT=200`` compares many.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.programs import required
from tests.upstream.moments import compare
from tests.upstream.renderer import MIGRATIONS, program
from virt_admit.forecasts.drain.states.vm_states_kinds import State

MOMENTS = 20


@pytest.fixture(scope="module")
def binary() -> Path:
    """KubeVirt's controllers as a program."""
    return required(lambda: program(MIGRATIONS))


def test_state_place_reason_and_time_are_what_kubevirt_does_next(binary: Path) -> None:
    found = list(compare(binary, MOMENTS))

    assert [(one.seed, one.at, one.differs) for one in found if one.differs] == []
    seen = sum((one.states for one in found), Counter[str]())
    assert State.RUNNING in seen
    assert len(seen) > 3  # which ones depends on how busy the machine is
    assert any(one.remaining is not None for one in found)
