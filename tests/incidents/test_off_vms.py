"""VMs that are off as their run strategy wants it: explain says why in a sentence,
and accuses nothing.
"""

import pytest

from tests.healthy.clusters import plain
from tests.healthy.parts import ago

from .machines import find, guest

FAILED = {
    "type": "Failure",
    "status": "True",
    "reason": "FailedCreate",
    "message": "not authorized",
}


def off(strategy, **status):
    own = guest("desk", "w1")
    vm = find(own, "VirtualMachine", "desk")
    vm["spec"].pop("running", None)
    vm["spec"]["runStrategy"] = strategy
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": "VMINotExists",
        "lastTransitionTime": ago(hours=13),
    }
    vm["status"] = {
        "printableStatus": "Stopped",
        "conditions": [ready, *status.pop("conditions", ())],
        **status,
    }
    gone = ("VirtualMachineInstance", "Pod", "PodDisruptionBudget")
    return plain() + [each for each in own if each["kind"] not in gone]


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        ("Halted", "with run strategy Halted KubeVirt does not start it"),
        ("Manual", "with run strategy Manual KubeVirt starts it only when a user asks for that"),
        ("RerunOnFailure", "RerunOnFailure starts a VM again only after a failure"),
    ],
)
def test_a_vm_that_is_off_on_purpose(ask, strategy, why):
    told = ask(off(strategy), "explain", "vm/desk", "-n", "vms")

    assert "it is off for 13 h, as it is meant to be: " in told
    assert why in told


@pytest.mark.parametrize(
    "items",
    [
        off("RerunOnFailure", conditions=[FAILED]),
        off("Manual", stateChangeRequests=[{"action": "Start"}]),
        off("Always"),
    ],
)
def test_a_vm_that_is_to_start_is_not_off_on_purpose(ask, items):
    assert "as it is meant to be" not in ask(items, "explain", "vm/desk", "-n", "vms")
