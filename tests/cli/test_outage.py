"""``virt-admit outage`` as a command: forms, exit codes, hostile text, several clusters, live
clusters, completion.
"""

from __future__ import annotations

import json
import re

import click
import jsonschema
import pytest
from click.testing import CliRunner

from tests.cli.test_hostile_text import ATTACK, assert_clean
from tests.fake_api import FakeApi, path_of
from tests.forecasts.outage import losses
from tests.forecasts.outage.losses import FENCING, claim, disk, filler, nhc, node, vm
from tests.paths import DOCS
from tests.remedies import joined
from virt_admit.cli import main
from virt_admit.cli.commands import outage
from virt_admit.cli.kubectl_complete import answer
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.objects import Object

NODES = [node("n1", zone="a"), node("n2", zone="b"), node("n3", zone="b")]
FULL = [filler("n2", "40Gi"), filler("n3", "40Gi")]
SCHEMA = json.loads((DOCS / "outage.schema.json").read_text())


def run(*command):
    result = CliRunner().invoke(main.virt_admit, command, standalone_mode=False)
    if isinstance(result.exception, click.ClickException):
        return 2, "", result.exception.message
    assert result.exception is None, result.exception
    return result.return_value, result.stdout, result.stderr


@pytest.fixture
def saved(tmp_path):
    """Write a snapshot file with these objects."""

    def save(*parts, name="cluster.json", complete=("*",), **more):
        items = [*losses.NAMESPACES, losses.KUBEVIRT, *losses.flat(parts)]
        file = tmp_path / name
        content = {
            "apiVersion": "virt-admit.io/v1alpha1",
            "kind": "Snapshot",
            "items": items,
            "complete": complete,
        }
        file.write_text(json.dumps(content | more))
        return str(file)

    return save


def data(*command):
    code, out, _ = run("outage", *command, "-o", "json")
    found = json.loads(out)
    jsonschema.validate(found, SCHEMA)
    return code, found


def test_the_words_and_the_keys(saved):
    only_here = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    objects = [
        vm("big", "n1", "30Gi"),
        vm("small", "n1", "1Gi"),
        vm("bound", "n1", **only_here),
        vm("manual", "n1", strategy="Manual"),
        vm("bare", "n1", strategy=None),
    ]
    code, found = data("n1", "--cluster", saved(NODES, FULL, objects, nhc()))
    assert code == 1
    assert tuple(found) == (
        *("version", "question", "survives", "because", "unseen", "quorum", "capacity", "outages"),
    )
    assert (found["version"], found["question"], found["survives"]) == (1, {"nodes": ["n1"]}, False)
    assert found["quorum"] == {"nodes": 0, "left": 0, "kept": True}
    (one,) = found["outages"]
    assert tuple(one) == ("nodes", "survives", "fits", "because", "short", "actors", "vms")
    assert {row["name"]: row["outcome"] for row in one["vms"]} == {
        "big": "waits for room",
        "small": "restarts",
        "bound": "waits for its node",
        "manual": "stays off",
        "bare": "lost",
    }
    (actor,) = one["actors"]
    assert actor == {
        "node": "n1",
        "check": "NodeHealthCheck workers",
        "remediator": "SelfNodeRemediation medik8s/workers-template",
        "at": {"low": 530, "high": 555},
        "refuses": "",
    }
    (small,) = [row for row in one["vms"] if row["name"] == "small"]
    assert tuple(small) == (
        *(
            "namespace",
            "name",
            "node",
            "outcome",
            "reason",
            "remedy",
            "to",
            "at",
            "by_hand",
            "parts",
            "fresh",
        ),
        "candidates",
    )
    assert small["at"] == {"low": 540, "high": 675}
    assert small["by_hand"] == {"low": 60, "high": 195}
    assert sum(part["low"] for part in small["parts"]) == 540
    assert small["candidates"] == ["n2", "n3"]


@pytest.mark.parametrize(
    ("options", "question", "code"),
    [
        (("n1",), {"nodes": ["n1"]}, 0),
        (("node/n1", "n2"), {"nodes": ["n1", "n2"]}, 0),
        (("--zone", "b"), {"zone": "b"}, 0),
        (("--worst", "1"), {"worst": 1}, 0),
        (("--worst", "3"), {"worst": 3}, 1),
    ],
)
def test_each_question(saved, options, question, code):
    file = saved(NODES, vm("db", "n1"), nhc(minimum=0))
    exit_code, found = data(*options, "--cluster", file)
    assert (exit_code, found["question"]) == (code, question)


def test_what_cannot_be_determined_is_exit_2(saved):
    file = saved(NODES, vm("db", "n1"), nhc(), unreadable=["pods"])
    code, found = data("n1", "--cluster", file)
    assert (code, found["survives"]) == (2, None)
    assert found["unseen"]
    assert found["capacity"] == {"memory": None, "cpu": None, "pods": None}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "give NODE..., --zone or --worst"),
        (("n1", "--worst", "1"), "give NODE..., --zone or --worst"),
        (("n4",), "n4"),
        (("--zone", "z"), "no node has the label topology.kubernetes.io/zone=z"),
        (("--worst", "0"), "0 is not in the range"),
        (("n1", "--summary", "-o", "json"), "--summary is for text output only"),
    ],
)
def test_mistakes_are_exit_2(saved, options, says):
    code, _, error = run("outage", *options, "--cluster", saved(NODES))
    assert code == 2
    assert says in error


def test_the_text_names_who_acts_what_to_type_and_each_part_of_the_time(saved):
    volumes = claim("disk")
    own = vm("db", "n1", volumes=[disk("disk")])
    _, out, _ = run(
        "outage", "n1", "--cluster", saved(NODES, volumes, own, nhc("FenceAgentsRemediation"))
    )
    assert "NodeHealthCheck workers (n1) frees the pods by FenceAgentsRemediation" in out
    assert "detected 50-55 s (kube-controller-manager), waited 300 s (the health check)" in out
    assert "detached 360 s (kube-controller-manager), started 10-120 s (assumed)" in out
    cluster = saved(NODES, volumes, own, serverVersion="v1.33.4")
    _, out, _ = run("outage", "n1", "--cluster", cluster)
    assert "confirm that n1 is powered off, then: kubectl taint nodes n1" in joined(out)
    assert "--force" not in out


def test_one_line_for_each_loss(saved):
    file = saved(NODES, FULL, vm("db", "n1", "30Gi"), vm("web", "n2", "1Gi"), nhc(minimum=0))
    code, out, _ = run("outage", "--worst", "1", "--summary", "--cluster", file)
    lines = out.splitlines()
    assert code == 1
    assert lines[0] == "Does the cluster survive the loss of any one node? No: 1 of 3 nodes."
    assert [line.split()[0] for line in lines[1:] if line.startswith("  ")] == ["n1"]


def test_the_losses_stand_in_columns(saved):
    file = saved(
        NODES,
        FULL,
        vm("db", "n1", "30Gi"),
        *(vm(f"web-{each}", "n2", "1Gi") for each in range(10)),
        nhc(pauseRequests=["upgrade"]),
    )
    _, out, _ = run("outage", "--worst", "1", "--summary", "--cluster", file)
    rows = [line for line in out.splitlines() if line.startswith("  n")]
    assert [row.split()[:4] for row in rows] == [["n2", "10", "VMs", "no"], ["n1", "1", "VM", "no"]]
    assert rows[0].index(" no ") == rows[1].index(" no ")


def hostile():
    """A cluster with an attack in each text that an outage shows."""
    bad = node(f"n1{ATTACK}", zone=f"a{ATTACK}")
    check = nhc(name=f"workers{ATTACK}", pauseRequests=[f"upgrade{ATTACK}"])
    objects = [
        vm(f"db{ATTACK}", f"n1{ATTACK}"),
        vm(f"off{ATTACK}", f"n1{ATTACK}", strategy="Manual"),
        vm(f"bound{ATTACK}", f"n1{ATTACK}", nodeSelector={f"key{ATTACK}": f"value{ATTACK}"}),
    ]
    return bad, NODES[1:], check, objects


@pytest.mark.parametrize(
    "options", [("--worst", "1"), ("--worst", "1", "--summary"), ("--zone", f"a{ATTACK}")]
)
@pytest.mark.parametrize("form", ["text", "json", "html"])
def test_nothing_is_printed_raw(saved, options, form):
    if "--summary" in options and form != "text":
        options = options[:2]
    _, out, error = run("outage", *options, "--cluster", saved(*hostile()), "-o", form)
    assert "pwned" in out
    assert_clean(out)
    assert_clean(error)


def test_a_hostile_zone_that_does_not_exist(saved):
    code, _, error = run("outage", "--zone", ATTACK, "--cluster", saved(*hostile()))
    assert code == 2
    assert_clean(error)


def test_commands_in_the_text_are_whole_lines_of_a_shell(saved):
    bad = node("n1;reboot")
    _, out, _ = run(
        "outage", "--worst", "1", "--cluster", saved(bad, NODES[1:], vm("db", "n1;reboot"))
    )
    assert "kubectl taint nodes 'n1;reboot' " in out


def test_several_clusters(saved, tmp_path):
    good = saved(NODES, vm("db", "n1"), nhc(), name="good.json")
    bad = saved(NODES, vm("db", "n1"), name="bad.json")
    away = str(tmp_path / "away.json")
    options = [word for name in (good, bad, away) for word in ("--cluster", name)]
    code, out, _ = run("outage", "--worst", "1", *options)
    assert code == 2
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[1:4]}
    assert rows[good][0] == "yes"
    assert rows[bad][0] == "no"
    code, out, _ = run("outage", "--worst", "1", *options[:4], "-o", "json")
    assert code == 1
    assert [each["survives"] for each in json.loads(out)["clusters"]] == [True, False]


def test_a_page_for_each_owner(saved, tmp_path):
    file = saved(NODES, vm("db", "n1"), nhc())
    folder = tmp_path / "pages"
    code, _, error = run(
        "outage", "n1", "--cluster", file, "-o", f"html={folder}", "--pages-by", "namespace"
    )
    assert code == 0, error
    assert sorted(page.name for page in folder.glob("*.html")) == ["index.html", "owner-shop.html"]
    assert "shop/db" in (folder / "owner-shop.html").read_text()


def test_a_live_cluster(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with FakeApi() as fake:
        for kind in outage.LOOKS_UP:
            fake.install(kind)
        for each in losses.flat((losses.NAMESPACES, losses.KUBEVIRT, NODES, vm("db", "n1"), nhc())):
            fake.put(kinds.of(Object(each)), each)
        options = ("--kubeconfig", fake.kubeconfig(tmp_path))
        code, out, _ = run("outage", "n1", *options)
        assert code == 0, out
        fake.forbidden.add(path_of(kinds.NHC))
        code, out, error = run("outage", "n1", *options)
        assert code == 2
        assert "nodehealthchecks" in out + error


def test_completion():
    assert [line.partition("\t")[0] for line in answer(["outage", "--zo"])][:-1] == [
        "--zone",
        "--zone-key",
    ]
    assert any(line.startswith("outage\t") for line in answer(["out"]))


AGENT = 320
"""Seconds: five tries of at most a minute, and five pauses (the defaults of its definition)."""


def test_a_fence_agent_ends_with_its_tries(saved):
    template = nhc("FenceAgentsRemediation")
    assert template[1]["apiVersion"] == FENCING
    _, found = data("n1", "--cluster", saved(NODES, vm("db", "n1"), template))
    (row,) = found["outages"][0]["vms"]
    assert row["at"]["high"] - row["at"]["low"] >= AGENT


def test_the_page_shows_time_lines_and_memory_before_and_after(saved):
    objects = [vm("db", "n1", "20Gi"), filler("n2", "10Gi"), losses.deployed("web", "n1", "4Gi")]
    _, page, _ = run("outage", "n1", "--cluster", saved(NODES, objects, nhc()), "-o", "html")
    assert "Time lines" in page
    assert "Memory before and after" in page
    assert "10Gi of 64Gi" in page
    assert page.count("n1 before") == 0, "the lost node has no memory"
    used = [int(number) for number in re.findall(r">(\d+)Gi of 64Gi<", page)]
    assert sum(used) == 10 + (10 + 20 + 4), "each pod arrives once"


@pytest.mark.parametrize(("guest", "said"), [("30Gi", True), ("19Gi", False)])
def test_overcommitted_memory_is_said(saved, guest, said):
    own = vm("db", "n1", "20Gi", domain={"memory": {"guest": guest}, "devices": {}})
    _, out, _ = run("outage", "n1", "--cluster", saved(NODES, own, nhc()))
    assert ("the guests have 1.5 times the memory that their pods request" in out) is said
