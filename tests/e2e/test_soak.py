"""A short soak, and what counts as growth. ``make soak`` runs as long as one likes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests import soak
from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.webhook import Webhook


def test_no_call_is_lost(
    crds: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "RESTART_EVERY", 5.0)
    monkeypatch.setattr(soak, "PAUSE", 0.03)
    flags = ("--live", "--kubeconfig", crds.kubeconfig)
    with Webhook(tmp_path, *flags, environment=soak.ENVIRONMENT) as webhook:
        failures = soak.soak(webhook, crds, 12)
    # memory is not at its level after so short a time
    assert [each for each in failures if "grew" not in each] == []


@pytest.mark.parametrize(
    ("late", "says"),
    [
        (soak.Sample(100, 50, 10), []),
        (soak.Sample(110, 60, 12), []),
        (soak.Sample(130, 50, 10), ["memory grew from 100 to 130"]),
        (soak.Sample(100, 90, 10), ["descriptors grew from 50 to 90"]),
        (soak.Sample(100, 50, 20), ["threads grew from 10 to 20"]),
    ],
)
def test_growth_is_seen(late: soak.Sample, says: list[str]) -> None:
    start, usual = soak.Sample(60, 30, 8), soak.Sample(100, 50, 10)
    assert soak.growth([start] * 5 + [usual] * 10 + [late] * 5) == says


def test_too_short_a_soak_is_a_failure() -> None:
    assert soak.growth([soak.Sample(100, 50, 10)] * 3) == [
        "3 samples are too few to see growth: run for 8 seconds at least"
    ]


def test_an_action_that_never_works_is_a_failure() -> None:
    failures: list[str] = []
    with soak.repeated("restart", lambda: None, 60, failures):
        pass
    done = threading.Event()
    with soak.repeated("rotation", done.set, 0.001, failures):
        assert done.wait(60)
    assert failures == ["restart: never worked"]
