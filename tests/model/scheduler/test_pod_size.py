"""What a pod requests and is limited to, by the order in which its init containers start."""

from __future__ import annotations

from typing import Any

import pytest

from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.scheduler import pod_size
from virt_admit.model.scheduler.resources import pod_requests


def container(cpu: str, **more: str) -> dict[str, Any]:
    return {"name": "a", "resources": {"limits": {"cpu": cpu}}, **more}


INIT = container("3")
SIDECAR = container("2", restartPolicy="Always")


@pytest.mark.parametrize(
    ("init", "total"),
    [
        ([], 1000),
        ([INIT], 3000),
        ([SIDECAR], 3000),
        ([SIDECAR, INIT], 5000),
        ([INIT, SIDECAR], 3000),  # the sidecar has not started while the other runs
        ([SIDECAR, INIT, SIDECAR], 5000),
        ([SIDECAR, SIDECAR], 5000),
    ],
)
def test_sidecars_count_from_their_start(init: list[dict[str, Any]], total: int) -> None:
    spec = Object({"spec": {"containers": [container("1")], "initContainers": init}})["spec"]
    size = pod_size.read(spec)
    assert (size.requests, size.limits) == ({"cpu": total}, {"cpu": total})
    assert size.requests == pod_requests(spec)
