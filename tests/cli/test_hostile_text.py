"""Manifests and file names with escape sequences, line breaks and endless names,
through every format.
"""

from __future__ import annotations

import json
import logging
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tests.https.reviews import review, vm
from tests.paths import EXAMPLES
from tests.rules.never_break_world import answered
from virt_admit.cli import main
from virt_admit.serving.logs import TextFormatter

ATTACK = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m\n::error title=pwned::line\r\n##vso[task.complete]"
FORMATS = (
    "text",
    "json",
    "sarif",
    "junit",
    "github",
    "gitlab",
    "markdown",
    "html",
    "openreports",
    "policyreport",
)
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
COMMAND = re.compile(r"^\s*(::error title=pwned|##vso)", re.MULTILINE)


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A denied VM with an attack in every text that a report shows,
    in a file whose name is one too.
    """
    monkeypatch.chdir(tmp_path)
    obj = vm(
        f"db{ATTACK}",
        f"shop{ATTACK}",
        {"evictionStrategy": f"x{ATTACK}"},
        runStrategy=f"Allways{ATTACK}",
    )
    name = f"a{ATTACK}.json".replace("/", "")
    Path(name).write_text(json.dumps(obj))
    Path(f"b{ATTACK}.json").write_text("{")
    return name


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main.virt_admit, arguments)


def assert_clean(text: str) -> None:
    assert not RAW.search(text), ascii(text)
    assert not COMMAND.search(text), ascii(text)


@pytest.mark.parametrize("form", FORMATS)
def test_check_prints_nothing_raw(manifest: str, form: str) -> None:
    done = run("check", ".", "-o", form)
    # it is shown
    assert "::line" in done.stdout or "%3A%3Aline" in done.stdout or "\\:\\:line" in done.stdout
    assert_clean(done.stdout)
    assert_clean(done.stderr)
    if form == "junit":
        ET.fromstring(done.stdout)
    if form in ("json", "sarif", "gitlab"):
        json.loads(done.stdout)


@pytest.mark.parametrize("form", FORMATS)
def test_endless_names_in_every_format(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    obj = vm(
        "x" * 10_000, "x" * 10_000, {"evictionStrategy": "x" * 10_000}, runStrategy="x" * 10_000
    )
    Path("vm.json").write_text(json.dumps(obj))
    done = run("check", "vm.json", "-o", form)
    assert done.exception is None
    assert "x" * 10 in done.stdout
    assert_clean(done.stdout)
    if form == "junit":
        ET.fromstring(done.stdout)
    if form in ("json", "sarif", "gitlab", "openreports", "policyreport"):
        json.loads(done.stdout)
    if form == "markdown":
        assert len(done.stdout) < 65_536
    if form in ("text", "github"):
        assert max(map(len, done.stdout.splitlines())) < 5_000


@pytest.mark.parametrize("form", FORMATS)
def test_markup_is_text_in_every_format(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    attack = "<script>alert(1)</script><img src=x onerror=alert(2)>]]>"
    Path("vm.json").write_text(
        json.dumps(vm(attack, attack, {"evictionStrategy": attack}, running=True))
    )
    done = run("check", "vm.json", "-o", form)
    assert "alert" in done.stdout
    if form in ("markdown", "html", "junit"):
        assert "<script>alert" not in done.stdout.replace("\\<", "")
        assert "<img" not in done.stdout.replace("\\<", "")
    if form == "junit":
        ET.fromstring(done.stdout)


@pytest.mark.parametrize("flags", [("-v",), ("--fix",)])
def test_notes_on_stderr(manifest: str, flags: tuple[str, ...]) -> None:
    assert_clean(run("check", manifest, *flags).stderr)


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    assert_clean(run("check", str(tmp_path / f"none{ATTACK}")).stderr)


def test_explain(tmp_path: Path) -> None:
    check = {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineHealthCheck",
        "metadata": {"name": f"a{ATTACK}", "namespace": "openshift-machine-api"},
        "spec": {
            "maxUnhealthy": f"40%{ATTACK}",
            "selector": {},
            "unhealthyConditions": [
                {"type": f"Ready{ATTACK}", "status": "False", "timeout": "300s"}
            ],
        },
    }
    file = tmp_path / "mhc.json"
    file.write_text(json.dumps(check))
    for form in ("text", "json"):
        done = run("explain", str(file), "-o", form)
        assert "Ready" in done.stdout, done.output
        assert_clean(done.stdout)


def hostile_cluster(tmp_path: Path) -> str:
    """A snapshot whose names are attacks: of a node, of a VM that blocks its drain,
    and of one that migrates.
    """
    room = {"cpu": "64", "memory": "256Gi", "pods": "100"} | {
        f"devices.kubevirt.io/{device}": "1k"
        for device in ("kvm", "tun", "vhost-net", "vhost-vsock")
    }
    ready = {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    label = {"kubevirt.io/schedulable": "true"}
    nodes: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": label},
            "status": ready,
        }
        for name in (f"a{ATTACK}", "b")
    ]
    vmis = [
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": f"{name}{ATTACK}", "namespace": f"shop{ATTACK}"},
            "spec": {"evictionStrategy": "LiveMigrate", "domain": {"devices": {}}},
            "status": {
                "phase": "Running",
                "nodeName": f"a{ATTACK}",
                "conditions": [
                    {"type": "LiveMigratable", "status": migratable, "reason": f"x{ATTACK}"}
                ],
            },
        }
        for name, migratable in (("db", "False"), ("web", "True"))
    ]
    head = {"apiVersion": "virt-admit.io/v1alpha1", "kind": "Snapshot", "complete": ["*"]}
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({**head, "items": [*nodes, *vmis]}))
    return str(file)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "command",
    [
        ("drain", "--all"),
        ("drain", "--all", "--summary"),
        ("drain", f"a{ATTACK}"),
        ("upgrade",),
        ("explain", f"vm/db{ATTACK.replace('/', '')}"),
        ("explain", f"node/a{ATTACK}"),
    ],
)
def test_names_of_a_snapshot(tmp_path: Path, command: tuple[str, ...], form: str) -> None:
    if "--summary" in command and form != "text":
        return
    done = run(*command, "--cluster", hostile_cluster(tmp_path), "-o", form)
    assert done.exit_code == 0  # CliRunner: the code that a verb returns
    assert "shop" in done.stdout, done.output
    assert_clean(done.stdout)


@pytest.mark.parametrize(
    "command",
    [
        ("drain", "nope"),
        ("explain", f"mhc/{ATTACK}"),
        ("explain", f"nhc/a{ATTACK}"),
        ("explain", f"vm/x{ATTACK}"),
        ("explain", f"node/x{ATTACK}"),
    ],
)
def test_errors_that_quote_names(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = run(*command, "--cluster", hostile_cluster(tmp_path))
    assert done.exit_code != 0, done.output
    assert done.stderr.startswith("Error: ")
    assert_clean(done.stderr)


def saved(folder: Path, **more: Any) -> str:
    file = folder / "snapshot.json"
    file.write_text(
        json.dumps({"apiVersion": "virt-admit.io/v1alpha1", "kind": "Snapshot", **more})
    )
    return str(file)


def states(folder: Path) -> str:
    """Return a snapshot with two states of one object."""
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": ATTACK},
            "spec": {"nodeName": name},
        }
        for name in "ab"
    ]
    return saved(folder, items=pods)


def test_what_is_wrong_with_a_snapshot(tmp_path: Path) -> None:
    for verb in (
        ("drain", "--all"),
        ("scan",),
        ("upgrade",),
        ("plan",),
        ("outage", "--worst", "1"),
    ):
        done = run(*verb, "--cluster", states(tmp_path))
        assert done.exit_code != 0
        assert "has different states of Pod " in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert_clean(done.stderr)


@pytest.mark.parametrize(
    "policy",
    [
        {ATTACK: 1},
        {"extends": ATTACK},
        {"rules": {ATTACK: {"action": "deny"}, f"x{ATTACK}": {}}},
        {
            "exempt": {
                "users": [{"match": ATTACK, "rules": [ATTACK], "reason": ATTACK, "until": ATTACK}]
            }
        },
    ],
)
def test_what_is_wrong_with_a_policy(tmp_path: Path, policy: dict[str, Any]) -> None:
    file = tmp_path / "policy.json"
    file.write_text(
        json.dumps({"apiVersion": "virt-admit.io/v1alpha1", "kind": "Policy", **policy})
    )
    for verb in (("check", str(EXAMPLES / "03-both-keys.yaml")), ("policy", "show", "shop")):
        done = run(*verb, "--policy", str(file))
        assert done.exit_code != 0
        assert "policy.json:1: " in done.stderr, done.stderr
        assert_clean(done.stderr)


def test_the_message_of_any_other_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def fail(**_: Any) -> None:
        raise click.ClickException(f"no node {ATTACK}")

    monkeypatch.setattr(main, "virt_admit", fail)
    with pytest.raises(SystemExit):
        main.main()
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert_clean(error)


def test_kubectl_messages() -> None:
    obj = vm(f"db{ATTACK}", "shop", running=True)
    obj["spec"]["runStrategy"] = f"Always{ATTACK}"
    status = answered(review(obj), "validate")["status"]
    for text in (
        status["message"],
        *status["details"]["causes"][0].values(),
        *map(str, status["details"].values()),
    ):
        assert not RAW.search(text), ascii(text)
        assert "\n" not in text


def test_kubectl_messages_have_no_line_of_the_attacker() -> None:
    obj = vm(f"db{ATTACK}\n* [virt-admit/forged]", "shop", runStrategy="Allways")
    obj["spec"]["template"]["spec"]["evictionStrategy"] = "livemigrate"
    status = answered(review(obj), "validate")["status"]
    head, *lines = status["message"].split("\n")
    assert head.startswith("VirtualMachine shop/db")
    assert len(lines) == len(status["details"]["causes"]) > 1
    for text in (head, *lines):
        assert not RAW.search(text), ascii(text)
    assert all(re.match(r"\* spec\.", text) for text in lines)


def test_kubectl_messages_of_endless_names() -> None:
    obj = vm("n" * 10_000, "shop", running=True) | {"kind": "VirtualMachine"}
    obj["spec"]["runStrategy"] = "x" * 10_000
    status = answered(review(obj), "validate")["status"]
    assert len(status["message"]) <= 1500
    assert "[virt-admit/" in status["message"]
    assert len(status["details"]["name"]) <= 512
    for cause in status["details"]["causes"]:
        assert len(cause["message"]) <= 1024
        assert cause["message"].endswith("]")


def test_logs_for_people() -> None:
    record = logging.makeLogRecord(
        {"msg": f"reviewed{ATTACK}", "user": ATTACK, "levelname": "INFO"}
    )
    assert_clean(TextFormatter().format(record))
    assert "\n" not in TextFormatter().format(record)
