"""What a scan tells Prometheus, read back with Prometheus' own parser."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from tests.https.reviews import vm
from virt_admit.cli.commands.scan import command

KUBEVIRT = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "KubeVirt",
    "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
    "spec": {},
}
NODES = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubevirt.io/schedulable": "true"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    for name in ("free", "stuck")
]
STUCK = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "db", "namespace": "shop", "labels": {"kubevirt.io/nodeName": "stuck"}},
    "spec": {"evictionStrategy": "LiveMigrate", "domain": {"devices": {}}},
    "status": {
        "nodeName": "stuck",
        "phase": "Running",
        "conditions": [
            {"type": "LiveMigratable", "status": "False", "reason": "HostDeviceNotLiveMigratable"}
        ],
    },
}


@pytest.fixture
def snapshot(tmp_path):
    items = [
        KUBEVIRT,
        *NODES,
        STUCK,
        vm("a", running=True),
        vm("b", running=True),
        vm("c", "dev", running=True),
    ]
    file = tmp_path / "cluster.json"
    file.write_text(
        json.dumps(
            {
                "apiVersion": "virt-admit.io/v1alpha1",
                "kind": "Snapshot",
                "complete": ["*"],
                "items": items,
            }
        )
    )
    return file


def scan(snapshot, *flags):
    return CliRunner().invoke(
        command,
        ["--cluster", str(snapshot), "--fail-on", "never", *map(str, flags)],
        standalone_mode=False,
    )


def samples(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_findings_blockers_and_times(snapshot, tmp_path):
    before = time.time()
    run = scan(snapshot, "--metrics", tmp_path / "scan.prom")
    assert (run.exception, run.return_value) == (None, 0)
    found = samples((tmp_path / "scan.prom").read_text())
    rule = ("rule", "vm-running-and-run-strategy")
    for namespace, number in (("shop", 2), ("dev", 1)):
        assert (
            found["virt_admit_scan_findings", ("action", "deny"), ("namespace", namespace), rule]
            == number
        )
    assert found["virt_admit_drain_blockers", ("node", "stuck")] == 1
    assert found["virt_admit_drain_blockers", ("node", "free")] == 0
    assert before <= found["virt_admit_scan_last_success_timestamp_seconds",] <= time.time()
    assert 0 < found["virt_admit_scan_duration_seconds",] < 60


def test_findings_that_the_policy_switches_off_do_not_count(snapshot, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text('rules: {"*": {action: "off"}}\n')
    scan(snapshot, "--policy", policy, "--metrics", tmp_path / "scan.prom")
    found = samples((tmp_path / "scan.prom").read_text())
    assert not [name for name, *_ in found if name == "virt_admit_scan_findings"]
    assert found["virt_admit_drain_blockers", ("node", "stuck")] == 1


@pytest.mark.parametrize("flags", [("-n", "shop"), ("-l", "app=web")])
def test_metrics_of_a_part_of_the_cluster_are_rejected(snapshot, tmp_path, flags):
    run = scan(snapshot, *flags, "--metrics", tmp_path / "scan.prom")
    assert "--metrics needs the whole cluster" in str(run.exception)


def test_a_scan_that_cannot_be_trusted_tells_nothing(snapshot, tmp_path):
    data = json.loads(snapshot.read_text())
    snapshot.write_text(json.dumps(data | {"unreadable": ["virtualmachines.kubevirt.io"]}))
    run = scan(snapshot, "--metrics", tmp_path / "scan.prom")
    assert run.return_value == 2
    assert not (tmp_path / "scan.prom").exists()


class Gateway:
    """A Pushgateway that remembers what it was given."""

    def __init__(self, status: int) -> None:
        self.given: list[tuple[str, str, str]] = []
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                gateway.given.append((self.command, self.path, body))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> Gateway:
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_a_pushgateway_gets_the_same_in_place_of_the_last_scan(snapshot):
    with Gateway(200) as gateway:
        run = scan(snapshot, "--metrics", gateway.url)
    assert (run.exception, run.return_value) == (None, 0)
    ((method, path, body),) = gateway.given
    assert (method, path) == ("PUT", "/metrics/job/virt-admit-scan")
    assert samples(body)["virt_admit_drain_blockers", ("node", "stuck")] == 1


@pytest.mark.parametrize("where", ["refusing gateway", "no gateway", "no folder"])
def test_a_failed_write_is_an_error(snapshot, tmp_path, where):
    with Gateway(500) as gateway:
        place = {
            "refusing gateway": gateway.url,
            "no gateway": "http://127.0.0.1:1",
            "no folder": tmp_path / "a" / "b",
        }
        run = scan(snapshot, "--metrics", place[where])
    assert f"--metrics {place[where]}: " in str(run.exception)
