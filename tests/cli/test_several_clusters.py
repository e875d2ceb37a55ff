"""``scan``, ``drain --all`` and ``upgrade`` over several clusters: one report, a matrix first,
what cannot be read.
"""

from __future__ import annotations

import json

import click
import jsonschema
import pytest
from click.testing import CliRunner

from tests.fake_api import FakeApi
from tests.paths import DOCS, EXAMPLES
from virt_admit.cli import main
from virt_admit.cli.commands import drain
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.rules import load_rules

RULE = "vm-running-and-run-strategy"


def run(*command):
    result = CliRunner().invoke(main.virt_admit, command, standalone_mode=False)
    if isinstance(result.exception, click.ClickException):
        return 2, "", result.exception.message
    assert result.exception is None, result.exception
    return result.return_value, result.stdout, result.stderr


def snapshot(folder, name, **spec):
    template = {"metadata": {}, "spec": {"evictionStrategy": "None", "domain": {"devices": {}}}}
    vm = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "db", "namespace": "shop"},
    }
    vm["spec"] = {"runStrategy": "Always", "template": template, **spec}
    file = folder / name
    items = {
        "apiVersion": "virt-admit.io/v1alpha1",
        "kind": "Snapshot",
        "items": [vm],
        "complete": ["*"],
    }
    file.write_text(json.dumps(items))
    return str(file)


@pytest.fixture
def clusters(tmp_path):
    return (
        snapshot(tmp_path, "good.json"),
        snapshot(tmp_path, "bad.json", running=True),
        str(tmp_path / "away.json"),
    )


def options(*paths):
    return [word for path in paths for word in ("--cluster", path)]


def test_scan_names_the_cluster_of_each_object(clusters):
    good, bad, _ = clusters
    code, out, err = run("scan", *options(good, bad), "--select", RULE, "-o", "json")
    data = json.loads(out)
    assert code == 1
    jsonschema.validate(data, json.loads((DOCS / "check.schema.json").read_text()))
    assert {entry["cluster"] for entry in data["objects"]} == {good, bad}
    assert [(row["cluster"], row["object"]["cluster"]) for row in data["results"]] == [(bad, bad)]
    assert data["clusters"] == [{"cluster": name, "error": None} for name in (good, bad)]
    assert f"cluster {good}:\n" in err


def test_scan_prints_the_matrix_first(clusters):
    good, bad, _ = clusters
    code, out, _ = run("scan", *options(good, bad), "--select", RULE)
    lines = out.splitlines()
    assert code == 1
    assert lines[0].split() == ["cluster", "objects", "denied", "warned", "complete"]
    assert lines[1].split() == [good, "1", "0", "0", "yes"]
    assert lines[2].split() == [bad, "1", "1", "0", "yes"]
    assert any(f"{bad}: VirtualMachine/shop/db" in line for line in lines[3:])
    assert not any(f"{good}: VirtualMachine" in line for line in lines)


def test_a_cluster_that_cannot_be_read_is_said(clusters):
    good, _, away = clusters
    code, out, err = run("scan", *options(good, away), "--select", RULE)
    assert code == 2
    assert f"{away}  cannot be read:" in " ".join(out.split("\n")[2].split(" ")).replace(
        "   ", "  "
    )
    assert f"cluster {away} cannot be read" in err


def test_equal_findings_of_two_clusters_have_different_fingerprints(tmp_path):
    one, two = (snapshot(tmp_path, name, running=True) for name in ("one.json", "two.json"))
    _, out, _ = run("scan", *options(one, two), "--select", RULE, "-o", "sarif")
    results = json.loads(out)["runs"][0]["results"]
    assert (
        len({json.dumps(result["partialFingerprints"]) for result in results}) == len(results) == 2
    )


def test_one_cluster_has_no_new_keys(clusters):
    _, out, _ = run("scan", *options(clusters[0]), "--select", RULE, "-o", "json")
    data = json.loads(out)
    assert "clusters" not in data
    assert all("cluster" not in entry for entry in data["objects"])


@pytest.mark.parametrize("verb", [("drain", "--all"), ("upgrade",)])
class TestForecasts:
    def test_data(self, verb, clusters):
        example = str(EXAMPLES / "cluster.yaml")
        single = json.loads(run(*verb, "--cluster", example, "-o", "json")[1])
        code, out, _ = run(*verb, *options(example, clusters[2]), "-o", "json")
        first, second = json.loads(out)["clusters"]
        assert (code, json.loads(out)["version"]) == (2, 1)
        assert first == {"cluster": example, "error": None, **single}
        schema = json.loads((DOCS / f"{verb[0]}.schema.json").read_text())
        jsonschema.validate(single, schema)
        jsonschema.validate(json.loads(out), schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"version": 1, "clusters": [{"cluster": "x"}, second]}, schema)
        assert second.keys() == {"cluster", "error"}
        assert "No such file" in second["error"]

    def test_the_matrix_is_first_and_single_answers_follow(self, verb, clusters):
        example = str(EXAMPLES / "cluster.yaml")
        single = run(*verb, "--cluster", example)
        code, out, _ = run(*verb, *options(example, clusters[0]))
        assert out.startswith("cluster")
        assert out.splitlines()[1].startswith(example)
        assert single[1].rstrip() in out
        assert code == max(single[0], run(*verb, *options(clusters[0]))[0])


def test_contexts(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with FakeApi() as here, FakeApi() as there:
        for number, api in enumerate((here, there)):
            for kind in {*drain.LOOKS_UP, *load_rules().kinds}:
                api.install(kind)
            api.put(NODE, {"metadata": {"name": f"n{number}"}})
        config = json.loads((tmp_path / here.kubeconfig(tmp_path)).read_text())
        config["clusters"].append(
            {"name": "b", "cluster": {"server": f"http://127.0.0.1:{there.port}"}}
        )
        config["contexts"].append({"name": "b", "context": {"cluster": "b", "user": "fake"}})
        file = tmp_path / "both"
        file.write_text(json.dumps(config))
        where = (
            "--kubeconfig",
            str(file),
            "--context",
            "fake",
            "--context",
            "b",
            "--context",
            "nowhere",
        )
        _, out, _ = run("drain", "--all", *where, "-o", "json")
        first, second, third = json.loads(out)["clusters"]
        assert [[node["name"] for node in each["nodes"]] for each in (first, second)] == [
            ["n0"],
            ["n1"],
        ]
        assert third["cluster"] == "nowhere"
        assert "nowhere" in third["error"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("drain", "n0"), "several clusters need --all"),
        (("scan", "--metrics", "file"), "--save and --metrics are for one cluster"),
        (
            ("scan", "-o", "openreports"),
            "openreports and policyreport are for one cluster: the reports belong into it",
        ),
        (("upgrade", "--live"), "--cluster excludes --live, --kubeconfig and --context"),
    ],
)
def test_options_that_need_one_cluster(command, message, clusters):
    assert run(*command, *options(*clusters[:2])) == (2, "", message)


def test_a_cluster_is_named_once(clusters):
    assert (
        run("upgrade", *options(clusters[0], clusters[0]))[2]
        == f"the cluster {clusters[0]} is named twice"
    )
