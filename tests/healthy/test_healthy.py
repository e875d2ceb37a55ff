"""Healthy clusters, written from upstream sources alone: no verb accuses one of them."""

import json

import pytest
from click.testing import CliRunner

from tests.advice import risky
from tests.healthy.clusters import clusters
from tests.healthy.guests import guests
from tests.healthy.motion import updates
from tests.healthy.openshift import openshifts
from tests.healthy.releases import releases
from tests.healthy.storage import harvesters, rooks
from virt_admit.cli.main import virt_admit

CASES = [*harvesters(), *rooks(), *releases(), *openshifts(), *updates(), *clusters(), *guests()]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request):
    return request.param


@pytest.fixture
def ask(case, tmp_path):
    """Return a function that runs a verb on the cluster of a case and returns its JSON."""
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(case.snapshot))

    def run(*words):
        result = CliRunner().invoke(virt_admit, [*words, "--cluster", str(path), "-o", "json"])
        assert result.exit_code in (0, 1, 2), result.output
        assert not risky(result.stdout), risky(result.stdout)
        return json.loads(result.stdout)

    return run


def test_drain(case, ask):
    found = ask("drain", "--all")["nodes"]
    drainable = {node["name"]: node["drainable"] for node in found}
    assert drainable.keys() >= case.nodes.keys()
    wrong = {
        name: drainable[name] for name, right in case.nodes.items() if drainable[name] not in right
    }
    assert not wrong, [node for node in found if node["name"] in wrong]
    outcomes = {vm["name"]: vm["outcome"] for node in found for vm in node["vms"] if not vm["from"]}
    assert outcomes == case.vms
    assert all(blocker["now"] is not False for node in found for blocker in node["blockers"])


def test_upgrade(case, ask):
    found = ask("upgrade")
    assert found["possible"] in case.upgrade, found["stops"]
    assert case.wider or all(saving["setting"] != "maxUnavailable" for saving in found["faster"])


def test_scan(case, ask):
    found = ask("scan")["results"]
    accused = {
        result["rule"]: result["message"]
        for result in found
        if result["action"] in ("warn", "deny")
    }
    assert accused.keys() == case.findings, accused


def test_outage(case, ask):
    if case.outage is None:
        assert ask("outage", "--worst", "1")["version"] == 1
        return
    node, right = case.outage
    found = ask("outage", node)
    assert found["survives"] in right, found["because"]


def text_of(name, tmp_path, *words):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(next(case for case in CASES if case.name == name).snapshot))
    return CliRunner().invoke(virt_admit, [*words, "--cluster", str(path)]).stdout


def test_a_migration_at_its_normal_pace_is_not_announced_as_cancelled(tmp_path):
    report = text_of("one-migration", tmp_path, "drain", "--all")
    assert (
        "has been migrating to w3 for 20 s; if it has not ended at 12:12 UTC, KubeVirt cancels "
        "it; a person"
    ) in report


def test_a_node_that_a_vm_arrives_on_is_not_listed_as_empty(tmp_path):
    report = text_of("one-migration", tmp_path, "drain", "--all")
    assert "node w3: 0 VMs" in report
    assert "3 nodes without VMs: cp1, cp2, cp3" in report


@pytest.mark.parametrize("name", ["harvester-1.3", "hypershift-hosted", "k3s-single-node"])
def test_nodes_that_something_else_remediates_are_not_named_as_uncovered(name, tmp_path):
    assert "No health check" not in text_of(name, tmp_path, "drain", "--all")


def test_an_external_controller_is_not_told_to_stop_its_vms(tmp_path):
    for words in (
        ("drain", "--all"),
        ("upgrade",),
        ("explain", "vm/guest-a", "-n", "clusters-guest"),
        ("plan",),
    ):
        report = text_of("hypershift-management", tmp_path, *words)
        assert "guest-a" in report
        assert "virtctl stop" not in report


def test_live_migrate_is_not_advised_to_a_vm_that_cannot_migrate(tmp_path):
    report = text_of("shut-down-and-back", tmp_path, "scan")
    assert (
        "None lets a drain shut the guest down. With runStrategy Always the VM restarts. It "
        "cannot migrate:"
    ) in report
    assert "Set LiveMigrate" not in report


def test_what_hyperconverged_writes_is_not_edited(tmp_path):
    report = text_of("openshift-single-node", tmp_path, "scan")
    assert "KubeVirt/openshift-cnv/kubevirt-kubevirt-hyperconverged" in report
    assert "kubectl edit kubevirt " not in report


def test_a_check_that_refuses_is_changed_instead_of_a_second_one(tmp_path):
    report = text_of("openshift-node-reboots", tmp_path, "outage", "w0")
    assert "set maxUnhealthy of MachineHealthCheck workers to " in report


def test_what_frees_the_pods_is_a_sentence(tmp_path):
    report = text_of("openshift-odf-mhc", tmp_path, "outage", "w0")
    assert (
        "frees the pods after at least 10 min: the Machine is deleted and MachineSet workers "
        "creates a new one"
    ) in report


def test_scan_and_explain_agree_on_a_vm_whose_claims_cannot_be_read(tmp_path):
    assert "[vm-migratability-unknown]" not in text_of("read-only-role", tmp_path, "scan")
    assert "can migrate        in principle" in text_of(
        "read-only-role", tmp_path, "explain", "vm/web"
    )


def test_a_single_control_plane_node_that_is_lost(tmp_path):
    assert "0 of 1 control-plane node is left" in text_of(
        "k3s-single-node", tmp_path, "outage", "edge"
    )


def test_a_guest_on_hugepages_is_not_overcommitted(tmp_path):
    assert "times the memory" not in text_of("devices", tmp_path, "outage", "w3")


def test_a_witness_votes_in_etcd(tmp_path):
    report = text_of("harvester-1.6-witness", tmp_path, "outage", "h1")
    assert "the API stops" not in report
