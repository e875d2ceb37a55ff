"""An upgrade of Harvester whose node nothing asks its VMs to leave has no known end."""

from __future__ import annotations

import pytest

from tests.incidents_platform.case import only
from tests.incidents_platform.storage import upgrade_without_the_drain_taint
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object


@pytest.mark.parametrize("tainted", [False, True])
def test_the_taint_that_makes_kubevirt_move_the_vms(tainted: bool) -> None:
    incident = upgrade_without_the_drain_taint()
    if tainted:
        only(incident.items, "Node", "h2")["spec"]["taints"] = [
            {"key": "kubevirt.io/drain", "effect": "NoSchedule"}
        ]
    time = incident.snapshot["time"]
    found = rehearse(Snapshot(map(Object, incident.items), ["*"], time=time), Options())

    assert found.possible is (True if tainted else None)
    assert any("nothing asks vms/web to leave" in what for what in found.unseen) is not tainted
