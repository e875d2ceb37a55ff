"""Why the pod that registers a driver is not on a node, and what is never advised about it."""

import pytest

from tests.incidents.node_plugins import ROOK, tainted
from virt_admit.forecasts.placement.components import driver_daemons
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object


@pytest.mark.parametrize(
    ("key", "by_people"),
    [
        ("dedicated", True),
        ("node.kubernetes.io/out-of-service", False),
        ("medik8s.io/remediation", False),
        ("kubevirt.io/drain", False),
    ],
)
def test_a_fence_is_not_undone_for_a_driver(key, by_people):
    items = tainted(["w1", "w3"])
    for item in items:
        for taint in item.get("spec", {}).get("taints", ()):
            taint["key"] = key
    found = driver_daemons.absent(ROOK, "w2", Snapshot(map(Object, items), ["*"]))

    assert f"does not tolerate taint {key}=gpu:NoSchedule" in found.why
    assert ("take the taint off w2" in found.remedy) is ("tolerate" in found.remedy) is found.lasts is by_people
