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
from tests.apiserver.webhook import Webhook, register
from tests.prefork import virt_admit


@pytest.fixture
def webhook(crds: ControlPlane, tmp_path: Path) -> Iterator[Webhook]:
    with Webhook(tmp_path, program=virt_admit()) as running:
        register(crds, running)
        yield running
    crds.kubectl(
        "delete",
        "validatingwebhookconfiguration,mutatingwebhookconfiguration",
        "virt-admit",
        check=True,
    )


def doctor(plane: ControlPlane, *flags: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Its exit code, and the last observation of each topic."""
    command = [virt_admit(), "doctor", "--kubeconfig", plane.kubeconfig, "-o", "json", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, {
        each["topic"]: each for each in json.loads(done.stdout)["observations"]
    }


def test_a_webhook_on_a_laptop_is_sound_until_it_is_gone(
    crds: ControlPlane, webhook: Webhook
) -> None:
    code, found = doctor(crds)
    found.pop("failing open")
    assert (code, {each["health"] for each in found.values()}) == (0, {"ok"}), found

    webhook.stop()
    code, found = doctor(crds)
    assert (code, found["trust"]["health"]) == (1, "wrong")
    assert "Connection refused" in found["trust"]["text"]


def test_a_certificate_of_somebody_else_is_not_trusted(
    crds: ControlPlane, webhook: Webhook
) -> None:
    webhook.stop()
    shutil.rmtree(webhook.ca.parent)
    webhook.start()  # with a new signer, which was not published
    code, found = doctor(crds)
    assert (code, found["trust"]["health"]) == (1, "wrong")
    assert "certificate verify failed" in found["trust"]["text"]


def test_the_probe_comes_back_from_the_webhook_alone(crds: ControlPlane, webhook: Webhook) -> None:
    code, found = doctor(crds, "--probe")
    assert (code, found["probe"]["health"]) == (0, "ok"), found["probe"]
    left = crds.kubectl("get", "virtualmachines", "-A", "-o", "name", check=True).stdout
    assert "virt-admit-probe" not in left

    ignored = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ignored"}}
    ignored["metadata"]["labels"] = {"virt-admit.io/ignore": "true"}  # type: ignore[index]
    crds.kubectl("apply", "-f", "-", input=json.dumps(ignored), check=True)
    code, found = doctor(crds, "--probe-namespace", "ignored")
    assert (code, found["probe"]["text"].split(",")[0]) == (
        1,
        "the webhook configurations exclude namespace ignored",
    )

    webhook.stop()
    code, found = doctor(crds, "--probe")
    assert (code, found["probe"]["health"]) == (1, "wrong")
    assert "admitted without a review" in found["probe"]["text"]


def test_the_probe_sees_that_no_server_reaches_the_endpoints_of_a_sound_service(
    crds: ControlPlane,
) -> None:
    """A firewall between control plane and pods: everything that can be read is right."""
    printed = subprocess.run(
        [virt_admit(), "manifests", "--part", "webhooks"],
        capture_output=True,
        text=True,
        check=True,
    )
    crds.kubectl("create", "namespace", "virt-admit", check=False)
    crds.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", input=printed.stdout, check=True
    )
    try:
        code, found = doctor(crds, "--probe")
        assert (code, found["probe"]["health"]) == (1, "wrong")
        assert "keep failurePolicy Ignore" in found["probe"]["remedy"]
    finally:
        kinds = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
        crds.kubectl("delete", kinds, "virt-admit", check=True)
