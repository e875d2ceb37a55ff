"""``virt_admit.api``: the same answers as the commands, as frozen values, without output."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import typing

import pytest
import yaml
from click.testing import CliRunner

from tests.cli.test_words import node, vmi
from tests.fake_api import FakeApi
from tests.install.test_docs import blocks, page
from tests.paths import EXAMPLES
from virt_admit import api
from virt_admit.cli import main
from virt_admit.model.kubernetes.kinds import NODE, VMI
from virt_admit.rules import load_rules

BOTH = yaml.safe_load((EXAMPLES / "03-both-keys.yaml").read_text())
SNAPSHOT = EXAMPLES / "cluster.yaml"


def command(*arguments):
    return json.loads(
        CliRunner().invoke(main.virt_admit, [*map(str, arguments), "-o", "json"]).stdout
    )


def without_places(data):
    """Return the JSON of ``check`` without the places in files."""
    for one in data["objects"]:
        one["file"] = one["line"] = None
    for one in data["results"]:
        one["location"] = None
    return data


def report_types():
    return [
        each
        for each in (getattr(api, name) for name in api.__all__)
        if inspect.isclass(each) and dataclasses.is_dataclass(each)
    ]


@pytest.mark.parametrize("kind", report_types())
def test_reports_are_frozen_and_typed(kind):
    assert kind.__dataclass_params__.frozen
    assert set(typing.get_type_hints(kind)) >= {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize(
    "function", ["check", "scan", "drain", "upgrade", "outage", "cluster", "read", "live"]
)
def test_functions_are_typed_documented_and_named_in_the_page(function):
    called = getattr(api, function)
    assert called.__doc__
    assert "return" in typing.get_type_hints(called)
    assert f"`{function}" in page("api.md")


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("0*.yaml")), ids=lambda file: file.name)
def test_check_gives_the_json_of_the_command(example):
    objects = list(yaml.safe_load_all(example.read_text()))
    found = api.as_data(api.check(objects, against=api.read(SNAPSHOT)))
    wanted = without_places(command("check", example, "--cluster", SNAPSHOT))
    for one in (found, wanted):
        one["results"].sort(key=str)  # of files by line, of values by path
    assert found == wanted


def test_check_of_an_update_lets_old_faults_pass():
    new = copy.deepcopy(BOTH)
    new["metadata"]["labels"] = {"a": "b"}
    assert api.check([new]).summary.denied == 1
    assert api.check([new], old=[BOTH]).summary.denied == 0


def test_objects_of_a_check_see_each_other():
    vm = yaml.safe_load((EXAMPLES / "02-unshared-disk.yaml").read_text())
    alone = api.check([vm])
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": vm["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"][
                "claimName"
            ]
        },
        "spec": {"accessModes": ["ReadWriteOnce"]},
    }
    together = api.check([vm, claim], namespace=vm["metadata"]["namespace"])
    assert {each.unseen for each in alone.results} > {each.unseen for each in together.results}


def test_scan_gives_the_json_of_the_command():
    state = api.cluster([BOTH, node("worker-1")])
    found = api.scan(state, policy="strict")
    assert (found.policy, found.summary.denied) == ("strict", 1)
    assert found.objects[0].allowed is False or any(not one.allowed for one in found.objects)
    wanted = command("scan", "--cluster", SNAPSHOT, "--policy", "strict")
    assert api.as_data(api.scan(api.read(SNAPSHOT), policy="strict")) == wanted
    assert api.scan(state, namespace="elsewhere").objects == ()


@pytest.mark.parametrize("nodes", [(), ("worker-1",), ("node/worker-2", "worker-1")])
def test_drain_gives_the_json_of_the_command(nodes):
    found = api.drain(api.read(SNAPSHOT), *nodes)
    assert api.as_data(found) == command("drain", *(nodes or ("--all",)), "--cluster", SNAPSHOT)


def test_drain_by_selector():
    found = api.drain(api.read(SNAPSHOT), selector="kubernetes.io/hostname=worker-2")
    assert [one.name for one in found.nodes] == ["worker-2"]


def test_upgrade_gives_the_json_of_the_command():
    found = api.upgrade(api.read(SNAPSHOT), by="plain", max_unavailable="50%", node_minutes=3)
    flags = ("--by", "plain", "--max-unavailable", "50%", "--node-minutes", "3")
    assert api.as_data(found) == command("upgrade", *flags, "--cluster", SNAPSHOT)


@pytest.mark.parametrize(
    ("choice", "flags"),
    [
        ({"worst": 1}, ("--worst", "1")),
        ({"zone": "zone-a"}, ("--zone", "zone-a")),
        ({}, ("worker-1", "worker-2")),
    ],
)
def test_outage_gives_the_json_of_the_command(choice, flags):
    stuck = EXAMPLES / "clusters" / "stuck.json"
    nodes = () if choice else flags
    found = api.as_data(api.outage(api.read(stuck), *nodes, **choice))
    assert found == command("outage", *flags, "--cluster", stuck)


def test_an_outage_without_nodes_is_an_error():
    with pytest.raises(ValueError, match="give nodes, a zone, or worst"):
        api.outage(api.read(SNAPSHOT))


def test_what_was_not_read_is_not_known():
    state = api.cluster([node("worker-1")], unreadable=[VMI.resource])
    found = api.drain(state)
    assert found.drainable is None
    assert VMI.resource in found.unseen


def test_wrong_input_is_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(LookupError, match="Did you mean worker-1"):
        api.drain(api.read(SNAPSHOT), "wrker-1")
    with pytest.raises(ValueError, match="Did you mean strict"):
        api.check([BOTH], policy="strickt")
    with pytest.raises(ValueError, match="percentage"):
        api.upgrade(api.read(SNAPSHOT), max_unavailable="many")
    with pytest.raises(OSError, match="No such file"):
        api.read(tmp_path / "none.json")


def test_nothing_is_printed_and_no_argument_is_changed(capfd):
    before = copy.deepcopy(BOTH)
    api.check([BOTH])
    api.scan(api.read(SNAPSHOT))
    api.drain(api.read(SNAPSHOT))
    api.upgrade(api.read(SNAPSHOT))
    assert capfd.readouterr() == ("", "")
    assert before == BOTH


def test_a_live_cluster(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with FakeApi() as running:
        for kind in {*load_rules().kinds, *(kind for rule in load_rules() for kind in rule.reads)}:
            running.install(kind)
        running.put(NODE, node("worker-1"))
        running.put(VMI, vmi("db", migratable="False"))
        state = api.live(kubeconfig=running.kubeconfig(tmp_path))
    found = api.drain(state)
    assert found.drainable is False
    assert [vm.outcome for vm in found.nodes[0].vms] == ["blocks the drain"]
    running.token = "another"
    with pytest.raises((api.ApiError, api.SettingError)):
        api.live(kubeconfig=str(tmp_path / "kubeconfig"))


@pytest.mark.parametrize("text", blocks(page("api.md"), "python"))
def test_the_examples_of_the_page_run(text, monkeypatch, capsys):
    monkeypatch.chdir(EXAMPLES)
    exec(compile(text, "docs/api.md", "exec"), {})
    assert capsys.readouterr().out
