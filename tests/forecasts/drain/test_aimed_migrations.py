"""Migrations that Harvester aims at a node with a selector in the VMI."""

from tests.forecasts.drain.vm_motion import NOW, launcher, migration, node, vm, vmi
from virt_admit.forecasts.drain import drain_plan
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubevirt.launcher.left_selectors import MIGRATION_TARGET, MIGRATION_UID

HOSTNAME = "kubernetes.io/hostname"


def told(phase):
    """What a drain says of a VM that a migration in this phase is to bring to a node."""
    moves = migration("to-w", phase, drain=False, since={phase: 120})
    marks = {MIGRATION_TARGET: "w", MIGRATION_UID: moves.metadata["uid"].text}
    aimed = vmi(
        metadata={"annotations": marks}, spec={"nodeSelector": {HOSTNAME: "w"}}, activePods={}
    )
    refused = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/2",
    }
    target = launcher(
        on="", suffix="2", job=marks[MIGRATION_UID], phase="Pending", conditions=[refused], age=100
    )
    pods = [launcher(), target] if phase == "Scheduling" else [launcher()]
    known = [node("a"), node("b"), aimed, *pods, vm(), moves]
    cluster = Snapshot(known, complete=["*"], time=NOW)
    return drain_plan.node_plan("a", cluster).forecasts[0]


def test_the_selector_of_one_under_way_goes_with_it():
    found = told("Scheduling")

    assert (found.outcome, [*found.target.placement.candidates]) == ("migrates", ["b"])
    assert "Harvester aimed it at w" in found.reason
    assert "abort migration to-w: kubectl delete vmim to-w -n shop" in found.remedy
    assert "restart" not in found.remedy


def test_what_an_ended_one_left_goes_with_a_restart():
    assert "virtctl restart db -n shop" in told("Failed").remedy
