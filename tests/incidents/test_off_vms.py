"""VMs that are off as their run strategy wants it: explain says why in a sentence,
and accuses nothing.
"""

import pytest

from tests.healthy.clusters import plain
from tests.healthy.parts import ago, obj

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


def test_a_vm_that_could_not_start_is_not_to_be_started(ask):
    items = off("Halted")
    limits = {"requests.memory": "1Mi"}
    status = {"hard": limits, "used": {"requests.memory": "0"}}
    quota = obj("ResourceQuota", "v1", "compute", "vms", spec={"hard": limits}, status=status)
    told = ask([*items, quota], "explain", "vm/desk", "-n", "vms")

    assert "and could not start: ResourceQuota compute: requests.memory: " in told
    assert "kubectl edit resourcequota compute -n vms" in told
    assert "virtctl start" not in told
    assert "virtctl start" in ask(items, "explain", "vm/desk", "-n", "vms")


HOST = {"name": "host", "namespace": "mtv"}


REMOTE = {"name": "remote", "namespace": "mtv"}


def plan_of(items, destination=HOST, met="Failed", runs=1, archived=False, **more):
    entry = {
        "id": find(items, "VirtualMachine", "desk")["metadata"]["uid"],
        "name": "desk",
        "started": ago(hours=14),
        "completed": ago(hours=12),
        "restorePowerState": "On",
        "error": {"phase": "CopyDisks", "reasons": ["no space left"]},
    }
    return {
        "apiVersion": "forklift.konveyor.io/v1beta1",
        "kind": "Plan",
        "metadata": {"name": "move", "namespace": "mtv"},
        "spec": {
            "targetNamespace": "there",
            "provider": {"source": HOST, "destination": destination},
            "archived": archived,
        },
        "status": {
            "conditions": [{"type": met, "status": "True", "message": "It has FAILED."}],
            "migration": {
                "history": [{"migration": {"name": f"move-{run}"}} for run in range(runs)],
                "vms": [{k: v for k, v in (entry | more).items() if v is not None}],
            },
        },
    }


def machine():
    items = off("Halted")
    find(items, "VirtualMachine", "desk")["metadata"]["uid"] = "u-desk"
    return items


def explained(ask, items):
    return " ".join(ask(items, "explain", "vm/desk", "-n", "vms").split())


@pytest.mark.parametrize("destination", [HOST, REMOTE], ids=["here", "another cluster"])
def test_a_vm_that_a_failed_migration_left_off(ask, destination):
    items = machine()
    told = explained(ask, [*items, plan_of(items, destination)])
    assert "it is off for 13 h: Plan mtv/move stopped it to migrate it, and failed " in told
    assert "is not known" not in told
    left = "failed 12 h ago in Migration move-0 at CopyDisks and left it off: no space left"
    assert left in told
    assert left in ask([*items, plan_of(items, destination)], "scan")
    assert "Commands virtctl start desk -n vms" in told
    was_off = plan_of(items, destination, restorePowerState="Off")
    assert "it is off for 13 h, as it is meant to be: " in explained(ask, [*items, was_off])


MADE = {"phase": "PostHook", "reasons": ["the hook failed"]}
MAKING = {"phase": "CreateVM", "reasons": ["it was refused"]}
FAILS = "stopped it to migrate it, and failed; whether VM there/desk"
UNSURE = f"{FAILS} of Provider mtv/remote exists is not known: look there before"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"error": MADE}, f"{FAILS} exists is not known: look there before"),
        ({"error": MADE, "destination": REMOTE, "archived": True}, UNSURE),
        ({"error": MAKING, "destination": REMOTE}, UNSURE),
        ({"destination": REMOTE, "runs": 2}, UNSURE),
        ({"met": "Executing", "completed": None, "error": None}, "migrates it"),
        ({"met": "Succeeded", "error": None}, "migrated it 12 h ago to VM there/desk"),
        (
            {"met": "Succeeded", "destination": REMOTE, "archived": True, "error": None},
            "migrated it 12 h ago to VM there/desk of Provider mtv/remote",
        ),
    ],
    ids=["hook", "archived", "another cluster", "again", "under way", "moved", "moved away"],
)
def test_a_vm_whose_new_vm_may_exist_is_not_to_be_started(ask, given, why):
    items = machine()
    plan = plan_of(items, **given)
    told, scanned = explained(ask, [*items, plan]), ask([*items, plan], "scan")
    assert f"it is off for 13 h: Plan mtv/move {why}" in told
    for text in (told, scanned):
        assert "left it off" not in text
        assert "start that vm again" not in text.lower()
        assert "virtctl start desk" not in text


def test_a_vm_whose_new_vm_exists(ask):
    items = machine()
    new = find(items, "VirtualMachine", "desk") | {
        "metadata": {"name": "desk", "namespace": "there"}
    }
    told = explained(ask, [*items, new, plan_of(items, error=MAKING)])
    assert "stopped it to migrate it, and failed; VM there/desk exists already" in told
    assert "virtctl start desk -n vms" not in told
    assert "kubectl describe vm desk -n there" in told


def test_a_vm_whose_migration_was_cancelled_before_its_new_vm_was_made(ask):
    items = machine()
    cancelled = {
        "conditions": [{"type": "Canceled", "status": "True"}],
        "pipeline": [{"name": "VirtualMachineCreation", "phase": "Pending"}],
    }
    plan = plan_of(items, REMOTE, met="Canceled", error=None, **cancelled)
    told = explained(ask, [*items, plan])
    assert "as it is meant to be" in told
    assert "virtctl start desk -n vms" in told


def test_each_vm_that_a_failed_migration_left_off_is_told(ask):
    items = machine()
    desk = find(items, "VirtualMachine", "desk")
    runs = desk | {
        "metadata": {"name": "mill", "namespace": "vms", "uid": "u-mill"},
        "status": {"printableStatus": "Running"},
    }
    third = desk | {"metadata": {"name": "lamp", "namespace": "vms", "uid": "u-lamp"}}
    plan = plan_of(items)
    vms = plan["status"]["migration"]["vms"]
    vms.insert(0, vms[0] | {"id": "u-mill", "name": "mill"})
    vms.append(vms[1] | {"id": "u-lamp", "error": {"phase": "CopyDisks", "reasons": ["a fault"]}})
    scanned = ask([*items, runs, third, plan], "scan")
    assert "VM vms/desk (and 2 more VMs) failed" in scanned
    assert "and left 2 VMs off: no space left. Start vms/desk, vms/lamp again" in scanned
    told = " ".join(ask([*items, runs, third, plan], "explain", "vm/lamp", "-n", "vms").split())
    assert "VM vms/lamp failed 12 h ago" in told
    assert "left it off: a fault. Start that VM again meanwhile (virtctl start lamp" in told


def test_a_vm_that_was_stopped_after_the_migration_failed(ask):
    items = off("Halted")
    find(items, "VirtualMachine", "desk")["metadata"].setdefault("uid", "u-desk")
    earlier = plan_of(items, completed=ago(hours=14))
    for asked in (("explain", "vm/desk", "-n", "vms"), ("scan",)):
        told = ask([*items, earlier], *asked)
        assert "left it off" not in told
        assert "start that vm again" not in told.lower()


def test_a_vm_that_was_migrated_is_not_to_be_started_after_its_guest_shut_down(ask):
    own = guest("desk", "w1")
    vm = find(own, "VirtualMachine", "desk")
    vm["metadata"]["uid"] = "u-desk"
    vm["spec"].pop("running", None)
    vm["spec"]["runStrategy"] = "Manual"
    find(own, "VirtualMachineInstance", "desk")["status"]["phase"] = "Succeeded"
    items = plain() + [each for each in own if each["kind"] != "Pod"]
    assert "virtctl start desk -n vms" in explained(ask, items)
    told = explained(ask, [*items, plan_of(items, met="Succeeded", error=None)])
    assert "virtctl start desk" not in told
