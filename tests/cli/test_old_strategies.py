"""No remedy names what the running release of KubeVirt does not know."""

import json

import pytest
from click.testing import CliRunner

from tests.healthy.clusters import plain
from tests.healthy.parts import snapshot
from tests.incidents.machines import find, guest
from virt_admit.cli.main import virt_admit

STRATEGY = "LiveMigrateIfPossible"
OPT_IN = "allow-pod-bridge-network-live-migration"
KNOWN_ABSENT = f"this KubeVirt does not support {STRATEGY}"


@pytest.mark.parametrize("release", ["v0.59.0", "v1.0.0"])
@pytest.mark.parametrize(
    "words",
    [
        ["scan"],
        ["scan", "-o", "json"],
        ["drain", "w1"],
        ["drain", "--all", "-o", "json"],
        ["explain", "vm/db", "-n", "vms"],
        ["explain", "node/w1"],
        ["plan", "w1"],
        ["upgrade"],
    ],
    ids=" ".join,
)
def test_remedies_are_possible_at_the_running_release(words, release, tmp_path):
    items = plain() + guest("db", "w1")
    find(items, "KubeVirt", "kubevirt")["status"]["observedKubeVirtVersion"] = release
    vm, vmi = (find(items, kind, "db") for kind in ("VirtualMachine", "VirtualMachineInstance"))
    for spec in (vm["spec"]["template"]["spec"], vmi["spec"]):
        spec["evictionStrategy"] = "LiveMigrate"
        spec["networks"] = [{"name": "default", "pod": {}}]
        spec["domain"]["devices"]["interfaces"] = [{"name": "default", "bridge": {}}]
    (can,) = [each for each in vmi["status"]["conditions"] if each["type"] == "LiveMigratable"]
    can |= {"status": "False", "reason": "InterfaceNotLiveMigratable"}
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(snapshot(items)))
    out = CliRunner().invoke(virt_admit, [*words, "--cluster", str(path)]).stdout

    assert "InterfaceNotLiveMigratable" in out or "masquerade" in out
    if release == "v0.59.0":
        assert STRATEGY not in out.replace(KNOWN_ABSENT, "")
        assert OPT_IN not in out
    elif words[0] != "plan":
        assert STRATEGY in out or OPT_IN in out or words == ["upgrade"]
