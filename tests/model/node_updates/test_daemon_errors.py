"""Each known error of a machine-config-daemon has its own remedy."""

import shlex

import pytest

from tests.advice import risky
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.node_updates import config_pool_updates, daemon_errors
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase

FORCE = "oc debug node/n1 -- chroot /host touch /run/machine-config-daemon-force"
NODE = Object({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
ERRORS = {
    (
        "unexpected on-disk state validating against rendered-worker-2: expected target osImageURL "
        '"a", have "b"'
    ): ("n1 runs another OS image than its configuration names", FORCE),
    'expected target osImageURL "a", have "b" ("uuid")': ("another OS image", FORCE),
    (
        'unexpected on-disk state validating against r: mode mismatch for file: "/etc/a b"; '
        "expected: -rw-r--r--"
    ): ("Find out what changed /etc/a b on n1", FORCE),
    'content mismatch for file "/etc/chrony.conf"': (
        "Find out what changed /etc/chrony.conf on n1",
        FORCE,
    ),
    "unexpected on-disk state validating against r: missing expected kernel arguments: [nosmt]": (
        "Find out what changed n1 besides its MachineConfig",
        FORCE,
    ),
    (
        "failed to drain node: n1 after 1 hour. Please see machine-config-controller logs for more "
        "information"
    ): ("End what keeps n1 from being drained", "virt-admit drain n1"),
    (
        "can't reconcile config rendered-worker-1 with rendered-worker-2: ignition disks section "
        "contains changes"
    ): (
        "Take back the change of the MachineConfig that it refuses",
        "kubectl get machineconfigs --sort-by=.metadata.creationTimestamp",
    ),
    'machineconfig.machineconfiguration.openshift.io "rendered-master-b9b" not found': (
        "Create MachineConfig rendered-master-b9b again from a backup",
        "kubectl get machineconfigs",
    ),
    "failed to update OS to quay.io/a/b@sha256:1 : error: No enabled repositories": (
        "See which packages are layered on n1: remove those that no MachineConfig asks for",
        "oc debug node/n1 -- chroot /host rpm-ostree status",
    ),
    "failed to create directory /home/core/test: not a directory": (
        "Repair what the machine-config-daemon of n1 reports",
        "oc debug node/n1 -- chroot /host journalctl",
    ),
    "": ("Repair what its updater reports", "kubectl describe node n1"),
}


def of_pool(nodes: list[Object], wanted: str = "", **spec: object) -> str:
    pool = {"metadata": {"name": "worker"}, "spec": {"configuration": {"name": wanted}, **spec}}
    return daemon_errors.of_pool(Object(pool), nodes)


@pytest.mark.parametrize("reason", ERRORS)
def test_remedy(reason: str) -> None:
    found = daemon_errors.of_update(
        NODE, NodeUpdate("MachineConfigPool", "worker", Phase.FAILING, waits_for=reason)
    )
    words, command = ERRORS[reason]
    assert words in found
    assert command in found
    assert not risky(found)


def test_another_updater_keeps_its_remedy() -> None:
    update = NodeUpdate(
        "Upgrade", "hvst", Phase.FAILING, waits_for='content mismatch for file "/etc/a"'
    )
    assert (
        daemon_errors.of_update(NODE, update)
        == "Repair what its updater reports: kubectl describe node n1"
    )


def test_the_first_node_that_says_why() -> None:
    key = "machineconfiguration.openshift.io"
    states = {
        "n1": {},
        "n2": {f"{key}/state": "Degraded"},
        "--all; x": {f"{key}/state": "Degraded", f"{key}/reason": "no disk"},
    }
    nodes = [
        Object({"metadata": {"name": name, "annotations": notes}}) for name, notes in states.items()
    ]
    found = of_pool(nodes)
    assert "machine-config-daemon of --all; x reports" in found
    assert "node/--all; x" in shlex.split(found.rpartition(": ")[2])
    assert of_pool(nodes[:2]) == ""


KEY = "machineconfiguration.openshift.io"


def updating(current: str, desired: str) -> Object:
    notes = {f"{KEY}/currentConfig": current, f"{KEY}/desiredConfig": desired}
    return Object({"metadata": {"name": "n1", "annotations": notes}})


def remedy(node: Object, reason: str) -> str:
    return daemon_errors.of_update(
        node, NodeUpdate("MachineConfigPool", "worker", Phase.FAILING, waits_for=reason)
    )


@pytest.mark.parametrize(
    "error",
    ['expected target osImageURL "a", have "b"', "missing expected kernel arguments: [nosmt]"],
)
def test_a_host_that_did_not_boot_what_its_daemon_believes(error: str) -> None:
    """The daemon finds no difference between its present and its wanted configuration,
    with or without its check.
    """
    found = remedy(
        updating("rendered-worker-1", "rendered-worker-2"),
        f"validating against rendered-worker-2: {error}",
    )
    assert "currentconfig names rendered-worker-2 already" in found
    assert (
        "/run/machine-config-daemon-force alone brings neither the image nor kernel arguments"
        in found
    )
    assert (
        "Write MachineConfig rendered-worker-1 (oc get machineconfig rendered-worker-1 -o "
        "json) back into"
    ) in found
    assert found.endswith("oc debug node/n1 -- chroot /host rpm-ostree status")
    assert ("rpm-ostree rebase" in found) is ("osImageURL" in error)
    assert not risky(found)


def test_the_configuration_before_is_not_known() -> None:
    reason = 'validating against rendered-worker-2: expected target osImageURL "a", have "b"'
    assert "Write the MachineConfig of before back" in remedy(
        updating("rendered-worker-2", "rendered-worker-2"), reason
    )


def test_the_force_file_helps_where_there_is_a_difference() -> None:
    reason = 'validating against rendered-worker-1: expected target osImageURL "a", have "b"'
    assert FORCE in remedy(updating("rendered-worker-1", "rendered-worker-2"), reason)
    files = 'validating against rendered-worker-2: content mismatch for file "/etc/a"'
    assert FORCE in remedy(updating("rendered-worker-1", "rendered-worker-2"), files)


def test_a_file_that_a_reset_left_empty() -> None:
    found = remedy(updating("rendered-worker-1", "rendered-worker-2"), "EOF")
    assert (
        "Write MachineConfig rendered-worker-1 into /etc/machine-config-daemon/currentconfig of n1"
        in found
    )


def test_digests_are_short() -> None:
    image = (
        f'expected target osImageURL "quay.io/a@sha256:{"0123456789ab" + "c" * 52}", have "x" '
        f'("{"d" * 64}")'
    )
    notes = {f"{KEY}/state": "Degraded", f"{KEY}/reason": image}
    node = Object({"metadata": {"name": "n1", "annotations": notes}})
    assert (
        config_pool_updates.failure(node)
        == 'expected target osImageURL "quay.io/a@sha256:0123456789ab…", have "x"'
    )


def test_a_rendered_configuration_that_does_not_exist() -> None:
    """The file on the node has it, and the pool has another one that exists."""
    reason = 'machineconfig.machineconfiguration.openshift.io "rendered-a" not found'
    notes = {f"{KEY}/state": "Degraded", f"{KEY}/reason": reason}
    notes |= {f"{KEY}/currentConfig": "rendered-a", f"{KEY}/desiredConfig": "rendered-a"}
    nodes = [Object({"metadata": {"name": "n1", "annotations": notes}})]
    found = of_pool(nodes, "rendered-b")
    assert "again from /etc/machine-config-daemon/currentconfig of n1" in found
    assert f"one node after the other, set its annotations {KEY}/currentConfig" in found
    assert "to rendered-b, the configuration of its pool, and touch" in found
    assert "one node after the other" not in of_pool(nodes, "rendered-a")


# --- a configuration that the pool has replaced ---------------------------------------------------


def stopped(current, desired, *, state="Degraded", reason="mkdir /x: failed", cordoned=True, **own):
    keys = {config_pool_updates.CURRENT: current, config_pool_updates.DESIRED: desired}
    group = "machineconfiguration.openshift.io"
    notes = {**keys, f"{group}/state": state, f"{group}/reason": reason}
    notes |= {f"{group}/{key}": value for key, value in own.items()}
    metadata = {"name": "n1", "annotations": notes}
    spec = {"unschedulable": cordoned}
    return Object({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})


def test_the_desired_configuration_is_the_one_that_the_pool_has_now():
    found = of_pool([stopped("r-1", "r-2")], "r-1")
    assert found.startswith(
        "Node n1 still wants r-2, which its pool has replaced by r-1 (its present one), and the "
        "operator does not change that of a cordoned node. Set its annotation desiredConfig to "
        "r-1: kubectl annotate node n1 --overwrite "
        "machineconfiguration.openshift.io/desiredConfig=r-1; "
    )
    assert "which reboots the node" in found
    third = of_pool([stopped("r-1", "r-2")], "r-3")
    assert "desiredConfig to r-3, which updates it to that one: " in third


def test_a_paused_pool_gives_its_nodes_no_other_configuration():
    found = of_pool([stopped("r-1", "r-2")], "r-3", paused=True)
    assert found.startswith("Repair what the machine-config-daemon of n1 reports")
    back = of_pool([stopped("r-1", "r-2")], "r-1", paused=True)
    assert "desiredConfig to r-1: " in back


def test_another_configuration_needs_the_same_drain():
    node = stopped("r-1", "r-2", reason="failed to drain node: n1 after 1 hour. Please see logs")
    found = of_pool([node], "r-3")
    assert found == "End what keeps n1 from being drained: virt-admit drain n1"
    assert "desiredConfig to r-1: " in of_pool([node], "r-1")


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        (stopped("r-1", "r-2"), "r-2"),
        (stopped("r-1", "r-1"), "r-2"),
        (stopped("r-1", "r-2"), ""),
        (stopped("r-1", "r-2", state="Working"), "r-3"),
        (stopped("r-1", "r-2", cordoned=False), "r-3"),
        (stopped("r-1", "r-2", desiredImage="quay.io/a@sha256:1"), "r-3"),
    ],
    ids=["the target", "the present one", "unknown", "on its way", "not cordoned", "an image"],
)
def test_the_configuration_of_the_pool_is_wanted_already(node, wanted):
    assert not config_pool_updates.withdrawn(node, wanted)


def test_a_present_configuration_that_does_not_exist_is_needed_first():
    reason = 'machineconfig.machineconfiguration.openshift.io "r-1" not found'
    found = of_pool([stopped("r-1", "r-2", reason=reason)], "r-3")
    assert found.startswith("Create MachineConfig r-1 again")
