"""Inputs that no one writes on purpose: pipes, symlinks, JSON followed by other text,
clusters without nodes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from random import Random

import pytest
from click.testing import CliRunner

from tests import builders, prefork, random_vms
from tests.model.kubevirt import drain_cases
from tests.paths import ROOT
from virt_admit.cli import main
from virt_admit.forecasts.drain.drain_plan import plan
from virt_admit.forecasts.upgrade import simulation
from virt_admit.forecasts.upgrade.rehearsal import Options, rehearse
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.html import owners

CONFIGMAP = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}'


def virt_admit(*args):
    command = [prefork.virt_admit(), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.parametrize(
    "verb",
    [("check",), ("check", "--cluster"), ("scan", "--cluster"), ("drain", "--all", "--cluster")],
)
def test_a_named_pipe_is_one_error_and_no_hang(tmp_path, verb):
    os.mkfifo(tmp_path / "pipe")
    manifest = tmp_path / "a.yaml"
    manifest.write_text(CONFIGMAP)
    names = [tmp_path / "pipe"] + ([manifest] if verb == ("check", "--cluster") else [])
    run = virt_admit(*verb, *names)
    assert run.returncode == 2, run.stderr
    assert run.stderr.count("No process writes to this pipe") == 1
    assert "internal error" not in run.stderr


def test_an_open_descriptor_is_read(tmp_path):
    read, write = os.pipe()
    os.write(write, CONFIGMAP.encode())
    os.close(write)
    command = [sys.executable, "-m", "virt_admit", "check", f"/dev/fd/{read}"]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=20, check=False, pass_fds=[read]
    )
    os.close(read)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    "more", ["foo: bar", "{apiVersion: v1, kind: ConfigMap}", "- a", "kind: ConfigMap\n---\n"]
)
def test_json_followed_by_yaml_is_what_kubectl_rejects(tmp_path, more):
    (tmp_path / "a.json").write_text(f"{CONFIGMAP}\n{more}\n")
    run = virt_admit("check", tmp_path / "a.json")
    assert run.returncode == 2
    assert "a.json:2:1: kubectl rejects the file" in run.stderr


@pytest.mark.parametrize(
    "more", ["", "\n\n", "# the end\n", f"{CONFIGMAP}\n", "---\nkind: ConfigMap\napiVersion: v1\n"]
)
def test_json_followed_by_documents_is_read(tmp_path, more):
    (tmp_path / "a.json").write_text(f"{CONFIGMAP}\n{more}")
    assert virt_admit("check", tmp_path / "a.json").returncode == 0


def test_a_cluster_without_nodes_cannot_be_determined():
    cluster = Snapshot((), frozenset(("*",)))
    assert plan(cluster).drainable is None
    assert plan(cluster).unseen == ("the nodes of the cluster: none is known",)
    assert rehearse(cluster, Options(None, None, 10)).possible is None


def test_the_verbs_exit_with_2_for_a_cluster_without_nodes(tmp_path):
    snapshot = {
        "apiVersion": "virt-admit.io/v1alpha1",
        "kind": "Snapshot",
        "complete": ["*"],
        "items": [],
    }
    (tmp_path / "empty.json").write_text(json.dumps(snapshot))
    for verb in (("drain", "--all"), ("upgrade",)):
        run = virt_admit(*verb, "--cluster", tmp_path / "empty.json", "-o", "json")
        assert run.returncode == 2, run.stderr
        assert "none is known" in run.stdout


@pytest.mark.parametrize("labels", [{"zone": {"a": "b"}}, {"zone": ["a"]}, {"zone": 5}, ["zone"]])
def test_node_labels_that_are_not_text_do_not_crash_placement(labels):
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": status,
        }
        for name in "ab"
    ]
    vmi = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "db", "namespace": "shop", "labels": {"app": "db"}},
        "spec": {
            "domain": {"memory": {"guest": "1Gi"}},
            "affinity": affinity,
            "evictionStrategy": "LiveMigrate",
        },
        "status": {
            "phase": "Running",
            "nodeName": "a",
            "conditions": [{"type": "LiveMigratable", "status": "True"}],
        },
    }
    cluster = Snapshot(tuple(map(Object, (*nodes, vmi))), frozenset(("*",)))
    assert len(plan(cluster).nodes) == 2
    rehearse(cluster, Options(None, None, 10))


def test_a_symlink_in_the_folder_of_pages_is_not_followed(tmp_path):
    victim, folder = tmp_path / "victim", tmp_path / "pages"
    victim.write_text("mine")
    folder.mkdir()
    (folder / "shop.html").symlink_to(victim)
    owners.write(folder, {"shop.html": "page"})
    assert victim.read_text() == "mine"
    assert (folder / "shop.html").read_text() == "page"
    assert not (folder / "shop.html").is_symlink()
    owners.write(folder, {"shop.html": "later"})
    assert (folder / "shop.html").read_text() == "later"


@pytest.mark.parametrize("amount", ["plenty", None, ["1"], True, "1Gib"])
def test_pod_requests_that_are_no_quantities_leave_the_room_of_a_node_open(amount):
    """Read as 0, such a pod would make room for a VM that its node may not have."""

    def verdict(memory):
        containers = [{"name": "web", "resources": {"requests": {"memory": memory}}}]
        spec = {"nodeName": "b", "containers": containers}
        pod = builders.manifest("v1", "Pod", "web", "shop", spec=spec, status={"phase": "Running"})
        shop = builders.manifest("v1", "Namespace", builders.NAMESPACE)
        cluster = builders.complete(
            drain_cases.HERE,
            drain_cases.THERE,
            drain_cases.vmi("LiveMigrate", migratable=True),
            pod,
            shop,
        )
        (found,) = (node for node in plan(cluster).nodes if node.name == "a")
        return found

    assert verdict("1Gi").drainable is True
    unsized = verdict(amount)
    assert unsized.drainable is None
    assert any("node b" in what for what in unsized.unseen)


@pytest.mark.slow
@pytest.mark.parametrize("verb", [("scan",), ("drain", "--all"), ("upgrade",)], ids=" ".join)
@pytest.mark.parametrize("form", ["text", "json", "html"])
@pytest.mark.parametrize("seed", [7, 12, 31])
def test_the_order_of_items_never_changes_a_byte(tmp_path, monkeypatch, verb, form, seed):
    monkeypatch.chdir(tmp_path)
    runner, printed = CliRunner(), set()
    items = random_vms.random_cluster(seed)
    for order in range(3):
        Random(order).shuffle(items)
        snapshot = {
            "apiVersion": "virt-admit.io/v1alpha1",
            "kind": "Snapshot",
            "complete": ["*"],
            "items": items,
        }
        (tmp_path / "cluster.json").write_text(json.dumps(snapshot))
        run = runner.invoke(main.virt_admit, [*verb, "--cluster", "cluster.json", "-o", form])
        assert run.exit_code in (0, 1, 2), run.output
        printed.add(run.stdout)
    assert len(printed) == 1


EXAMPLE = json.loads((ROOT / "examples/clusters/stuck.json").read_text())


def answered(tmp_path, items, *verb):
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(EXAMPLE | {"items": items}))
    done = CliRunner().invoke(
        main.virt_admit, [*verb, "--cluster", str(file), "-o", "json"], standalone_mode=False
    )
    assert done.exception is None, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("size", ["1e999", "-9e999", "9" * 999, 10**30])
@pytest.mark.parametrize(
    "verb", [("drain", "--all"), ("outage", "--worst", "1"), ("explain", "node/worker-1")]
)
def test_memory_beyond_all_numbers_ends_no_report(monkeypatch, tmp_path, size, verb):
    # such migrations never end: 5 s until it gives up
    monkeypatch.setattr(simulation, "MAX_EVENTS", 20_000)
    items = json.loads(json.dumps(EXAMPLE["items"]))
    for item in items:
        if item["kind"] in ("VirtualMachine", "VirtualMachineInstance"):
            spec = (
                item["spec"]["template"]["spec"]
                if item["kind"] == "VirtualMachine"
                else item["spec"]
            )
            spec["domain"]["memory"] = {"guest": size}
    assert answered(tmp_path, items, *verb)


@pytest.mark.parametrize("hidden", ["object", "node"])
def test_a_guest_that_only_its_pod_shows_is_never_a_yes(tmp_path, hidden):
    items = json.loads(json.dumps(EXAMPLE["items"]))
    if hidden == "object":
        items = [item for item in items if item["kind"] != "VirtualMachineInstance"]
    for item in items:
        if item["kind"] == "VirtualMachineInstance":
            del item["status"]["nodeName"]
    nodes = answered(tmp_path, items, "drain", "--all")["nodes"]
    assert {node["name"] for node in nodes if node["drainable"]} == set()
    assert answered(tmp_path, items, "outage", "--worst", "1")["survives"] is not True
