"""VMs for which KubeVirt makes no VMI: the message of their condition,
and a stored instance type in an old format.
"""

import pytest

from tests.healthy.clusters import plain
from tests.healthy.parts import ago, obj

from .machines import find, guest

OLD = {"apiVersion": "", "spec": "eyJjcHUiOnsiZ3Vlc3QiOjZ9fQ=="}
NEW = {
    "apiVersion": "instancetype.kubevirt.io/v1beta1",
    "kind": "VirtualMachineInstancetype",
    "spec": {"cpu": {"guest": 6}},
}
DECODE = (
    "Failure while starting VMI: failed to decode object in ControllerRevision: Object 'Kind' is "
    """missing in '{"apiVersion":"","spec":"eyJjcHUiOnsiZ3Vlc3QiOjZ9fQ=="}'"""
)


def failing(message, *, data=None, status="True", minutes=60):
    items = [
        each for each in guest("etl", "w1") if each["kind"] not in ("VirtualMachineInstance", "Pod")
    ]
    vm = find(items, "VirtualMachine", "etl")
    condition = {"type": "Failure", "status": status, "reason": "FailedCreate", "message": message}
    condition["lastTransitionTime"] = ago(minutes=minutes)
    vm["status"] = {"printableStatus": "Starting", "conditions": [condition]}
    if data is not None:
        named = {"kind": "VirtualMachineInstancetype", "name": "m4", "revisionName": "m4-1"}
        vm["spec"]["instancetype"] = named
        revision = obj("ControllerRevision", "apps/v1", "m4-1", "vms", revision=0)
        items.append(revision | {"data": data})
    return plain((1, 6)) + items


def test_a_copy_in_an_old_format_is_named(ask):
    items = failing(DECODE, data=OLD)
    told = ask(items, "explain", "vm/etl", "-n", "vms")
    assert (
        "KubeVirt cannot create its VMI for 60 min: ControllerRevision vms/m4-1, its copy of "
        "instance type m4 in"
    ) in told
    assert "cannot be decoded: Object 'Kind' is missing\n" in told
    assert "kubectl delete controllerrevision m4-1 -n vms" in told
    assert (
        "kubectl patch vm etl -n vms --type=merge -p "
        """'{"spec":{"instancetype":{"revisionName":null}}}'"""
    ) in told
    said = (
        "cannot be decoded: Object 'Kind' is missing. Remove spec.instancetype.revisionName and "
        "this ControllerRevision"
    )
    assert said in ask(items, "scan")


def test_any_other_failure_is_said_in_its_words(ask):
    words = 'admission webhook "vmi.example.com" denied the request: no address is free'
    told = ask(failing(f"Failure while starting VMI: {words}"), "explain", "vm/etl", "-n", "vms")
    assert f"KubeVirt cannot create its VMI for 60 min: {words}" in told


def test_a_copy_that_can_be_decoded_is_not_accused(ask):
    told = ask(failing(DECODE, data=NEW), "explain", "vm/etl", "-n", "vms")
    assert (
        "KubeVirt cannot create its VMI for 60 min: failed to decode object in "
        "ControllerRevision: Object"
    ) in told
    assert "m4-1" not in told


@pytest.mark.parametrize("past", [{"status": "False"}, {"minutes": 2}])
def test_a_failure_that_is_over_or_new_is_none(ask, past):
    items = failing(DECODE, data=OLD, **past)
    assert "cannot create its VMI" not in ask(items, "explain", "vm/etl", "-n", "vms")
    assert "vm-start-stuck" not in ask(items, "scan")
