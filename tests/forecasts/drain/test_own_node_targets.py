"""Migrations whose target pod a scheduler puts on the node of the VM (kubevirt/kubevirt#18946)."""

import pytest

from tests.forecasts.drain.test_vm_states import BLOCKS, MIGRATES, row
from tests.forecasts.drain.vm_motion import cluster, launcher, migration, vmi

SOURCE = launcher("db", "a", "1")


def moving(phase, on):
    return cluster(
        vmi(spec={"schedulerName": "packs"}),
        SOURCE,
        migration("m", phase),
        launcher("db", on, "2", job="uid-m"),
    )


@pytest.mark.parametrize("phase", ["Scheduling", "Scheduled", "PreparingTarget", "TargetReady"])
def test_a_target_pod_on_the_node_of_the_vm_never_takes_it(phase):
    found = row(moving(phase, "a"))

    assert found.outcome == BLOCKS
    assert (
        "is on a, where the VM runs. Scheduler packs put it there, against its required "
        "anti-affinity"
    ) in found.reason
    assert found.remedy.startswith(
        "enable the plugin InterPodAffinity in scheduler packs; or remove schedulerName"
    )


@pytest.mark.parametrize("phase", ["Scheduled", "PreparingTarget"])
def test_a_target_pod_on_another_node_takes_it(phase):
    assert row(moving(phase, "b")).outcome == MIGRATES
