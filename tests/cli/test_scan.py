"""``virt-admit scan`` as administrators and pipelines use it,
over files and over a live cluster.
"""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from tests.fake_api import FakeApi, path_of
from virt_admit.cli import main
from virt_admit.cli.cluster_source import list_live
from virt_admit.cli.options import ClusterOptions, selected_rules
from virt_admit.cli.output import progress
from virt_admit.kube import snapshots
from virt_admit.kube.stores import stores
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import (
    CAPI_CLUSTER,
    MACHINE_DEPLOYMENT,
    MHC,
    NODE,
    PVC,
    VM,
    VMI,
)
from virt_admit.policy import parser
from virt_admit.reports.findings.judging import judge
from virt_admit.rules import load_rules


def vm(name, namespace="shop", tier="a", **spec):
    template = {"metadata": {}, "spec": {"evictionStrategy": "None", "domain": {"devices": {}}}}
    metadata = {"name": name, "namespace": namespace, "labels": {"tier": tier}}
    return {"metadata": metadata, "spec": {"runStrategy": "Always", "template": template, **spec}}


BOTH = {"running": True}
"""Both keys: denied."""

RULE = "vm-running-and-run-strategy"


@pytest.fixture
def api():
    """A cluster without nodes or VMIs: VMs, one of which would be denied, and their claims."""
    with FakeApi() as fake:
        for kind in {*load_rules().kinds, *(kind for rule in load_rules() for kind in rule.reads)}:
            fake.install(kind)
        fake.put(VM, vm("good"))
        fake.put(VM, vm("bad", **BOTH))
        fake.put(VM, vm("bad", "other", tier="b", **BOTH))
        fake.put(
            PVC,
            {
                "metadata": {"name": "disk", "namespace": "shop"},
                "spec": {"accessModes": ["ReadWriteOnce"]},
            },
        )
        yield fake


@pytest.fixture
def scan(api, tmp_path, monkeypatch):
    """Run the verb: exit code, stdout, stderr. Without --cluster over the API server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def run(*args):
        where = () if "--cluster" in args else ("--kubeconfig", api.kubeconfig(tmp_path))
        result = CliRunner().invoke(main.virt_admit, ["scan", *where, *args], standalone_mode=False)
        if isinstance(result.exception, click.ClickException):
            return 2, result.stdout, result.exception.message
        assert result.exception is None, result.exception
        return result.return_value, result.stdout, result.stderr

    return run


NO_POLICY = "policy: default (ConfigMap virt-admit/virt-admit-policy does not exist)\n"


def denied(out):
    return sorted(line.partition(": deny: ")[0] for line in out.splitlines() if ": deny: " in line)


def test_a_live_cluster(scan):
    code, out, err = scan("--select", RULE)
    assert code == 1
    assert denied(out) == ["VirtualMachine/other/bad", "VirtualMachine/shop/bad"]
    assert err == f"checked 3 objects of 1 kind\n{NO_POLICY}"


def test_json(scan):
    code, out, _ = scan("--select", RULE, "-o", "json")
    data = json.loads(out)
    assert code == 1
    assert data["summary"] == {
        "objects": 3,
        "denied": 2,
        "warned": 0,
        "unseen": 0,
        "errors": 0,
        "other_kinds": 0,
    }
    assert [(each["namespace"], each["name"], each["allowed"]) for each in data["objects"]] == [
        ("other", "bad", False),
        ("shop", "bad", False),
        ("shop", "good", True),
    ]
    assert {each["rule"] for each in data["results"]} == {RULE}
    assert data["results"][0]["location"] is None
    assert data["results"][0]["object"] == {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "namespace": "other",
        "name": "bad",
    }


@pytest.mark.parametrize(
    ("options", "hits"),
    [
        (["-n", "shop"], ["VirtualMachine/shop/bad"]),
        (["-n", "nowhere"], []),
        (["-l", "tier=b"], ["VirtualMachine/other/bad"]),
        (["-l", "tier in (a),!old", "-n", "other"], []),
    ],
)
def test_a_part_of_the_cluster(scan, options, hits):
    code, out, _ = scan("--select", RULE, *options)
    assert (code, denied(out)) == (int(bool(hits)), hits)


def test_nothing_is_fixed(scan, api):
    """What ``/mutate`` would write is not there yet: the report shows it as something to do,
    not as done.
    """
    api.put(VM, vm("bad", template={"spec": {"domain": {"devices": {}}}}))
    code, out, _ = scan("-n", "shop", "--select", "vm-eviction-strategy-default", "-o", "json")
    data = json.loads(out)
    (result,) = data["results"]
    assert (code, result["action"], result["object"]["name"]) == (0, "audit", "bad")
    assert result["fix"][0]["path"] == "/spec/template/spec/evictionStrategy"
    assert [each["patch"] for each in data["objects"]] == [[], []]


def test_rules_that_only_scan_asks(scan):
    _, out, _ = scan("--select", "vm-shutdown-on-drain")
    assert "[vm-shutdown-on-drain]" in out


def test_all_rules_over_a_real_mixture(scan, api):
    api.put(
        NODE,
        {"metadata": {"name": "one", "labels": {"kubevirt.io/schedulable": "true"}}, "spec": {}},
    )
    check = {
        "metadata": {"name": "mhc", "namespace": "openshift-machine-api"},
        "spec": {"selector": {}},
    }
    api.put(MHC, check)
    code, out, err = scan()
    assert code == 1
    assert "MachineHealthCheck/openshift-machine-api/mhc: " in out
    assert err.startswith("checked 5 objects of 3 kinds")


def test_what_is_being_deleted_is_left_alone(scan, api):
    leaving = vm("bad", **BOTH)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-01T10:00:00Z"
    api.put(VM, leaving)
    assert denied(scan("--select", RULE)[1]) == ["VirtualMachine/other/bad"]


@pytest.mark.parametrize(("level", "code"), [("deny", 1), ("warn", 1), ("never", 0)])
def test_fail_on(scan, level, code):
    assert scan("--select", RULE, "--fail-on", level)[0] == code


def test_a_policy_decides(scan, tmp_path):
    (tmp_path / "policy.yaml").write_text(
        "rules: {vm-running-and-run-strategy: {action: warn}}\n"
        "exempt: {namespaces: [{match: other, rules: ['*'], reason: not ours}]}\n"
    )
    code, out, _ = scan("--select", RULE, "--policy", "policy.yaml")
    assert (code, denied(out)) == (0, [])
    assert "VirtualMachine/shop/bad: warn: " in out
    assert "(exempt: not ours)" in out


def test_exemptions_that_silence_nothing(scan, tmp_path):
    rules = "rules: ['*']"
    (tmp_path / "policy.yaml").write_text(
        "exempt:\n"
        "  namespaces:\n"
        f"  - {{match: other, {rules}, reason: not ours}}\n"
        f"  - {{match: nowhere, {rules}, reason: long gone}}\n"
        f"  - {{match: shop, {rules}, kinds: [Node], reason: of no such kind}}\n"
        f"  - {{match: old, {rules}, reason: ended, until: 2020-01-31}}\n"
        "  - {match: shop, rules: [nhc-update-during-remediation], reason: speaks of changes}\n"
        f"  users: [{{match: admin, {rules}, reason: a scan has no user}}]\n"
    )

    def useless(*args):
        lines = scan("--policy", "policy.yaml", *args)[2].splitlines()
        return [line for line in lines if "unused exemption" in line]

    assert useless() == [
        "unused exemption for nowhere: long gone",
        "unused exemption for shop: of no such kind",
    ]
    for part in (["-n", "shop"], ["-l", "tier=a"], ["--select", RULE], ["--ignore", RULE], ["-q"]):
        assert useless(*part) == []


# --- what cannot be read


def test_a_kind_that_should_be_judged_and_may_not_be_listed(scan, api):
    api.forbidden.add(path_of(VM))
    code, out, err = scan("--select", RULE)
    assert (code, out) == (2, "")
    said = (
        "forbidden: this account may not list virtualmachines.kubevirt.io, so what rests on it is "
        "not judged. Ask "
    )
    assert said in err.splitlines()[-1]


def test_a_kind_that_is_only_looked_up_and_may_not_be_listed(scan, api):
    api.forbidden.add(path_of(PVC))
    volumes = [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]
    template = {
        "spec": {"evictionStrategy": "LiveMigrate", "domain": {"devices": {}}, "volumes": volumes}
    }
    api.put(VM, vm("bad", template=template))
    code, out, err = scan("--select", "vm-live-migrate-not-migratable", "--fail-on", "warn")
    assert code == 0
    assert "VirtualMachine/shop/bad: unseen: not available: " in out
    assert "persistentvolumeclaims shop/disk [vm-live-migrate-not-migratable]" in out
    assert "1 rule lacks the data it needs" in err
    assert "forbidden: this account may not list persistentvolumeclaims, so " in err
    assert scan("--select", "vm-live-migrate-not-migratable", "--strict")[0] == 1


def test_someone_who_may_only_read_a_namespace(scan, api):
    api.forbidden |= {path_of(kind) for kind in kinds.ALL}
    code, out, err = scan("-n", "shop", "--select", RULE)
    assert (code, denied(out)) == (1, ["VirtualMachine/shop/bad"])
    assert err == f"checked 2 objects of 1 kind\n{NO_POLICY}"


CONFIGMAP = "/api/v1/namespaces/virt-admit/configmaps/virt-admit-policy"


def with_policy(text):
    return json.dumps({"kind": "ConfigMap", "data": {"policy.yaml": text}}).encode()


class TestPolicyOfTheCluster:
    """Order: --policy, VIRT_ADMIT_POLICY, the ConfigMap of the live cluster, default."""

    def test_the_policy_of_the_cluster_judges_and_is_named(self, scan, api):
        api.broken[CONFIGMAP] = with_policy(f"rules: {{{RULE}: {{action: warn}}}}")
        code, out, err = scan("--select", RULE)
        assert (code, denied(out), out.count(": warn: ")) == (0, [], 2)
        assert err.endswith("policy: ConfigMap virt-admit/virt-admit-policy\n")
        _, out, _ = scan("--select", RULE, "-o", "json")
        assert json.loads(out)["policy"] == "ConfigMap virt-admit/virt-admit-policy"

    def test_a_named_policy_overrides_it(self, scan, api, monkeypatch):
        api.broken[CONFIGMAP] = with_policy(f"rules: {{{RULE}: {{action: warn}}}}")
        assert scan("--select", RULE, "--policy", "default")[0] == 1
        monkeypatch.setenv("VIRT_ADMIT_POLICY", "audit")
        code, out, err = scan("--select", RULE)
        assert (code, denied(out)) == (0, [])
        assert err.endswith("policy: audit\n")
        assert scan("--select", RULE, "--policy", "strict")[0] == 1

    def test_another_configmap_and_its_fallback(self, scan, api):
        api.broken[CONFIGMAP] = with_policy("extends: strict")
        code, _, err = scan("--select", RULE, "--policy-configmap", "a/b,fallback=audit")
        assert (code, err.splitlines()[-1]) == (0, "policy: audit (ConfigMap a/b does not exist)")
        assert scan("--policy-configmap", "b")[0] == 2

    def test_who_may_not_read_it_has_to_name_a_policy(self, scan, api):
        api.forbidden.add(CONFIGMAP)
        code, out, err = scan("--select", RULE)
        assert (code, out) == (2, "")
        assert "cannot be read: forbidden" in err
        assert "--policy" in err
        assert scan("--select", RULE, "--policy", "default")[0] == 1

    def test_a_policy_that_is_not_valid(self, scan, api):
        api.broken[CONFIGMAP] = with_policy("rules: {vm-runing: {action: deny}}")
        code, out, err = scan("--select", RULE)
        assert (code, out) == (2, "")
        assert "ConfigMap virt-admit/virt-admit-policy:1: rules.vm-runing: there is no rule" in err
        api.broken[CONFIGMAP] = b'{"kind": "ConfigMap"}'
        assert "key policy.yaml is missing" in scan("--select", RULE)[2]

    def test_a_proxy_that_answers_404_is_not_a_cluster_without_a_policy(self, scan, api):
        api.broken["/apis"] = b"{}"
        assert scan("--select", RULE)[0] == 2


def test_an_api_server_that_is_away(scan, api):
    api.stop()
    code, out, err = scan()
    assert (code, out) == (2, "")
    assert "does not answer" in err


def test_no_cluster_at_all(scan, api):
    code, _, err = scan("--context", "elsewhere")
    assert code == 2
    assert "no cluster is configured" in err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--cluster", "x", "--live"], "excludes"),
        (["--cluster", "missing"], "missing"),
        (["-l", "=="], "is not a selector"),
        (["--select", "nothing"], "no rule matches nothing"),
        (["--policy", "nothing"], "nothing"),
        (["-o", "pdf"], "unknown output format"),
        (["--save", "missing/file"], "missing"),
        (["--cluster", "x", "--write-reports"], "excludes"),
        (["--cluster", "x", "--events"], "excludes"),
        (["--write-reports", "policyreport", "-l", "a=b"], "omit"),
        (["--write-reports", "--select", RULE], "omit"),
        (["--write-reports=pdf"], "pdf"),
    ],
)
def test_usage(scan, args, says):
    code, out, err = scan(*args)
    assert (code, out) == (2, "")
    assert says in err


# --- snapshots


def test_a_saved_cluster_gives_the_same_report(scan, tmp_path):
    live = scan("--save", "cluster.json", "-o", "json")
    again = scan("--cluster", "cluster.json", "-o", "json")
    assert json.loads(again[1])["results"] == json.loads(live[1])["results"]
    assert json.loads(again[1])["objects"] == json.loads(live[1])["objects"]
    assert live[0] == again[0] == 1

    def saved():
        return json.loads((tmp_path / "cluster.json").read_text()) | {"time": None}

    first = json.dumps(saved())
    scan("--save", "cluster.json", "--select", RULE, "-n", "shop")
    assert json.dumps(saved()) == first, "always everything, in the same order"


def test_a_saved_cluster_has_what_upgrade_and_explain_read(scan, api, tmp_path):
    """No rule reads MachineDeployments and Clusters: they decide how many nodes are updated at the
    same time, and whether health checks act.
    """
    api.install(
        MACHINE_DEPLOYMENT,
        {"metadata": {"name": "md", "namespace": "shop"}, "spec": {"paused": True}},
    )
    api.install(
        CAPI_CLUSTER,
        {
            "metadata": {"name": "prod", "namespace": "shop"},
            "spec": {
                "paused": True,
                "topology": {"variables": [{"name": "registry", "value": "hunter2"}]},
            },
        },
    )
    scan("--save", "cluster.json")

    assert "hunter2" not in (tmp_path / "cluster.json").read_text()
    saved = snapshots.load(tmp_path / "cluster.json")
    for kind, name in ((MACHINE_DEPLOYMENT, "md"), (CAPI_CLUSTER, "prod")):
        assert saved.get(kind, "shop", name).at("spec", "paused").boolean
        assert saved.get(kind, "shop", "other") is None


def test_what_a_snapshot_could_not_read(scan, api):
    api.forbidden.add(path_of(VM))
    scan("--save", "cluster.json")
    code, _, err = scan("--cluster", "cluster.json")
    assert code == 2
    assert "forbidden: this account may not list virtualmachines.kubevirt.io" in err


def test_a_folder_of_manifests(scan, tmp_path):
    for name, kind, obj in [
        ("vm", "VirtualMachine", vm("bad", **BOTH)),
        ("other", "ConfigMap", {"metadata": {}}),
    ]:
        data = {
            "apiVersion": "kubevirt.io/v1" if kind == "VirtualMachine" else "v1",
            "kind": kind,
            **obj,
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    (tmp_path / "kubeconfig").unlink(missing_ok=True)
    code, out, err = scan("--cluster", ".", "--select", RULE)
    assert (code, denied(out)) == (1, ["VirtualMachine/shop/bad"])
    assert err == "checked 1 object of 1 kind; 1 object of other kinds\n"


# --- the machine that runs it


def test_reports_do_not_keep_the_cluster_in_memory(api, tmp_path):
    """A judged object is remembered by its name alone."""
    rules = selected_rules(load_rules(), [RULE], [])
    cluster = list_live(ClusterOptions(kubeconfig=api.kubeconfig(tmp_path)), stores(rules))
    report = judge(cluster, [VM], rules, parser.load("default", load_rules()))
    assert {tuple(one.obj.data) for one in report.results} == {("apiVersion", "kind", "metadata")}


def test_progress_is_shown_on_a_terminal_only(scan, monkeypatch, capsys):
    assert "reading" not in scan("--select", RULE)[2]

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress("reading", 2) as show:
        show(VM, 0)
        show(VM, 500)
        show(VMI, 0)
    shown = capsys.readouterr().err
    assert "virtualmachines.kubevirt.io 500" in shown
    assert shown.count("reading") >= 3


@pytest.mark.parametrize("verb", ["check", "scan", "drain", "explain", "rules"])
def test_verbs_that_read_files_import_nothing_of_a_cluster(verb):
    """Without that, ``check`` of one file took 1.7 times the CPU and 14 MiB more."""
    heavy = ("kubernetes", "cryptography", "urllib3", "flask", "gunicorn")
    code = (
        f"import sys; from virt_admit.cli.commands import {verb}; print(*sorted(sys.modules.keys() "
        f"& {heavy!r}))"
    )
    imported = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True
    )
    assert imported.stdout == "\n"
