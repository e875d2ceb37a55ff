"""Sentences that once said more than was known, or advised what does not help."""

from __future__ import annotations

import json
import re

import click
import pytest
import yaml
from click.testing import CliRunner

from tests.fake_api import FakeApi, path_of
from tests.reports.html.structure import Structure
from tests.reports.html.test_pages import node as _node
from tests.reports.html.test_pages import vmi
from virt_admit.cli import main
from virt_admit.model.kubernetes.kinds import NODE, POD, PVC, VM, VMI, VMIM
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.rules import load_rules

DEVICES = {f"devices.kubevirt.io/{device}": "1k" for device in ("kvm", "tun", "vhost-net")}


def node(name):
    """Return a node that VMs can run on."""
    found = _node(name)
    found["status"]["allocatable"] |= DEVICES | {"ephemeral-storage": "100Gi"}
    found["metadata"]["labels"] = {SCHEDULABLE: "true"}
    return found


VM_WITHOUT_DATA = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: db, namespace: shop}
spec:
  runStrategy: Always
  template:
    spec:
      evictionStrategy: LiveMigrate
      domain: {devices: {disks: [{name: root, disk: {}}]}}
      volumes: [{name: root, persistentVolumeClaim: {claimName: disk}}]
"""


def run(*arguments):
    result = CliRunner().invoke(
        main.virt_admit, [str(each) for each in arguments], standalone_mode=False
    )
    if isinstance(result.exception, click.ClickException):
        return 2, "", result.exception.message
    assert result.exception is None, result.exception
    return result.return_value, result.stdout, result.stderr


@pytest.fixture
def vm(tmp_path):
    (tmp_path / "vm.yaml").write_text(VM_WITHOUT_DATA)
    return tmp_path / "vm.yaml"


@pytest.fixture
def cluster(tmp_path):
    """Return a function that writes a snapshot."""

    def write(*items, **fields):
        head = {"apiVersion": "virt-admit.io/v1alpha1", "kind": "Snapshot", "complete": ["*"]}
        (tmp_path / "cluster.json").write_text(json.dumps({**head, **fields, "items": items}))
        return tmp_path / "cluster.json"

    return write


def test_check_says_what_rules_without_data_do_to_the_exit_code(vm):
    code, _, err = run("check", vm, "-o", "json")
    assert code == 0
    assert (
        "The exit code does not count rules without data: --strict makes it 1, --cluster FILE "
        "or --live"
    ) in err
    code, _, err = run("check", vm, "--strict", "-o", "json")
    assert code == 1
    assert "The exit code does not count" not in err
    (help_text,) = [" ".join(run("check", "--help")[1].split())]
    assert "only --strict fails on them" in help_text


def test_a_live_scan_does_not_advise_live(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with FakeApi() as api:
        for kind in {*load_rules().kinds, *(kind for rule in load_rules() for kind in rule.reads)}:
            api.install(kind)
        api.put(VM, yaml.safe_load(VM_WITHOUT_DATA))
        api.forbidden.add(path_of(PVC))
        _, out, err = run(
            "scan", "--kubeconfig", api.kubeconfig(tmp_path), "--policy", "default", "--all-lines"
        )
    assert "vm-migratability-unknown" in out
    assert "Create it, or make it readable" in out
    assert "--live" not in out + err


@pytest.mark.parametrize("target", ["v1.6.2", "v1.5.2"])
def test_a_scan_says_that_kubevirt_is_being_updated(cluster, target):
    progressing = {"type": "Progressing", "status": "True", "reason": "UpdateInProgress"}
    status = {
        "observedKubeVirtVersion": "v1.5.2",
        "targetKubeVirtVersion": target,
        "conditions": [progressing],
    }
    metadata = {"name": "kubevirt", "namespace": "kubevirt"}
    kubevirt = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": metadata,
        "status": status,
    }
    _, out, err = run("scan", "--cluster", cluster(node("worker-1"), kubevirt))
    assert ("The update of KubeVirt from v1.5.2 to v1.6.2 goes on" in err) is (target == "v1.6.2")
    assert "update of KubeVirt" not in out


class TestForbidden:
    """Missing rights are called forbidden, with the right to ask for,
    and never read as a cluster without VMs.
    """

    RIGHT = "kubectl create clusterrole virt-admit-reader --verb=get,list --resource="

    def test_secrets_are_never_asked_for(self, cluster):
        code, out, _ = run(
            "drain", "--all", "--cluster", cluster(node("worker-1"), unreadable=["secrets"])
        )
        assert (code, "forbidden" in out) == (0, False)
        code, _, err = run("scan", "--cluster", cluster(node("worker-1"), unreadable=["secrets"]))
        assert (code, "forbidden" in err) == (0, False)

    @pytest.mark.parametrize("kinds", [(VMI,), (VMI, POD), (VMI, POD, VMIM), (NODE, VMI, POD)])
    @pytest.mark.parametrize(
        "verb", [("drain", "--all"), ("drain", "--all", "--summary"), ("upgrade",)]
    )
    def test_of_a_snapshot(self, cluster, verb, kinds):
        names = sorted(kind.resource for kind in kinds)
        items = [] if NODE in kinds else [node("worker-1"), node("worker-2")]
        code, out, _ = run(*verb, "--cluster", cluster(*items, unreadable=names))
        assert code == 2
        assert not re.search(r"\b(0|no) VMs?\b|without VMs", out), out
        assert f"forbidden: this account may not list {', '.join(names)}, so what rests on " in out
        assert f"{self.RIGHT}{','.join(names)}" in out

    def test_of_a_live_cluster(self, tmp_path, monkeypatch):
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        with FakeApi() as api:
            for kind in {
                *load_rules().kinds,
                *(kind for rule in load_rules() for kind in rule.reads),
            }:
                api.install(kind)
            api.put(NODE, node("worker-1"))
            api.forbidden |= {path_of(VMI), path_of(POD)}
            code, out, _ = run("drain", "worker-1", "--kubeconfig", api.kubeconfig(tmp_path))
        assert code == 2
        assert "node worker-1: its VMs could not be read" in out
        assert (
            "forbidden: this account may not list pods, virtualmachineinstances.kubevirt.io" in out
        )

    def test_json_stays_json(self, cluster):
        file = cluster(node("worker-1"), unreadable=[VMI.resource])
        _, out, err = run("drain", "--all", "--cluster", file, "-o", "json")
        assert VMI.resource in json.loads(out)["unseen"]
        assert err.splitlines()[0].startswith("forbidden: ")

    @pytest.mark.parametrize("verb", [("drain", "--all"), ("upgrade",), ("scan",)])
    def test_of_a_page(self, cluster, verb):
        file = cluster(node("worker-1"), unreadable=[VMI.resource])
        text = Structure.of(run(*verb, "--cluster", file, "-o", "html")[1]).text
        assert "forbidden: this account may not list virtualmachineinstances.kubevirt.io" in text
        assert not re.search(r"\b0\s+VMs\b", text), text

    def test_a_node_that_is_known_to_be_empty_has_no_vms(self, cluster):
        assert (
            "node worker-1: 0 VMs"
            in run("drain", "worker-1", "--cluster", cluster(node("worker-1")))[1]
        )


class TestPagesOfAScan:
    """No headline calls a cluster or an owner clean while VMs keep nodes from being drained."""

    SELECT = ("--select", "vm-migratability-unknown")  # so that nothing else is found

    def page(self, *arguments):
        return Structure.of(run("scan", *self.SELECT, *arguments, "-o", "html")[1]).text

    def test_the_headline_of_a_cluster_without_a_drainable_node(self, cluster):
        text = self.page("--cluster", cluster(node("worker-1"), vmi("db", migratable="False")))
        assert "Drains are blocked" in text
        assert "1 of 1 node cannot be drained (virt-admit drain --all)." in text
        assert "Nothing would be denied" not in text
        assert "Clean" not in text

    def test_a_cluster_whose_nodes_can_be_drained_is_clean(self, cluster):
        text = self.page("--cluster", cluster(node("worker-1"), node("worker-2"), vmi("db")))
        assert "Clean" in text
        assert "2 nodes can be drained." in text

    def test_what_cannot_be_determined_is_not_clean(self, cluster):
        text = self.page("--cluster", cluster(node("worker-1"), unreadable=[VMI.resource]))
        assert "Clean" not in text

    def test_the_page_of_a_namespace_whose_vms_block(self, cluster, tmp_path):
        file = cluster(
            node("worker-1"),
            node("worker-2"),
            vmi("db", "shop", migratable="False"),
            vmi("web", "front"),
        )
        folder = tmp_path / "pages"
        run(
            "scan",
            *self.SELECT,
            "--cluster",
            file,
            "-o",
            f"html={folder}",
            "--pages-by",
            "namespace",
        )
        shop = Structure.of((folder / "owner-shop.html").read_text()).text
        assert "1 VM would block the drain of its node." in shop
        assert "Clean" not in shop
        front = Structure.of((folder / "owner-front.html").read_text()).text
        assert "Clean" in front

    def test_several_clusters_have_their_own_verdicts(self, cluster, tmp_path):
        bad = cluster(node("worker-1"), vmi("db", migratable="False")).rename(tmp_path / "bad.json")
        good = cluster(node("worker-1"), node("worker-2"), vmi("db")).rename(tmp_path / "good.json")
        text = self.page("--cluster", bad, "--cluster", good)
        assert "1 of 3 nodes cannot be drained" in text
        rows = re.findall(r"(bad|good)\.json\s+(Drains are blocked|Clean)", text)
        assert rows == [("bad", "Drains are blocked"), ("good", "Clean")]


class TestPolicyShow:
    """What is in force in a namespace includes its exemptions."""

    RULE = "vm-pinned-to-one-node"

    def show(self, tmp_path, exemption, *arguments):
        text = (
            "extends: strict\nexempt:\n  namespaces:\n  - {match: dev, reason: moves, "
            f"{exemption}}}\n"
        )
        (tmp_path / "policy.yaml").write_text(text)
        return run("policy", "show", "dev", *arguments, "--policy", tmp_path / "policy.yaml")[1]

    def test_an_exempt_rule_is_off(self, tmp_path):
        out = self.show(tmp_path, f"rules: [{self.RULE}]")
        (row,) = [
            row for row in out.splitlines() if self.RULE in row and not row.startswith("exempt")
        ]
        assert row.startswith("off ")
        assert "exempt: dev: moves (strict: rules: deny)" in row

    def test_at_most_limits_the_action(self, tmp_path):
        out = self.show(tmp_path, f"rules: [{self.RULE}], at_most: audit", self.RULE)
        assert f"{self.RULE} in namespace dev: audit (exempt: dev: moves" in out

    def test_an_exemption_of_some_kinds_is_named_and_the_others_stay(self, tmp_path):
        out = self.show(tmp_path, f"rules: [{self.RULE}], kinds: [VirtualMachine]", self.RULE)
        assert (
            f"{self.RULE} in namespace dev: deny (exempt for VirtualMachine alone: dev: moves"
            in out
        )

    def test_an_expired_exemption_changes_nothing(self, tmp_path):
        out = self.show(tmp_path, f"rules: [{self.RULE}], until: 2020-01-01", self.RULE)
        assert f"{self.RULE} in namespace dev: deny (strict: rules)" in out

    def test_json(self, tmp_path):
        data = json.loads(self.show(tmp_path, f"rules: [{self.RULE}]", self.RULE, "-o", "json"))
        assert (data["rules"][0]["action"], data["rules"][0]["layer"][:11]) == (
            "off",
            "exempt: dev",
        )
