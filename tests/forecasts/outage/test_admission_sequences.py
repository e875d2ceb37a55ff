"""For random sequences of admissions the room that is kept equals the room computed from
scratch.
"""

from __future__ import annotations

import os

import pytest

from tests.forecasts.outage import admission_sequences

pytestmark = pytest.mark.slow

SEQUENCES = int(os.environ.get("ADMISSION_SEQUENCES", "40"))


def test_random_sequences():
    said = admission_sequences.play(range(SEQUENCES))
    for some in ("CREATE deny", "CREATE warn", "a loss that a refused VM would not survive"):
        assert said[some] > SEQUENCES // 20, said
