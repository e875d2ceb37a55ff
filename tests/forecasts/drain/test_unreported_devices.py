"""Devices that a node reports no more: who waits for them, and who is not to be restarted."""

import pytest

from tests.forecasts.drain.test_start_obstacles import lost
from tests.healthy.parts import ago
from tests.incidents.machines import find, guest
from tests.incidents.starts import GPU, gpu, starting, with_gpu
from virt_admit.forecasts.drain.guests import restart_guard
from virt_admit.forecasts.drain.starts.devices import unreported_devices
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object


def held(taint=False, closed=False):
    """Return what is said of w1 while a VM waits that may lack more than the device there."""
    waiting = starting("cad", "Scheduling", **with_gpu())

    def more(items):
        here = find(items, "Node", "w1")["spec"]
        here["unschedulable"] = closed
        here["taints"] = [{"key": "x", "effect": "NoSchedule"}] * taint

    return lost(more, more=waiting)


def test_a_vm_that_lacks_more_than_the_device_does_not_wait_for_it():
    waits = f"VM vms/cad, which needs 1 of {GPU}, has been Pending for 60 min. No further VM"
    assert waits in held()
    for cause in ("taint", "closed"):
        assert "VM vms/cad" not in held(**{cause: True})


def test_a_vm_that_another_node_takes_does_not_wait_for_the_device():
    waiting = starting("cad", "Scheduling", **with_gpu())
    for each in waiting:
        each["spec"].pop("nodeSelector", None)

    def more(items, free):
        find(items, "Node", "w2")["status"]["allocatable"] |= {GPU: free}

    assert "VM vms/cad" in lost(lambda items: more(items, "0"), more=waiting)
    assert "VM vms/cad" not in lost(lambda items: more(items, "1"), more=waiting)


def test_a_waiting_vm_is_placed_once_for_all_nodes(monkeypatch):
    asked = []
    place = unreported_devices.candidates.target

    def target(vmi, *rest, **more):
        asked.append(vmi.name)
        return place(vmi, *rest, **more)

    monkeypatch.setattr(unreported_devices.candidates, "target", target)
    items = gpu("0", external=True) + starting("cad", "Scheduling", **with_gpu())
    find(items, "Node", "w2")["status"]["allocatable"] |= {GPU: "0"}
    items += guest("r1", "w1", **with_gpu()) + guest("r2", "w2", **with_gpu())
    cluster = Snapshot(list(map(Object, items)), ["*"], time=ago())
    assert all(unreported_devices.note(node, cluster) for node in ("w1", "w2"))
    assert asked.count("cad") == 1


@pytest.mark.parametrize(
    ("reported", "free", "kept"), [("0", False, True), ("1", False, False), ("0", True, False)]
)
def test_a_vm_whose_device_is_not_reported_is_not_restarted(reported, free, kept):
    items = gpu(reported, external=True) + guest("render", "w1", **with_gpu())
    vmi = find(items, "VirtualMachineInstance", "render")
    if free:  # another node has one
        del vmi["spec"]["nodeSelector"]
        find(items, "Node", "w2")["status"]["allocatable"] |= {GPU: "1"}
    cluster = Snapshot(list(map(Object, items)), ["*"], time=ago())
    found = restart_guard.later(Object(vmi), cluster)
    clause = f", but not before w1 reports its {GPU} again, as it would stay Pending"

    assert found == (clause if kept else "")
    restart = "restart it: virtctl restart render -n vms"
    guarded = restart_guard.guarded(restart, Object(vmi), cluster)
    assert guarded == restart.replace(":", f"{clause if kept else ''}:")
