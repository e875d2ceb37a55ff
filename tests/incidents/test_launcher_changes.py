"""Migrations that fail since the launcher was updated:
the nodes are not blamed where they have the same CPU.
"""

import pytest

from .machines import draining, failed, find

TEXT = (
    "Live migration failed error encountered during MigrateToURI3 libvirt api call: "
    "virError(Code=9, Domain=31, Message='operation failed: guest CPU doesn't match specification: "
    "extra features: ht')"
)
SINCE = (
    "since the update of KubeVirt each migration from its old launcher 1.7.4 to the present one "
    "(1.8.0) fails, on any node"
)
MODEL = "cpu-model.node.kubevirt.io/Cascadelake-Server"


def updated(outdated=True, other_cpu=False, text=TEXT):
    """Return a VM whose migrations to w2 failed three times,
    in a cluster of nodes with the same CPU.
    """
    items = draining((1, 8), cores=2)
    for node in (
        each
        for each in items
        if each["kind"] == "Node" and each["metadata"]["name"].startswith("w")
    ):
        node["metadata"]["labels"][MODEL] = "true"
    if other_cpu:
        find(items, "Node", "w2")["metadata"]["labels"]["cpu-feature.node.kubevirt.io/ht"] = "true"
    vmi = find(items, "VirtualMachineInstance", "web")
    vmi["status"]["launcherContainerImageVersion"] = "quay.io/kubevirt/virt-launcher:v1.7.4"
    if outdated:
        vmi["metadata"]["labels"]["kubevirt.io/outdatedLauncherImage"] = ""
    failed(items, "web", text, ("w2", "w2", "w2"))
    kubevirt = find(items, "KubeVirt", "kubevirt")
    kubevirt["spec"]["workloadUpdateStrategy"] = {"workloadUpdateMethods": ["LiveMigrate"]}
    kubevirt["status"] |= {"outdatedVirtualMachineInstanceWorkloads": 1, "phase": "Deployed"}
    return items


def test_the_launcher_is_named_and_not_the_nodes(ask):
    told = ask(updated(), "drain", "w1")
    assert f"{SINCE} (tried: w2): guest CPU doesn't match specification: extra features: ht" in told
    assert "to do: restart the VM when that suits: its CPU settings can stay" in told
    assert "virtctl restart web -n vms" in told
    for words in ("set a CPU model", "not yet w3", "the guest must not have"):
        assert words not in told
    said = ask(updated(), "scan")
    assert "1 VM runs an outdated launcher: 1 failing to migrate" in said
    assert "waiting for their turn" not in said
    assert "Restart the VM. [migration-retry-loop]" in said


@pytest.mark.parametrize(
    "fields",
    [
        {"outdated": False},
        {"other_cpu": True},
        {
            "text": TEXT.replace("extra features: ht", "unsupported").replace(
                "guest CPU doesn't match specification", "lost"
            )
        },
    ],
)
def test_other_failures_are_not_blamed_on_the_launcher(ask, fields):
    assert "since the update of KubeVirt" not in ask(updated(**fields), "drain", "w1")


def test_a_target_with_the_old_launcher_shows_another_cause(ask):
    items = updated()
    for pod in (
        each
        for each in items
        if each["kind"] == "Pod" and each["metadata"]["labels"].get("kubevirt.io")
    ):
        for container in pod["spec"].get("containers", ()):
            container |= {"name": "compute", "image": "quay.io/kubevirt/virt-launcher:v1.7.4"}
    names = [
        each["metadata"]["name"]
        for each in items
        if each["kind"] == "Pod" and "web" in each["metadata"]["name"]
    ]
    moves = [each for each in items if each["kind"] == "VirtualMachineInstanceMigration"]
    moves[0]["status"]["migrationState"]["targetPod"] = names[0]

    assert "since the update of KubeVirt" not in ask(items, "drain", "w1")


def test_an_outdated_vm_without_failures_waits_for_its_turn(ask):
    items = [each for each in updated() if each["kind"] != "VirtualMachineInstanceMigration"]
    del find(items, "VirtualMachineInstance", "web")["status"]["migrationState"]

    said = ask(items, "scan")
    assert "failing to migrate" not in said
    assert "since KubeVirt's update" not in said
