"""What ends a failure that repeats, in the verbs besides the drain, and what must not be advised for it."""

import copy
import json

import pytest
from click.testing import CliRunner

from tests.healthy.parts import snapshot
from virt_admit.cli.main import virt_admit

from . import fourth_look
from .machines import find


@pytest.fixture
def ask(tmp_path):
    """Return a function that runs a command on a cluster and returns what it prints."""

    def run(items, *words):
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps(snapshot(copy.deepcopy(items))))
        result = CliRunner().invoke(virt_admit, [*words, "--cluster", str(path)])
        assert result.exit_code in (0, 1, 2), result.output
        return result.stdout

    return run


def test_a_vm_whose_migrations_fail_is_not_told_to_migrate(ask):
    items = fourth_look.older_devices().items
    said = ask(items, "explain", "vm/web")

    assert "virtctl migrate" not in said
    assert "its launcher is older than KubeVirt; a migration that completes or a restart replaces it" in said
    assert said.count("to do: restart the VM") + said.count("\n  restart the VM: its guest") == 1

    items = [each for each in items if each["kind"] != "VirtualMachineInstanceMigration"]
    for key in ("migrationState", "evacuationNodeName"):
        find(items, "VirtualMachineInstance", "web")["status"].pop(key, None)
    assert "a migration replaces it: virtctl migrate web -n vms" in ask(items, "explain", "vm/web")


def test_a_restart_alone_ends_the_failures_of_an_older_launcher(ask):
    (step,) = json.loads(ask(fourth_look.older_devices().items, "plan", "w1", "-o", "json"))["steps"]

    assert step["id"] == "restart:vms/web"
    assert "evictionStrategy" not in step["title"]
    assert "set evictionStrategy None" in str(step["alternatives"])
