"""A volume of Longhorn waits because of a node that does not exist, or that is cordoned."""

import pytest

from tests.builders import manifest, node
from tests.forecasts.placement.test_longhorn_starts import LONGHORN, engine, found, own, replica

DISK = {"driver": "driver.longhorn.io", "volumeHandle": "v1"}
PV = manifest("v1", "PersistentVolume", "pv", spec={"csi": DISK})


def setting(name, value):
    return manifest("longhorn.io/v1beta2", "Setting", name, LONGHORN, value=value)


def release(number):
    return setting("current-longhorn-version", f"v{number}")


def detached(spec=(), state="detached", **status):
    return own("Volume", "v1", dict(spec), status={"state": state, **status})


PENDING = detached(pendingNodeID="w1")
STOPPED = engine("v1-e-0", "", "stopped", "stopped")
MANAGER = own("InstanceManager", "im-b", {"image": "r/instance-manager:v1.5.3", "nodeID": "b"})


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        ([release("1.5.3")], "names w1, a node that does not exist, and Longhorn 1.5.3 attaches"),
        ([MANAGER], "names w1, a node that does not exist, and Longhorn 1.5.3 attaches no volume"),
        ([release("1.6.0"), node("w1")], "names w1 and Longhorn 1.6.0 attaches no volume"),
        ([], "w1, a node that does not exist, and Longhorn 1.5.0 to 1.5.4 and 1.6.0 attach no"),
    ],
)
def test_a_node_left_in_the_status_keeps_a_volume_detached(objects, says):
    cause = found(PV, PENDING, STOPPED, *objects)

    assert cause.words.startswith("status.pendingNodeID of its Volume still ")
    assert says in cause.words
    assert cause.words.endswith(" no volume while that field is not empty")
    assert cause.remedy.endswith(
        ": kubectl patch volumes.longhorn.io v1 -n longhorn-system --subresource=status "
        """--type=merge -p '{"status":{"pendingNodeID":""}}'"""
    )


@pytest.mark.parametrize(
    "objects",
    [
        [PENDING, release("1.5.5")],
        [PENDING, release("1.8.1")],
        [PENDING, node("w1")],
        [PENDING, own("Node", "w1", {})],
        [detached(state="attached", pendingNodeID="w1"), release("1.5.3")],
        [detached(pendingNodeID=""), release("1.5.3")],
    ],
    ids=["fixed", "later", "node exists", "node of Longhorn exists", "attached", "empty"],
)
def test_a_release_that_ignores_the_field_attaches_the_volume(objects):
    assert found(PV, *objects) is None


@pytest.mark.parametrize(
    ("objects", "says"),
    [
        (
            [detached({"nodeID": "w1"})],
            "spec.nodeID of Longhorn's Volume v1 names w1, a node that does not exist",
        ),
        (
            [detached(), engine("v1-e-0", "w1", "stopped", "stopped")],
            "spec.nodeID of Longhorn's Engine v1-e-0 names w1, a node that does not exist",
        ),
    ],
)
def test_another_object_of_a_volume_that_waits_names_an_absent_node(objects, says):
    assert found(PV, *objects).words == says
    assert found(PV, *objects, node("w1")) is None


ATTACHING = detached(
    state="attaching",
    conditions=[{"type": "Scheduled", "status": "False", "message": "nodes are unavailable"}],
)
FAILED = replica("v1-r-1", "w1", "stopped", "stopped", failedAt="2027-03-01T09:00:00Z")
MANAGER_OF_W1 = own("InstanceManager", "im-1", {"nodeID": "w1"}, status={"currentState": "error"})
CORDONED = node("w1", unschedulable=True)
STRICT = setting("allow-volume-creation-with-degraded-availability", "false")
CLOSED = [PV, ATTACHING, STOPPED, FAILED, MANAGER_OF_W1]


def test_the_instance_manager_of_a_cordoned_node_keeps_a_volume_detached():
    cause = found(*CLOSED, CORDONED, STRICT, release("1.7.2"))

    assert cause.words == (
        "Longhorn 1.7.2 does not bring the volume up while its condition Scheduled is False (nodes "
        "are unavailable): replica …-r-1 on w1 has failed, and instance manager im-1 does not run "
        "(error), as Longhorn makes no pod of it on a cordoned node"
    )
    assert cause.remedy.startswith("uncordon w1, once what it was cordoned for has ended: kubectl ")
    assert "allow-volume-creation-with-degraded-availability -n longhorn-system" in cause.remedy
    assert cause.remedy.endswith("or update Longhorn to 1.7.3, 1.8.1 or later")
    assert "update" not in found(*CLOSED, CORDONED, STRICT, release("1.8.1")).remedy
    assert "repair the pod" in found(*CLOSED, node("w1"), STRICT).remedy


@pytest.mark.parametrize(
    "objects",
    [
        [*CLOSED, CORDONED],
        [*CLOSED[:3], replica("v1-r-1", "w1", "stopped", "stopped"), MANAGER_OF_W1, STRICT],
        [PV, detached(state="attaching"), STOPPED, FAILED, MANAGER_OF_W1, STRICT, CORDONED],
        [*CLOSED[:4], STRICT, CORDONED],
    ],
    ids=["fewer replicas do", "no replica failed", "all are scheduled", "no manager is known"],
)
def test_a_replica_that_failed_elsewhere_is_not_blamed(objects):
    assert found(*objects) is None
