"""Hotplugged volumes that do not reach a guest: another node has the disk, or the pod that attaches it waits."""

import pytest

from tests import builders
from tests.healthy.clusters import plain
from tests.healthy.machines import claim
from tests.healthy.parts import ago
from tests.incidents.machines import find, guest
from virt_admit.forecasts.drain.starts import unattached_volumes
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

ZONE = "topology.kubernetes.io/zone"
SAID = "0/6 nodes are available: 1 node(s) were unschedulable"


def plugged(affinity, *, phase="Pending", minutes=51, placed=False):
    """Return what keeps the volume of a VM on w2 from being attached."""
    items = (
        plain() + guest("db", "w2", hotplugged=["data"]) + claim("data", modes=("ReadWriteOnce",), affinity=affinity)
    )
    for name, zone in (("w1", "a"), ("w2", "b"), ("w3", "c")):
        find(items, "Node", name)["metadata"]["labels"][ZONE] = zone
    helper = find(items, "Pod", "hp-volume-db")
    helper["metadata"]["creationTimestamp"] = ago(minutes=minutes)
    helper["status"] = {"phase": phase}
    if not placed:
        del helper["spec"]["nodeName"]
        unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": SAID}
        helper["status"]["conditions"] = [unplaced]
    cluster = Snapshot(list(map(Object, items)), ["*"], time=ago())
    vmi = Object(find(items, "VirtualMachineInstance", "db"))
    return unattached_volumes.problem(vmi, "data", "data", cluster)


@pytest.mark.parametrize(
    ("affinity", "place", "selector"),
    [
        ({"topology.topolvm.io/node": "w1"}, "on node w1", "kubernetes.io/hostname=w1"),
        ({ZONE: "a"}, "in zone a", f"{ZONE}=a"),
    ],
)
def test_a_volume_of_another_place_never_comes(affinity, place, selector):
    found = plugged(affinity)

    assert found.reason == (
        f"it is not attached: pod hp-volume-db has been Pending for 51 min, because claim data is {place} alone, and the VM "
        "runs on w2: KubeVirt places a VM without regard to its hotplugged volumes. This does not end by itself"
    )
    key, _, value = selector.partition("=")
    assert found.remedy == (
        f"give the VM node selector {selector}, which takes effect after its restart (virtctl restart db -n vms), or unplug "
        "the volume (virtctl removevolume db --volume-name=data --persist -n vms): kubectl patch vm db -n vms --type=merge -p "
        f"""'{{"spec":{{"template":{{"spec":{{"nodeSelector":{{"{key}":"{value}"}}}}}}}}}}'"""
    )


@pytest.mark.parametrize(("release", "persist"), [("v1.7.0", True), ("v1.8.0", False)])
@pytest.mark.parametrize("named", [True, False])
def test_a_volume_that_the_vm_names_is_unplugged_from_it_too(release, persist, named):
    owner = [{"kind": "VirtualMachine", "name": "db", "controller": True}]
    guest = builders.vmi(metadata={"ownerReferences": owner})
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data", "hotpluggable": True}}] if named else []
    vm = builders.vm({"spec": {"domain": {}, "volumes": volumes}}, name="db")
    world = Snapshot([vm, builders.kubevirt({}, status={"observedKubeVirtVersion": release})], ["*"], time=ago())

    assert ("--persist" in unattached_volumes.unplug(guest, "data", world)) is (persist and named)


def test_another_cause_is_quoted():
    found = plugged({ZONE: "b"})

    assert (
        found.reason == f"it is not attached: pod hp-volume-db has been Pending for 51 min: kube-scheduler says {SAID}"
    )
    assert found.remedy == "remove what keeps pod hp-volume-db off w2: kubectl describe pod hp-volume-db -n vms"


@pytest.mark.parametrize("found", [{"minutes": 2}, {"phase": "Running", "placed": True}, {"placed": True}])
def test_a_volume_that_is_attached_or_may_be_soon(found):
    affinity = {ZONE: "a"} if "minutes" in found else {ZONE: "b"}
    assert plugged(affinity, **found) is None
