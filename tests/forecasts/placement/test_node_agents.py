"""What a driver asks on a node does not run: no further volume gets there. Without LINSTOR's
satellite no guest leaves the node by a migration for certain, either."""

import pytest

from tests.builders import manifest
from tests.healthy.clusters import plain
from tests.healthy.parts import ago
from tests.incidents.component_faults import claim
from tests.incidents.machines import guest
from virt_admit.forecasts.drain import drain_plan
from virt_admit.forecasts.drain.states import dying_pods
from virt_admit.forecasts.drain.vm_outcomes import VmOutcome
from virt_admit.forecasts.placement.components import node_drivers
from virt_admit.forecasts.placement.components.drivers import node_agents
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object

DRIVER = node_agents.LINSTOR
DOWN = "pod linstor-satellite.{0}-x is not ready for 59 min: CrashLoopBackOff"


def satellite(node="w2", *, broken="linstor-satellite", since=60):
    names = ("linstor-satellite", "drbd-reactor")
    states = [
        {"name": each, "ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
        if each == broken
        else {"name": each, "ready": True, "state": {"running": {}}}
        for each in names
    ]
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": ago(minutes=since)}
    return manifest(
        *("v1", "Pod", f"linstor-satellite.{node}-x", "piraeus-datastore"),
        metadata={
            "labels": {"app.kubernetes.io/component": "linstor-satellite"},
            "ownerReferences": [
                {"kind": "DaemonSet", "name": f"linstor-satellite.{node}", "controller": True}
            ],
        },
        spec={"nodeName": node, "containers": [{"name": each} for each in names]},
        status={"phase": "Running", "conditions": [ready], "containerStatuses": states},
    )


def cluster(*objects, driver=DRIVER):
    items = [each for each in guest("web", "w1") if not each["kind"].startswith("Persistent")]
    items = [*plain(), *items, *claim("web", driver=driver)]
    return Snapshot([*map(Object, items), *objects], ["*"])


def row(*objects, driver=DRIVER):
    (own,) = drain_plan.plan(cluster(*objects, driver=driver), "w1").nodes
    (only,) = own.forecasts
    return only


def test_a_migration_may_go_to_a_node_without_its_satellite():
    found = row(satellite("w2"))
    assert found.outcome is VmOutcome.UNKNOWN
    assert f"CSI driver {DRIVER} does not work on w2 ({DOWN.format('w2')}" in found.reason
    assert found.remedy.startswith("repair pod linstor-satellite.w2-x on w2; or cordon w2")


def test_without_satellites_no_other_node_takes_the_guest():
    found = row(satellite("w2"), satellite("w3"))
    assert found.outcome is VmOutcome.BLOCKS
    assert DOWN.format("w2") in found.reason or DOWN.format("w3") in found.reason


def test_a_guest_may_not_leave_a_node_without_its_satellite():
    found = row(satellite("w1"))
    assert found.outcome is VmOutcome.UNKNOWN
    assert (
        "a second node may open claim web only once LINSTOR's satellite on w1 allows that, which "
        f"does not run ({DOWN.format('w1')}"
    ) in found.reason
    assert "kubectl logs linstor-satellite.w1-x -n piraeus-datastore" in found.remedy


@pytest.mark.parametrize("on", ["w1", "w2"])
@pytest.mark.parametrize(
    ("fields", "driver"),
    [
        ({"broken": "drbd-reactor"}, DRIVER),
        ({"since": 3}, DRIVER),
        ({}, "rook-ceph.rbd.csi.ceph.com"),
    ],
    ids=["helper", "young", "another-driver"],
)
def test_satellites_that_run_and_other_drivers(on, fields, driver):
    assert row(satellite(on, **fields), driver=driver).outcome is VmOutcome.MIGRATES


def test_volumes_are_unmounted_without_the_satellite():
    found = cluster(satellite("w1"))
    (own,) = drain_plan.plan(found, "w1").nodes
    assert not own.pods.blockers
    dying = manifest(
        *("v1", "Pod", "batch", "vms"),
        metadata={"deletionTimestamp": ago(minutes=30)},
        spec={"nodeName": "w1", "volumes": [{"persistentVolumeClaim": {"claimName": "web"}}]},
        status={"containerStatuses": [{"state": {"terminated": {}}}]},
    )
    assert node_drivers.missing("w1", "vms", ["web"], found) == DRIVER
    assert dying_pods._driver_gone(dying, "w1", found) == ""


def test_a_lost_node_is_told_by_its_silence():
    away = manifest("v1", "Node", "w2", status={"conditions": [{"type": "Ready"}]})
    assert list(node_agents.by_node(cluster(satellite("w2")))) == ["w2"]
    assert node_agents.by_node(Snapshot([satellite("w2"), away], ["*"])) == {}


def of_longhorn(part, node="w2", **fields):
    """Return a pod of Longhorn on a node that is not ready."""
    own = satellite(node, broken=part, **fields).data
    label = {"app": part} if part.endswith("manager") else {}
    if part == "instance-manager":
        label = {"longhorn.io/component": part}
    boxes = [{"name": part, "ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
    metadata = own["metadata"] | {"name": f"{part}-{node}", "labels": label, "ownerReferences": []}
    status = own["status"] | {"containerStatuses": boxes}
    return Object(own | {"metadata": metadata, "status": status})


@pytest.mark.parametrize("part", ["longhorn-manager", "instance-manager"])
def test_longhorn_attaches_nothing_to_a_node_without_its_managers(part):
    found = row(of_longhorn(part), driver=node_agents.LONGHORN)
    assert found.outcome is VmOutcome.UNKNOWN
    assert (
        f"CSI driver {node_agents.LONGHORN} does not work on w2 (pod {part}-w2 is not ready"
    ) in found.reason
    assert row(of_longhorn(part)).outcome is VmOutcome.MIGRATES


@pytest.mark.parametrize("part", ["longhorn-ui", "engine-image-ei-1"])
def test_other_parts_of_longhorn_attach_nothing(part):
    found = row(of_longhorn(part), driver=node_agents.LONGHORN)
    assert found.outcome is VmOutcome.MIGRATES
