"""Migrations that no retry can save: the processors differ, or virt-launcher itself cannot."""

import pytest

from tests import builders
from tests.builders import manifest
from tests.forecasts.drain.vm_motion import ROOM, cluster, failed, launcher, vmi
from virt_admit.forecasts.drain.failed_migrations import remedies
from virt_admit.forecasts.drain.vm_outcomes import forecast
from virt_admit.model.kubevirt.instances import migration_failures

REGISTER = (
    "internal error: QEMU unexpectedly closed the monitor (vm='db'): "
    "2025-05-15T06:33:44Z qemu-system-x86_64: error: failed to set MSR 0x38f to 0x7000000ff"
)
PARAMETER = "argument unsupported: parameter 'migrate_disks_detect_zeroes' not supported"
SINCE = "kubevirt.io/outdatedLauncherImage"


def processor(name, model):
    labels = {f"host-model-cpu.node.kubevirt.io/{model}": "true"} if model else {}
    labels = {"kubevirt.io/schedulable": "true", **labels}
    closed = {"unschedulable": True} if name == "a" else {}
    return builders.node(name, labels=labels, allocatable=dict(ROOM), **closed)


def moved(said, *more, model="host-passthrough", name="db", **changed):
    spec = {"domain": {"cpu": {"model": model}, "devices": {}, "memory": {"guest": "4Gi"}}}
    guest = vmi(name, spec=spec, **changed)
    gone = [failed(each, said, age=9000 - each * 500, of=name) for each in range(1, 6)]
    return guest, (guest, launcher(name), *gone, *more)


def processors(b="Haswell", c="Haswell"):
    return processor("a", "Broadwell"), processor("b", b), processor("c", c)


def told(said, *more, **changed):
    guest, objects = moved(said, *more, **changed)
    found = remedies.of_one_vm(guest, migration_failures.essence(said), cluster(*objects))
    return (found.reason, found.remedy) if found is not None else None


def test_a_guest_with_the_processor_of_its_node_and_targets_with_another_one():
    reason, remedy = told(REGISTER, *processors())
    assert reason == (
        "its CPU model host-passthrough gives the guest the processor of a (Broadwell), and b has "
        "another one (Haswell): error: failed to set MSR 0x38f to 0x7000000ff"
    )
    assert remedy == "set a named CPU model and restart the VM"
    reason, remedy = told(REGISTER, *processors(c="Broadwell"))
    assert "(only c has the same)" in reason
    assert remedy == "stop it for the drain: virtctl stop db -n shop; or make room for it on c"


@pytest.mark.parametrize(
    ("said", "nodes", "model"),
    [
        (REGISTER, processors(b="Broadwell"), "host-passthrough"),
        (REGISTER, processors(b=""), "host-passthrough"),
        (REGISTER, (), "host-passthrough"),
        (REGISTER, processors(), "host-model"),
        ("unable to connect to server: Connection refused", processors(), "host-passthrough"),
    ],
)
def test_processors_that_are_alike_or_unknown_and_other_models_and_failures(said, nodes, model):
    assert told(said, *nodes, model=model) is None


def upgrade(**states):
    status = {"nodeStatuses": {name: {"state": state} for name, state in states.items()}}
    metadata = {"labels": {"harvesterhci.io/latestUpgrade": "true"}}
    return manifest(
        "harvesterhci.io/v1beta1", "Upgrade", "u", "shop", metadata=metadata, status=status
    )


@pytest.mark.parametrize(
    ("states", "begin"),
    [
        ({"a": "Pre-draining", "b": "Images preloaded"}, "stop it: it holds the files of Upgrade"),
        ({"a": "Pre-draining", "b": "Post-draining"}, "stop it once no Job of the upgrade runs"),
        ({"a": "Images preloaded", "b": "Succeeded"}, "stop it once no Job of the upgrade runs"),
    ],
)
def test_the_vm_with_the_files_of_an_upgrade_is_stopped_while_no_job_reads_them(states, begin):
    guest, objects = moved(REGISTER, *processors(), upgrade(**states), name="upgrade-repo-u")
    (problem, *_) = forecast(guest, cluster(*objects)).problems
    assert problem.remedy.startswith(begin)
    assert ("virtctl stop upgrade-repo-u -n shop" in problem.remedy) == begin.startswith("stop it:")
    elsewhere = "unable to connect to server: Connection refused"
    guest, objects = moved(elsewhere, *processors(), upgrade(**states), name="upgrade-repo-u")
    (problem, *_) = forecast(guest, cluster(*objects)).problems
    assert problem.remedy.startswith(begin)  # whatever makes its migrations fail


def test_another_vm_is_not_stopped_for_an_upgrade():
    _, remedy = told(REGISTER, *processors(), upgrade(a="Pre-draining"))
    assert "stop" not in remedy


def test_a_launcher_that_asks_for_what_its_own_libvirt_does_not_know():
    image = {"launcherContainerImageVersion": "registry.example.org/virt-launcher:1.4.1-1"}
    reason, remedy = told(PARAMETER, **image)
    assert reason == (
        "its virt-launcher 1.4.1-1 asks for what the libvirt in the same image does not know "
        f"({PARAMETER}), so no node and no retry helps"
    )
    assert remedy.startswith(
        "restart the VM, which starts it on another node, as it cannot leave alive: virtctl "
        "restart db -n shop; against the cause, replace KubeVirt v1.9.0 by a release"
    )
    _, remedy = told(PARAMETER, metadata={"labels": {SINCE: ""}, "uid": "uid-db"})
    assert remedy == (
        "restart the VM, which gives it the launcher of the present KubeVirt (v1.9.0): "
        "virtctl restart db -n shop"
    )
    _, remedy = told(PARAMETER, builders.node("a", allocatable=dict(ROOM)))
    assert remedy.startswith("restart the VM once its node is cordoned")
    assert told("argument unsupported: device 'x' cannot be migrated") is None


@pytest.mark.parametrize(("length", "refused"), [(43, True), (36, False)])
def test_a_disk_that_the_qemu_of_each_target_refuses(length, refused):
    """kubevirt/kubevirt#13858."""
    disk = {"name": "data", "disk": {"bus": "scsi"}, "serial": "d" * length}
    spec = {"domain": {"devices": {"disks": [disk]}, "memory": {"guest": "4Gi"}}}
    said = "server error: The serial number can't be longer than 36 characters"
    found = remedies.of_one_vm(vmi(spec=spec), said, cluster(vmi(spec=spec)))

    assert (found is not None) is refused
    if found is not None:
        assert found.reason.endswith(f"has {length} ({'d' * length}): no target takes it")
        assert found.remedy.startswith("set spec.")
