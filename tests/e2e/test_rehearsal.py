"""Our rehearsal against KubeVirt's own evacuation and migration controllers,
for a few random clusters.

``make verify-rehearsal COUNT=200`` compares many, and with ``LIVE=1`` on a real API server.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apiserver.control_plane import ControlPlane
from tests.e2e.programs import required
from tests.upstream.live_migrations import compare_live
from tests.upstream.migrations import Agreement, compare
from tests.upstream.renderer import MIGRATIONS, program


@pytest.fixture(scope="module")
def binary() -> Path:
    """KubeVirt's controllers as a program."""
    return required(lambda: program(MIGRATIONS))


def test_nodes_limits_leftovers_and_time_are_those_of_kubevirt(binary: Path) -> None:
    found = list(compare(binary, range(10)))

    assert [one for one in found if one.agreement is Agreement.DIFFERENT] == []
    assert sum(one.agreement is Agreement.SAME for one in found) >= 7
    assert sum(one.real.moves for one in found) >= 20


QUICK = (13, 26)
"""Clusters whose roll-out ends within 45 seconds."""


def test_on_a_real_api_server_with_kube_scheduler(binary: Path, crds: ControlPlane) -> None:
    with crds.scheduler():
        found = list(compare_live(binary, crds, QUICK))

    assert [(one.seed, one.agreement) for one in found if one.agreement is not Agreement.SAME] == []
    assert sum(one.real.moves for one in found) >= 5
