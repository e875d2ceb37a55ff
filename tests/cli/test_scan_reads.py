"""What ``virt-admit scan`` asks a live cluster for besides the kinds of rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.fake_api import FakeApi
from virt_admit.cli import main
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.events import EVENT
from virt_admit.rules import load_rules

RULE = "vm-running-and-run-strategy"


@pytest.fixture
def api(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with FakeApi() as fake:
        for kind in {
            EVENT,
            *load_rules().kinds,
            *(kind for rule in load_rules() for kind in rule.reads),
        }:
            fake.install(kind)
        yield fake


@pytest.fixture
def scan(api, tmp_path):
    """Run the verb, and return what it prints on stderr."""

    def run(*args):
        command = ["scan", "--kubeconfig", api.kubeconfig(tmp_path), *args]
        return CliRunner().invoke(main.virt_admit, command, standalone_mode=False).stderr

    return run


def test_a_scan_of_some_rules_reads_events_but_no_further_kinds(scan, api):
    pool = kinds.guess("storage.example.com/v1", "Pool")
    api.install(pool)
    scan("--select", RULE)
    assert (api.asked(pool), api.asked(EVENT) > 0) == (0, True)
    scan()
    assert api.asked(pool) == 1


def test_what_is_not_read_names_its_cluster(scan, api):
    api.forbidden.add("/api/v1/events")
    err = scan("--select", RULE, "--context", "fake")
    assert "cluster fake: not read: events, which this account may not list. " in err


def test_a_credential_plugin_runs_once(api, tmp_path):
    plugin, runs = tmp_path / "plugin", tmp_path / "runs"
    status = {"token": api.token}
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    }
    plugin.write_text(f"#!/bin/sh\necho run >> {runs}\necho '{json.dumps(answer)}'\n")
    plugin.chmod(0o755)
    config = json.loads(Path(api.kubeconfig(tmp_path)).read_text())
    version = {"apiVersion": answer["apiVersion"], "interactiveMode": "Never"}
    config["users"][0]["user"] = {"exec": {"command": str(plugin), **version}}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    CliRunner().invoke(
        main.virt_admit,
        ["scan", "--kubeconfig", str(tmp_path / "kubeconfig")],
        standalone_mode=False,
    )
    assert api.asked(EVENT) > 0
    assert runs.read_text() == "run\n"
