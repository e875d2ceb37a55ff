"""When Machines of dead nodes are deleted and drained agrees with recorded runs of OpenShift's and
Cluster API's own code.
"""

import json

import pytest

from tests.upstream.machines import MAKES, RECORDED, differences

CASES = {make.__name__: make for make in MAKES}
ENDS = ("replaced", "never", "cannot be determined, stays")
RUNS = [json.loads(line) for line in RECORDED.read_text().splitlines()]


def compared(run):
    return list(differences(CASES[run["make"]](run["seed"]), run["answer"]))


@pytest.mark.parametrize("run", RUNS, ids=map(str, range(len(RUNS))))
def test_machines_are_deleted_and_drained_when_the_forecast_says(run):
    assert not [why for _, why in compared(run) if why]


def test_each_end_was_recorded():
    assert {what for run in RUNS for what, _ in compared(run)} == {
        *("openshift ends", "openshift never", "capi ends", "capi never", "chance decides"),
        *("deleted", "refused", "not selected", "the API stops"),
        *(f"{owner}: {end}" for owner in ("MachineSet", "KubeadmControlPlane") for end in ENDS),
    }
