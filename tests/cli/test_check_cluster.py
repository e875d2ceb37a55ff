"""``virt-admit check`` over a live cluster, and of a part of what the files hold."""

from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner

from tests.fake_api import FakeApi, path_of
from virt_admit.cli import main
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE, PVC, SNR_CONFIG
from virt_admit.rules import load_rules

RULE = "vm-live-migrate-not-migratable"
DISK = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  name: db
  namespace: shop
  labels: {tier: db}
spec:
  runStrategy: Always
  template:
    spec:
      evictionStrategy: LiveMigrate
      domain: {devices: {disks: [{name: root}], interfaces: [{name: default, masquerade: {}}]}}
      networks: [{name: default, pod: {}}]
      volumes:
      - name: root
        persistentVolumeClaim: {claimName: root}
"""
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "root", "namespace": "shop"},
}
SHARED = CLAIM | {"spec": {"accessModes": ["ReadWriteMany"]}}
UNSHARED = CLAIM | {"spec": {"accessModes": ["ReadWriteOnce"]}}


@pytest.fixture
def api():
    """A cluster with KubeVirt, two nodes and one claim that is not shared."""
    with FakeApi() as fake:
        for kind in {*load_rules().kinds, *(kind for rule in load_rules() for kind in rule.reads)}:
            fake.install(kind)
        fake.put(KUBEVIRT, {"metadata": {"name": "kubevirt", "namespace": "kubevirt"}})
        for name in ("a", "b"):
            fake.put(
                NODE, {"metadata": {"name": name, "labels": {"kubevirt.io/schedulable": "true"}}}
            )
        fake.put(PVC, UNSHARED)
        yield fake


@pytest.fixture
def check(api, tmp_path, monkeypatch):
    """Write files and run the verb where the API server is the current context: exit code, stdout,
    stderr.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    api.kubeconfig(tmp_path)
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig")
    )

    def run(*args, **files):
        for name, content in files.items():
            (tmp_path / f"{name}.yaml").write_text(content)
        result = CliRunner().invoke(main.virt_admit, ["check", *args], standalone_mode=False)
        if isinstance(result.exception, click.ClickException):
            return 2, result.stdout, result.exception.message
        assert result.exception is None, result.exception
        return result.return_value, result.stdout, result.stderr

    return run


@pytest.mark.parametrize(
    "options", [["--live"], ["--kubeconfig", "kubeconfig"], ["--context", "fake"]]
)
def test_look_ups_come_from_the_live_cluster(check, options):
    code, out, err = check("vm.yaml", *options, "--select", RULE, vm=DISK)
    assert code == 0
    assert out.startswith("vm.yaml:16:33: warn: ")
    assert "claim 'root'" in out
    policy = "default (ConfigMap virt-admit/virt-admit-policy does not exist)"
    assert err == f"checked 1 object of 1 kind in 1 file\npolicy: {policy}\n"


def test_without_being_asked_no_cluster_is_looked_at(check, api):
    _, out, _ = check("vm.yaml", "--select", RULE, vm=DISK)
    assert out.startswith("vm.yaml:1:1: unseen: ")
    assert api.requests == []


def test_what_the_files_hold_takes_the_place_of_what_is_there(check):
    _, out, _ = check(".", "--live", "--select", RULE, vm=DISK, claim=json.dumps(SHARED))
    assert out == ""


def test_only_what_the_rules_look_up_is_listed_and_nothing_is_written(check, api):
    check("vm.yaml", "--live", vm=DISK)
    paths = {path for path, _ in api.requests}
    assert path_of(PVC) in paths
    assert path_of(NODE) in paths
    assert path_of(SNR_CONFIG) not in paths


def test_what_may_be_listed_in_the_namespace_alone(check, api):
    api.forbidden = {path_of(PVC), path_of(NODE)}
    api.objects[f"{path_of(PVC).rpartition('/')[0]}/namespaces/shop/persistentvolumeclaims"] = (
        api.objects[path_of(PVC)]
    )
    _, out, err = check("vm.yaml", "--live", "--select", RULE, vm=DISK)
    assert "ReadWriteMany" in out
    assert "persistentvolumeclaims" not in err


def test_what_may_not_be_listed_is_unseen(check, api):
    api.forbidden = {path_of(PVC)}
    code, out, err = check(
        "vm.yaml", "--live", "--select", RULE, vm=DISK + "---\n" + DISK.replace("shop", "other")
    )
    assert code == 0
    assert out.count("unseen: ") == 2
    assert "forbidden: this account may not list persistentvolumeclaims, so " in err


def test_a_cluster_that_does_not_answer(check, api):
    api.token = "another"
    unread = "ConfigMap virt-admit/virt-admit-policy cannot be read: unauthorized"
    assert check("vm.yaml", "--live", vm=DISK) == (2, "", unread)
    assert check("vm.yaml", "--live", "--policy", "default", vm=DISK) == (
        2,
        "",
        "Unauthorized. Log in again: kubectl auth whoami",
    )


def test_one_cluster_at_a_time(check):
    code, out, err = check("vm.yaml", "--cluster", "vm.yaml", "--live", vm=DISK)
    assert (code, out, err) == (2, "", "--cluster excludes --live, --kubeconfig and --context")


@pytest.mark.parametrize(
    ("selector", "judged", "others"),
    [
        ("", ["cache", "db"], 1),
        ("tier=db", ["db"], 0),
        ("tier!=db", ["cache"], 1),
        ("tier in (db, web),!old", ["db"], 0),
        ("old", [], 0),
    ],
)
def test_only_what_has_these_labels_is_judged(check, selector, judged, others):
    cache = DISK.replace("name: db", "name: cache").replace("  labels: {tier: db}\n", "")
    _, out, err = check(
        "-v", ".", "-l", selector, "-o", "json", vm=DISK, cache=cache, claim=json.dumps(SHARED)
    )
    report = json.loads(out)
    assert [each["name"] for each in report["objects"]] == judged
    assert report["summary"]["other_kinds"] == others
    assert err.count(": not selected\n") == 3 - len(judged) - others


def test_what_is_not_selected_is_seen_all_the_same(check):
    """Here the claim, which has no labels."""
    assert (
        "warn"
        in check(".", "--select", RULE, "-l", "tier=db", vm=DISK, claim=json.dumps(UNSHARED))[1]
    )


def test_a_selector_that_is_none(check):
    code, _, err = check("vm.yaml", "-l", "tier in db", vm=DISK)
    assert code == 2
    assert "is not a selector" in err


SPREAD = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {generateName: db-, namespace: shop, labels: {app: db}}
spec:
  runStrategy: Always
  template:
    metadata: {labels: {app: db}}
    spec:
      evictionStrategy: LiveMigrate
      domain: {devices: {}, resources: {requests: {memory: 1Gi}}}
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {labelSelector: {matchLabels: {app: db}}, topologyKey: kubernetes.io/hostname}
"""


def test_an_object_whose_name_the_api_server_makes_is_itself_among_the_given_ones(tmp_path):
    """Two nodes suffice for one VM and its copy during a migration; counted twice,
    it would need three.
    """
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    labels = {"kubevirt.io/schedulable": "true", "kubernetes.io/arch": "amd64"}
    items = [
        node | {"metadata": {"name": name, "labels": labels | {"kubernetes.io/hostname": name}}}
        for name in ("n1", "n2")
    ]
    snapshot = {
        "apiVersion": "virt-admit.io/v1alpha1",
        "kind": "Snapshot",
        "complete": ["*"],
        "items": items,
    }
    (tmp_path / "cluster.json").write_text(json.dumps(snapshot))

    def rules(text):
        (tmp_path / "vm.yaml").write_text(text)
        command = [
            "check",
            "-o",
            "json",
            "--cluster",
            str(tmp_path / "cluster.json"),
            str(tmp_path / "vm.yaml"),
        ]
        done = CliRunner().invoke(main.virt_admit, command, standalone_mode=False)
        return {row["rule"] for row in json.loads(done.stdout)["results"]}

    assert "vm-anti-affinity-no-spare-node" not in rules(SPREAD)
    other = SPREAD.replace("generateName: db-", "generateName: web-")
    assert "vm-anti-affinity-no-spare-node" in rules(f"{SPREAD}---\n{other}")
