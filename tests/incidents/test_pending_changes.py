"""Hotplugs of CPUs and memory, which only a migration brings to the guest."""

import copy

import pytest

from tests.healthy.clusters import plain

from .machines import find, guest, migration

WAITS = "a hotplug of its CPUs (4 sockets wanted, 2 in the guest, HotVCPUChange) is pending"
MOVE = "virtctl migrate etl -n vms"


def plugged(methods=(), *, migrates=True, kind="HotVCPUChange", status="True"):
    items = copy.deepcopy([*plain((1, 7)), *guest("etl", "w1", (1, 7))])
    strategy = {"workloadUpdateMethods": list(methods)} if methods else {}
    find(items, "KubeVirt", "kubevirt")["spec"]["workloadUpdateStrategy"] = strategy
    vmi = find(items, "VirtualMachineInstance", "etl")
    vmi["spec"]["domain"]["cpu"] = {"sockets": 4}
    vmi["spec"]["domain"]["memory"] = {"guest": "8Gi"}
    vmi["status"] |= {"currentCPUTopology": {"sockets": 2}, "memory": {"guestCurrent": "4Gi"}}
    if not migrates:
        condition = next(
            each for each in vmi["status"]["conditions"] if each["type"] == "LiveMigratable"
        )
        condition |= {"status": "False", "reason": "HostDeviceNotLiveMigratable"}
    vmi["status"]["conditions"].append({"type": kind, "status": status})
    return items


def test_no_method_is_listed(ask):
    told = ask(plugged(), "explain", "vm/etl", "-n", "vms")
    assert f"{WAITS}, which only a migration brings, and KubeVirt makes none for it" in told
    assert "workloadUpdateMethods of KubeVirt kubevirt/kubevirt lists no LiveMigrate" in told
    to_do = told.partition("\nTo do\n")[2].partition("\n\n")[0]
    assert "migrate the VM once, without a restart of its guest" in to_do
    assert MOVE in to_do
    scan = ask(plugged(), "scan")
    assert f"{WAITS}, which only a migration brings" in scan
    assert f"[vmi-hotplug-stuck]\n    to do: {MOVE}" in scan
    assert "wait for a migration or restart. List LiveMigrate" in scan


def test_memory(ask):
    told = ask(plugged(kind="HotMemoryChange"), "explain", "vm/etl", "-n", "vms")
    assert "a hotplug of its memory (8Gi wanted, 4Gi in the guest, HotMemoryChange)" in told


def test_a_vm_that_cannot_migrate_needs_a_restart(ask):
    told = ask(plugged(["LiveMigrate"], migrates=False), "explain", "vm/etl", "-n", "vms")
    assert f"{WAITS}, which only a migration brings, but it cannot migrate" in told
    assert "estart the VM, which starts it with the change: virtctl restart etl -n vms" in told


def test_a_vm_that_no_node_would_take_is_not_restarted(ask):
    items = plugged(["LiveMigrate"], migrates=False)
    for each in items:
        if each["kind"] == "Node":
            each["spec"]["taints"] = [{"key": "example.com/hold", "effect": "NoSchedule"}]
    for told in (ask(items, "explain", "vm/etl", "-n", "vms"), ask(items, "scan")):
        assert (
            "with the change, but not before taint example.com/hold is off the nodes, as it would "
            "stay Pending"
        ) in told


@pytest.mark.parametrize("methods", [["LiveMigrate"], ["Evict"], ["LiveMigrate", "Evict"]])
def test_a_change_that_kubevirt_brings_by_itself_is_none(ask, methods):
    told = ask(plugged(methods), "explain", "vm/etl", "-n", "vms")
    assert f"{WAITS}, which a migration brings\n" in told
    assert "vmi-hotplug-stuck" not in ask(plugged(methods), "scan")


def test_a_migration_under_way_or_no_change_is_none(ask):
    moving = [*plugged(), migration("etl", {"Pending": 20, "Running": 10})]
    assert "vmi-hotplug-stuck" not in ask(moving, "scan")
    over = plugged(status="False")
    assert "vmi-hotplug-stuck" not in ask(over, "scan")
    assert "hotplug of its CPUs" not in ask(over, "explain", "vm/etl", "-n", "vms")
