"""A folder and a cluster with certificates."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.certs.world import FakeApi, Replica, Time
from tests.cli.certs.runs import run
from virt_admit_certs.kube_api import KubeApi


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with certificates."""
    assert run("issue", tmp_path / "certs")[0] == 0
    return tmp_path / "certs"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """A cluster with both webhook configurations, and a replica that has served from the Secret."""
    api = FakeApi(Time(datetime.now(UTC)))
    api.register()
    for body in api.configurations.values():
        for webhook in body["webhooks"]:
            webhook["clientConfig"] = {
                "service": {"name": "virt-admit-webhook", "namespace": "virt-admit"}
            }
    Replica(api).settle()
    monkeypatch.setattr(KubeApi, "connect", lambda *_: api)
    return api
