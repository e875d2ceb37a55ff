"""Backups of Longhorn whose ticket keeps a volume on a node."""

import pytest

from tests.forecasts.drain.vm_motion import ago, cluster
from tests.forecasts.placement.test_longhorn_starts import LONGHORN, kept_on_c, own
from virt_admit.forecasts.placement.components.longhorn import ticket_backups
from virt_admit.model.kubernetes.objects import Object

TICKET = "backup-controller-x"
GONE = {"state": "Pending", "messages": {"info": "Failed to get the Snapshot s1"}}
DELETE = "delete that Backup, not the ticket"
LEAVE = "let that Backup end"


def backup(age=7200, **status):
    made = own("Backup", "x", {}, status=status)
    made.data["metadata"]["creationTimestamp"] = ago(age)
    return made


def of(obj, kind="backup-controller"):
    tickets = dict(Object({"t": {TICKET: {"type": kind, "nodeID": "c"}}})["t"].entries())
    return ticket_backups.of_tickets(tickets, LONGHORN, cluster(obj))


@pytest.mark.parametrize(
    ("obj", "says", "remedy"),
    [
        (
            backup(**GONE),
            "Backup x, which is Pending, made 2 h ago: Failed to get the Snapshot s1",
            DELETE,
        ),
        (backup(300, **GONE), "which is Pending, made 5 min ago", LEAVE),
        (backup(state="InProgress", progress=40), "is InProgress at 40 %, made 2 h ago", LEAVE),
        (
            backup(state="Pending", messages={"info": "Waiting for the engine e to be ready"}),
            "made 2 h ago: Waiting for the engine e to be ready",
            LEAVE,
        ),
        (backup(state="Error", error="upload failed"), "is Error, made 2 h ago: upload", LEAVE),
    ],
    ids=["without a snapshot", "young", "under way", "waits", "has failed"],
)
def test_a_backup_keeps_its_volume_until_it_ends(obj, says, remedy):
    found = of(obj)
    assert says in found.reason
    assert found.remedy.startswith(remedy)
    assert ("kubectl delete backups.longhorn.io x " in found.remedy) is (remedy == DELETE)


def test_a_ticket_of_another_controller_names_no_backup():
    assert of(backup(**GONE), "snapshot-controller") is None


def test_a_backup_that_is_not_known_is_not_told():
    with_it = kept_on_c(backup(**GONE), ticket="backup-controller", key=TICKET)
    without = kept_on_c(ticket="backup-controller", key=TICKET)

    assert "it is the ticket of Backup x" in with_it.words
    assert "Backup" not in without.words
    assert without.remedy.startswith("see why it is not detached from c: kubectl describe ")
