"""A hotplugged volume whose claim is not bound keeps a VM from migrating, and not from starting."""

import pytest

from tests.builders import claim, kubevirt, manifest, warning
from tests.forecasts.drain.vm_motion import ago, cluster, node, vmi
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.room import unbound_claims
from virt_admit.forecasts.placement import candidates, no_target
from virt_admit.model.kubernetes.kinds import PVC


def running(release, *objects, hotpluggable=True):
    """Return a VM with a volume whose claim is Pending, and its cluster."""
    source = {"claimName": "data", "hotpluggable": hotpluggable}
    own = vmi(spec={"volumes": [{"name": "data", "persistentVolumeClaim": source}]})
    disk = claim("data", "ReadWriteMany")
    disk.data["status"] = {"phase": "Pending"}
    versions = {"observedKubeVirtVersion": release, "targetKubeVirtVersion": release}
    return own, cluster(own, disk, kubevirt(status=versions), node("a"), *objects)


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


FEW = (
    "failed to provision volume: failed to autoplace resource: Message: 'Not enough available "
    "nodes' storage pool named [data] at least '524288000' free space Replica count: 3"
)


@pytest.mark.parametrize(
    ("said", "remedy"),
    [(FEW, "free or add space in storage pool data"), ("", "repair claim data")],
    ids=["its provisioner says why", "nothing says why"],
)
def test_what_binds_the_claim_is_what_the_provisioner_lacks(said, remedy):
    places = manifest("storage.k8s.io/v1", "StorageClass", "replicated", provisioner="linstor")
    event = [warning(claim("data"), "ProvisioningFailed", said, ago(60))] if said else []
    own, there = running("v1.6.0", places, *event)
    next(each for each in there.known(PVC) if each.name == "data").data["spec"] |= {
        "storageClassName": "replicated"
    }
    (row,) = drain_plan.plan(there, "a").nodes[0].forecasts
    assert row.remedy.startswith(remedy)
    assert unbound_claims.never_completes(own, there).remedy.startswith(remedy)
