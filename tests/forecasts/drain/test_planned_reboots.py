"""Control-plane nodes that are rebooted on purpose: the others wait, and nothing is repaired."""

import pytest

from tests.forecasts.remediation.test_hand_reboots import node
from virt_admit.forecasts.drain import node_notes
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.kinds import NODE

CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}
CORDONED = "2026-01-01T11:50:00Z"


def masters(*, changed="2026-01-01T11:58:35Z", cordoned=CORDONED, other="True"):
    lost = node("b", "Unknown", changed=changed, cordoned=cordoned, labels=CONTROL_PLANE)
    healthy = node("a", labels=CONTROL_PLANE), node("c", other, labels=CONTROL_PLANE)
    return Snapshot([*healthy, lost], complete=["*"], time="2026-01-01T12:00:00Z")


def advice(cluster):
    note = next(
        each for each in node_notes.notes(cluster.get(NODE, "", "a"), cluster) if "for etcd" in each
    )
    return note.partition("does not stop it. ")[2]


def test_a_reboot_on_purpose_is_waited_for():
    cluster = masters()
    assert advice(cluster) == (
        "Wait until b is back from the reboot first: kubectl describe node b"
    )
    assert list(node_notes.not_reporting(cluster)) == []


@pytest.mark.parametrize(
    "fields",
    [{"changed": "2026-01-01T11:30:00Z", "cordoned": "2026-01-01T11:20:00Z"}, {"cordoned": ""}],
    ids=["takes too long", "was not cordoned before"],
)
def test_a_node_that_is_lost_is_repaired(fields):
    cluster = masters(**fields)
    assert advice(cluster).startswith("Repair b first")
    assert list(node_notes.not_reporting(cluster))


def test_another_node_that_is_lost_is_repaired_too():
    assert advice(masters(other="Unknown")).startswith("Repair")
