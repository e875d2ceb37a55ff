"""``virt-admit explain`` of a VM and a node of a live cluster, also with few rights."""

import json

import click
import pytest
from click.testing import CliRunner

from tests.fake_api import FakeApi, path_of
from tests.forecasts.drain import vm_motion as motion
from virt_admit.cli import main
from virt_admit.cli.commands import explain_objects
from virt_admit.model.kubernetes import kinds
from virt_admit.reports.explain.node import collect as explain_node
from virt_admit.reports.explain.vm import collect as explain_vm

POLICY = "/api/v1/namespaces/virt-admit/configmaps/virt-admit-policy"


@pytest.fixture
def live(tmp_path, monkeypatch):
    """A cluster with one VM, and how to explain an object of it."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with FakeApi() as fake:
        for kind in explain_objects.looks_up((*explain_vm.JUDGED, *explain_node.JUDGED)):
            fake.install(kind)
        for obj in (
            motion.node("a"),
            motion.node("b"),
            motion.vm(),
            motion.vmi(),
            motion.launcher(),
        ):
            kind = kinds.of(obj)
            assert kind is not None
            fake.put(kind, obj.data)

        def run(*arguments, form="json"):
            command = ("explain", *arguments, "--kubeconfig", fake.kubeconfig(tmp_path), "-o", form)
            result = CliRunner().invoke(main.virt_admit, command, standalone_mode=False)
            if isinstance(result.exception, click.ClickException):
                return 2, result.exception.message
            assert result.exception is None, result.exception
            return result.return_value, json.loads(
                result.stdout
            ) if form == "json" else result.stdout + result.stderr

        yield fake, run


def test_a_vm_of_a_live_cluster(live):
    _, run = live
    code, data = run("vm/db", "-n", "shop")
    assert (code, data["drain"]["outcome"], data["candidates"]) == (0, "migrates", ["b"])
    assert data["rules"] is not None


def test_a_node_of_a_live_cluster(live):
    _, run = live
    code, data = run("node/a")
    assert (code, data["drain"]["drainable"], data["node"]["vms"]) == (0, True, ["shop/db"])


@pytest.mark.parametrize("kind", [kinds.VMIM, kinds.PDB, kinds.POD, kinds.NODE], ids=str)
def test_a_kind_that_may_not_be_listed(live, kind):
    fake, run = live
    fake.forbidden.add(path_of(kind))
    code, data = run("vm/db")
    assert code == 0
    assert any(what.startswith(kind.resource) for what in data["unseen"]), data["unseen"]
    _, text = run("vm/db", form="text")
    assert (
        f"forbidden: this account may not list {kind.resource}, so what rests on it is not "
        "judged. Ask "
    ) in text
    assert f"kubectl auth can-i list {kind.resource}" in text


def test_vms_that_may_not_be_listed(live):
    fake, run = live
    fake.forbidden |= {path_of(kinds.VM), path_of(kinds.VMI)}
    code, says = run("vm/db")
    assert code == 2
    assert says.startswith(
        "vm/db cannot be found: virtualmachines.kubevirt.io, virtualmachineinstances.kubevirt.io"
    )


def test_a_policy_that_may_not_be_read_leaves_only_the_rules_out(live):
    fake, run = live
    fake.forbidden.add(POLICY)
    code, data = run("vm/db")
    assert code == 0, data
    assert (code, data["rules"], data["drain"]["outcome"]) == (0, None, "migrates")
    assert "the policy of the cluster" in data["unseen"]
    _, text = run("vm/db", form="text")
    assert "the policy cannot be read, so no rule is judged" in text
    code, data = run("vm/db", "--policy", "default")
    assert data["rules"] is not None
    assert run("vm/db", "--policy", "none.yaml")[0] == 2
