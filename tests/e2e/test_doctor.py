"""The doctor, and a webhook that API servers call by URL."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.control_plane import ControlPlane
from tests.apiserver.webhook import VIRT_ADMIT, Webhook, register


@pytest.fixture
def webhook(crds: ControlPlane, tmp_path: Path) -> Iterator[Webhook]:
    with Webhook(tmp_path) as running:
        register(crds, running)
        yield running
    crds.kubectl("delete", "validatingwebhookconfiguration,mutatingwebhookconfiguration", "virt-admit", check=True)


def doctor(plane: ControlPlane) -> tuple[int, dict[str, dict[str, Any]]]:
    """Its exit code, and the last observation of each topic."""
    command = [VIRT_ADMIT, "doctor", "--kubeconfig", plane.kubeconfig, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, {each["topic"]: each for each in json.loads(done.stdout)["observations"]}


def test_a_webhook_on_a_laptop_is_sound_until_it_is_gone(crds: ControlPlane, webhook: Webhook) -> None:
    code, found = doctor(crds)
    found.pop("failing open")
    assert (code, {each["health"] for each in found.values()}) == (0, {"ok"}), found

    webhook.stop()
    code, found = doctor(crds)
    assert (code, found["trust"]["health"]) == (1, "wrong")
    assert "Connection refused" in found["trust"]["text"]


def test_a_certificate_of_somebody_else_is_not_trusted(crds: ControlPlane, webhook: Webhook) -> None:
    webhook.stop()
    shutil.rmtree(webhook.ca.parent)
    webhook.start()  # with a new signer, which was not published
    code, found = doctor(crds)
    assert (code, found["trust"]["health"]) == (1, "wrong")
    assert "certificate verify failed" in found["trust"]["text"]
