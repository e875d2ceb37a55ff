"""Each known error of a machine-config-daemon has its own remedy."""

import shlex

import pytest

from tests.advice import risky
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates import daemon_errors
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase

FORCE = "oc debug node/n1 -- chroot /host touch /run/machine-config-daemon-force"
NODE = Object({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
ERRORS = {
    'unexpected on-disk state validating against rendered-worker-2: expected target osImageURL "a", have "b"': (
        "n1 runs another OS image than its configuration names",
        FORCE,
    ),
    'expected target osImageURL "a", have "b" ("uuid")': ("another OS image", FORCE),
    'unexpected on-disk state validating against r: mode mismatch for file: "/etc/a b"; expected: -rw-r--r--': (
        "Find out what changed /etc/a b on n1",
        FORCE,
    ),
    'content mismatch for file "/etc/chrony.conf"': ("Find out what changed /etc/chrony.conf on n1", FORCE),
    "unexpected on-disk state validating against r: missing expected kernel arguments: [nosmt]": (
        "Find out what changed n1 besides its MachineConfig",
        FORCE,
    ),
    "failed to drain node: n1 after 1 hour. Please see machine-config-controller logs for more information": (
        "End what keeps n1 from being drained",
        "virt-admit drain n1",
    ),
    "can't reconcile config rendered-worker-1 with rendered-worker-2: ignition disks section contains changes": (
        "Take back the change of the MachineConfig that it refuses",
        "kubectl get machineconfigs --sort-by=.metadata.creationTimestamp",
    ),
    'machineconfig.machineconfiguration.openshift.io "rendered-master-b9b" not found': (
        "Create MachineConfig rendered-master-b9b again from a backup",
        "kubectl get machineconfigs",
    ),
    "failed to create directory /home/core/test: not a directory": (
        "Repair what the machine-config-daemon of n1 reports",
        "oc debug node/n1 -- chroot /host journalctl",
    ),
    "": ("Repair what its updater reports", "kubectl describe node n1"),
}


@pytest.mark.parametrize("reason", ERRORS)
def test_remedy(reason: str) -> None:
    found = daemon_errors.of_update(NODE, NodeUpdate("MachineConfigPool", "worker", Phase.FAILING, waits_for=reason))
    words, command = ERRORS[reason]
    assert words in found
    assert command in found
    assert not risky(found)


def test_another_updater_keeps_its_remedy() -> None:
    update = NodeUpdate("Upgrade", "hvst", Phase.FAILING, waits_for='content mismatch for file "/etc/a"')
    assert daemon_errors.of_update(NODE, update) == "Repair what its updater reports: kubectl describe node n1"


def test_the_first_node_that_says_why() -> None:
    key = "machineconfiguration.openshift.io"
    states = {
        "n1": {},
        "n2": {f"{key}/state": "Degraded"},
        "--all; x": {f"{key}/state": "Degraded", f"{key}/reason": "no disk"},
    }
    nodes = [Object({"metadata": {"name": name, "annotations": notes}}) for name, notes in states.items()]
    found = daemon_errors.of_pool(nodes)
    assert "machine-config-daemon of --all; x reports" in found
    assert "node/--all; x" in shlex.split(found.rpartition(": ")[2])
    assert daemon_errors.of_pool(nodes[:2]) == ""
