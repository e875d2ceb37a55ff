"""An API server that misbehaves, and informers of it."""

from __future__ import annotations

import contextlib

import pytest

from tests.fake_api import FakeApi
from tests.kube.lookups import QUICK, looking_up, obj
from tests.waiting import eventually
from virt_admit.kube.client import ApiClient
from virt_admit.kube.informers import LiveCluster
from virt_admit.model.kubernetes.kinds import NODE


@pytest.fixture
def api():
    with FakeApi() as fake:
        fake.install(NODE, obj("one"))
        yield fake


@pytest.fixture
def follow(api, tmp_path):
    """Start informers of the API server; they are stopped at the end."""
    with contextlib.ExitStack() as stack:

        def start(*reads, pace=QUICK):
            live = LiveCluster(
                ApiClient.connect(api.kubeconfig(tmp_path), connections=9), looking_up(*reads), pace
            )
            stack.callback(live.stop)
            live.start()
            return live

        yield start


@pytest.fixture
def nodes(api, follow):
    """Informers of nodes that have listed and are watching."""
    live = follow(NODE)
    eventually(lambda: all(each.current for each in live.informed()))
    return live
