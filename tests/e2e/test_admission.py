"""Our verdicts on VMs against KubeVirt's own webhooks and virt-handler, for a few random VMs.

``make verify-upstream COUNT=20000`` compares many.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.apiserver.binaries import Unavailable
from tests.upstream.admission import verify
from tests.upstream.renderer import ADMISSION, program


@pytest.fixture(scope="module")
def webhooks() -> Path:
    """KubeVirt's webhooks as a program. Skips without Go; with VIRT_ADMIT_REQUIRE_E2E=1 that is a failure."""
    give_up = pytest.fail if os.environ.get("VIRT_ADMIT_REQUIRE_E2E") == "1" else pytest.skip
    try:
        return program(ADMISSION)
    except Unavailable as reason:
        give_up(str(reason))


def test_our_verdicts_are_those_of_kubevirt(webhooks: Path) -> None:
    report = verify(webhooks, range(200))

    assert report.differ == {}
    assert not report.open, "the cases name everything that decides"
    assert report.admitted > 50
