"""Volumes whose new start has wiped the node of a tenant cluster, as explain tells them."""

import pytest

from tests.builders import manifest
from tests.forecasts.remediation.test_guest_machines import guest
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.reports.explain.vm import parts

DISKS = [{"name": "system", "containerDisk": {"image": "node"}}, {"name": "init"}]


@pytest.mark.parametrize(("away", "told"), [("False", True), ("True", False)])
def test_the_volume_that_was_wiped_has_the_remedy(away, told):
    machine, vm, vmi = guest("g", "a")
    machine.data["status"]["conditions"] = [
        {
            "type": kind,
            "status": status,
            "lastTransitionTime": since,
            "message": "" if status == "True" else "Node condition Ready is Unknown. ",
        }
        for kind, status, since in (
            ("InfrastructureReady", "True", "2026-04-20T10:00:00Z"),
            ("NodeHealthy", away, "2026-05-20T08:01:00Z"),
        )
    ]
    vmi.data["metadata"]["creationTimestamp"] = "2026-05-20T08:00:00Z"
    vmi.data["spec"] = {"volumes": DISKS}
    host = manifest("v1", "Node", "a")
    cluster = Snapshot([machine, vm, vmi, host], ["*"], time="2026-05-20T10:00:00Z")
    found, _ = parts.volumes(vmi, cluster, True)
    assert found is not None
    assert [bool(each.remedy) for each in found] == [told, False]
    assert ("delete Machine m-g" in (found[0].remedy or "")) is told
