"""Guests that ended because their pod used more memory than it may: the limit, what sets it,
and what helps.
"""

import pytest

from tests.healthy.parts import ago
from tests.incidents.machines import find
from tests.incidents.starts import ended_for_memory
from virt_admit.forecasts.drain.starts import memory_kills
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object


def killed(items):
    cluster = Snapshot(list(map(Object, items)), ["*"], time=ago())
    return memory_kills.problem(Object(find(items, "VirtualMachineInstance", "db")), cluster)


@pytest.mark.parametrize(
    ("domain", "limit", "says", "remedy"),
    [
        (
            {"cpu": {"dedicatedCpuPlacement": True}},
            "9Gi",
            "because of its dedicated CPUs",
            "above its memory.guest",
        ),
        (
            {"resources": {"limits": {"memory": "8Gi"}}},
            "9Gi",
            "from resources.limits.memory of the VM",
            "or raise",
        ),
        (
            {},
            "9Gi",
            "which its namespace demands",
            "set a larger resources.limits.memory in the VM",
        ),
        ({}, "", "it has no limit, so w1 had too little", "use less memory on w1"),
    ],
)
def test_what_sets_the_limit(domain, limit, says, remedy):
    found = killed(ended_for_memory(limit=limit, domain=domain))

    assert found.reason.startswith(
        "container compute of its pod was ended for lack of memory (OOMKilled, exit code 137)"
    )
    assert says in found.reason
    assert ("at its own limit of 9Gi" in found.reason) is bool(limit)
    assert remedy in found.remedy
    assert ("additionalGuestMemoryOverheadRatio" in found.remedy) is bool(limit)


def test_another_end_is_not_called_lack_of_memory():
    assert killed(ended_for_memory(reason="Error")) is None
