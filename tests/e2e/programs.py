"""Programs that link upstream's own code, as fixtures of end-to-end tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apiserver.binaries import Unavailable


def required(build: Callable[[], Path]) -> Path:
    """Return a program. Skips without Go; with VIRT_ADMIT_REQUIRE_E2E=1 that is a failure."""
    give_up = pytest.fail if os.environ.get("VIRT_ADMIT_REQUIRE_E2E") == "1" else pytest.skip
    try:
        return build()
    except Unavailable as reason:
        give_up(str(reason))
