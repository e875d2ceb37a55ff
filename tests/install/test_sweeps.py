"""What the doctor says of the watch and the scan."""

from __future__ import annotations

import pytest

from tests.install.installation import Cluster
from virt_admit.install.observations import Status

WATCH = "/apis/apps/v1/namespaces/virt-admit/deployments/virt-admit-watch"
SCAN = "/apis/batch/v1/namespaces/virt-admit/cronjobs/virt-admit-scan"
READY = {"status": {"readyReplicas": 1}}


@pytest.mark.parametrize(
    ("objects", "texts"),
    [
        ({}, []),
        ({SCAN: {"spec": {}}}, []),
        ({WATCH: READY}, []),
        ({WATCH: {"status": {}}}, ["the watch has no ready replica"]),
        ({WATCH: READY, SCAN: {"spec": {}}}, ["the watch and the hourly scan are both installed"]),
        ({WATCH: READY, SCAN: {"spec": {"suspend": True}}}, []),
    ],
)
def test_the_watch(objects, texts):
    cluster = Cluster()
    cluster.objects.update(objects)
    found = [one for one in cluster.diagnose() if one.topic == "watch"]
    assert [one.text.startswith(text) for one, text in zip(found, texts, strict=True)] == [
        True
    ] * len(texts)
    assert all(one.status is Status.NOTE and one.remedy for one in found)
