"""``virt-admit drain`` and ``virt-admit explain`` as commands."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from webhook import cli

EXAMPLES = Path(__file__).parent.parent / "examples"
CLUSTER = str(EXAMPLES / "cluster.yaml")


def vmi(name, node, strategy, migratable):
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"evictionStrategy": strategy},
        "status": {
            "phase": "Running",
            "nodeName": node,
            "conditions": [{"type": "LiveMigratable", "status": migratable, "reason": "DisksNotLiveMigratable"}],
        },
    }


@pytest.fixture
def blocked(tmp_path):
    """The example cluster with a VM on worker-1 that blocks a drain."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "cluster.yaml").write_text(Path(CLUSTER).read_text())
    (folder / "vmi.json").write_text(json.dumps(vmi("db", "worker-1", "LiveMigrate", "False")))
    return str(folder)


def run(*command):
    result = CliRunner().invoke(cli.virt_admit, command, standalone_mode=False)
    if isinstance(result.exception, click.ClickException):
        return 2, result.exception.message
    assert result.exception is None, result.exception
    return result.return_value, result.stdout


def test_a_vm_that_blocks_is_exit_1(blocked):
    code, out = run("drain", "worker-1", "--cluster", blocked)
    assert code == 1
    assert "shop/db" in out
    assert run("drain", "worker-2", "--cluster", blocked)[0] == 0


def test_every_node_as_json(blocked):
    code, out = run("drain", "--all", "--cluster", blocked, "-o", "json")
    assert code == 1
    assert "worker-1" in json.dumps(json.loads(out))


def test_a_node_that_is_not_there():
    assert run("drain", "nope", "--cluster", CLUSTER) == (2, "there is no node nope; the nodes are: worker-1, worker-2")


@pytest.mark.parametrize(
    "command", [("drain",), ("drain", "a", "--all"), ("drain", "--all", "--cluster", CLUSTER, "--live")]
)
def test_wrong_usage(command):
    assert run(*command)[0] == 2


def test_a_health_check_in_a_file():
    code, out = run("explain", str(EXAMPLES / "07-health-check.yaml"), "--cluster", CLUSTER)
    assert code == 0
    assert "selects        2 machines: worker-a-1, worker-a-2" in out


def test_a_health_check_of_the_cluster_as_json(tmp_path):
    folder = tmp_path / "cluster"
    folder.mkdir()
    for name in ("cluster.yaml", "07-health-check.yaml"):
        (folder / name).write_text((EXAMPLES / name).read_text())
    code, out = run("explain", "mhc/openshift-machine-api/workers", "--cluster", str(folder), "-o", "json")
    assert code == 0
    assert isinstance(json.loads(out), dict)


@pytest.mark.parametrize("target", ["nope.yaml", "vm/a", "mhc/a/b", str(EXAMPLES / "01-shared-disk.yaml")])
def test_what_cannot_be_explained(target):
    code, out = run("explain", target, "--cluster", CLUSTER)
    assert code == 2
    assert out
