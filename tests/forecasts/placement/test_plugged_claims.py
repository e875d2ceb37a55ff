"""A hotplugged volume whose claim is not bound keeps a VM from migrating, and not from starting."""

import pytest

from tests.builders import claim, kubevirt
from tests.forecasts.drain.vm_motion import cluster, node, vmi
from virt_admit.forecasts.placement import candidates, no_target


def running(release, *, hotpluggable):
    """Return a VM with a volume whose claim is Pending, and its cluster."""
    source = {"claimName": "data", "hotpluggable": hotpluggable}
    own = vmi(spec={"volumes": [{"name": "data", "persistentVolumeClaim": source}]})
    disk = claim("data", "ReadWriteMany")
    disk.data["status"] = {"phase": "Pending"}
    versions = {"observedKubeVirtVersion": release, "targetKubeVirtVersion": release}
    return own, cluster(own, disk, kubevirt(status=versions), node("a"))


@pytest.mark.parametrize(
    ("release", "hotpluggable", "starts"),
    [("v1.6.0", True, ("b", "c")), ("v1.5.2", True, ()), ("v1.6.0", False, ())],
    ids=["hotplugged", "a release that waits for it", "of the launcher pod"],
)
def test_a_claim_that_is_not_bound(release, hotpluggable, starts):
    own, there = running(release, hotpluggable=hotpluggable)
    moved = no_target.nowhere_to_go(own, there)

    assert candidates.target(own, there, moves=False).placement.candidates == starts
    assert moved is not None
    assert "claim data is not bound" in moved.reason
    assert ("do not stop the VM before" in moved.remedy) is (not starts)
