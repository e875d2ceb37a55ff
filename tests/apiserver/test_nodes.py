"""The cluster of the walk: what a container's process does reaches the status of its pod."""

from __future__ import annotations

import http.server
import threading
from pathlib import Path

from tests.apiserver.nodes import Container


class _Ready(http.server.BaseHTTPRequestHandler):
    code = 200

    def do_GET(self) -> None:
        self.send_response(self.code)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_container_is_ready_when_its_probe_succeeds(tmp_path: Path) -> None:
    container = Container("virt-admit", "a", tmp_path / "log", True)
    assert not container.probe()  # nothing listens
    with http.server.HTTPServer(("127.0.0.1", container.ops_port), _Ready) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert container.probe()
        _Ready.code = 503
        assert not container.probe()
        server.shutdown()


def test_a_container_runs_the_arguments_and_variables_of_its_pod(tmp_path: Path) -> None:
    container = Container("virt-admit", "a", tmp_path / "log", False)
    variables = [{"name": "VIRT_ADMIT_POLICY", "value": "/no/such/policy"}]
    container.start({"args": ["scan"], "env": variables}, tmp_path / "kubeconfig", tmp_path)
    assert container.process is not None
    assert container.process.wait(60) == 2
    assert "/no/such/policy" in container.log.read_text()
