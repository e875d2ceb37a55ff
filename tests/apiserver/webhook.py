"""The webhook as a process of its own, as users run it."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.apiserver.control_plane import ControlPlane, Server, StartError, free_port
from tests.apiserver.kubectl_requests import KubectlRequests
from tests.prefork import virt_admit

VIRT_ADMIT = Path(sys.executable).with_name("virt-admit")
START_SECONDS = 60.0


class Webhook:
    """``virt-admit serve`` on loopback with its own CA and certificate in ``folder``,
    and whatever flags are given.

    A test that does not look at its processes takes the ``program`` of tests/prefork.py, which
    starts with a tenth of the processor time.
    """

    def __init__(
        self,
        folder: Path,
        *flags: str | Path,
        environment: Mapping[str, str] | None = None,
        program: Path = VIRT_ADMIT,
    ) -> None:
        self.folder = folder
        self.port, self.ops_port = free_port(), free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.ca = folder / "certs" / "ca.crt"
        self.log = folder / "webhook.log"
        self.command: Sequence[str | Path] = [
            program, "serve", "--bind", f"127.0.0.1:{self.port}", "--ops-bind",
            f"127.0.0.1:{self.ops_port}",
            *(("--certs", folder / "certs") if not any(str(flag).startswith("--certs") for flag in flags) else ()),  # noqa: E501
            "--stop-delay", "0", *flags,
        ]  # fmt: skip
        if environment:
            self.command = [
                "/usr/bin/env",
                *(f"{key}={value}" for key, value in environment.items()),
                *self.command,
            ]
        self._server: Server | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        return self._server is not None and self._server.running

    @property
    def pid(self) -> int:
        """The process that listens (gunicorn's master)."""
        assert self._server is not None
        return self._server.pid

    @property
    def workers(self) -> list[Path]:
        """The folder in /proc of each worker process."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [Path("/proc", child) for child in children]

    def start(self) -> None:
        """Start and wait until it is ready. Raises StartError with the end of its log."""
        self._server = Server(self.command, self.log)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._server.running:
            if self.ops("/readyz")[0] == 200:
                return
            time.sleep(0.05)
        text = self.log.read_text()[-3000:]
        self.stop()
        raise StartError(f"the webhook did not become ready:\n{text}")

    def terminate(self) -> None:
        """Ask it to end, as Kubernetes does."""
        assert self._server is not None
        self._server.terminate()

    def wait(self) -> int:
        """Its exit code when it has ended."""
        assert self._server is not None
        code = self._server.wait()
        self.stop()
        return code

    def stop(self) -> None:
        """Kill it, and wait until it listens no longer; a second call does nothing."""
        if self._server is not None:
            self._server.kill()
            # what tests/prefork.py runs ends a moment after the process that we started
            deadline = time.monotonic() + START_SECONDS
            while _listens(self.ops_port) and time.monotonic() < deadline:
                time.sleep(0.01)

    def ops(self, path: str) -> tuple[int, str]:
        """Status and text of the ops listener; 0 if it does not answer, or not completely."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ops_port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):  # it may end while it answers
            return 0, ""
        finally:
            connection.close()

    def tls(self) -> ssl.SSLContext:
        """A client's context that trusts the webhook's CA."""
        return ssl.create_default_context(cafile=self.ca)

    def connect(self) -> http.client.HTTPSConnection:
        """A new verified connection to the admission listener."""
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=self.tls(), timeout=30)

    def post(
        self, path: str, body: bytes | dict[str, Any], content_type: str = "application/json"
    ) -> tuple[int, dict[str, Any]]:
        """One request on a connection of its own: status, and the answer if it is JSON,
        else an empty one.
        """
        connection = self.connect()
        try:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request("POST", path, data, {"Content-Type": content_type})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if answer.status == 200 else {}
        finally:
            connection.close()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def register(plane: ControlPlane, webhook: Webhook, failure_policy: str = "Ignore") -> None:
    """Apply the webhook configurations that ``virt-admit manifests`` prints,
    and wait until they are in force.
    """
    import subprocess

    printed = subprocess.run(
        [
            virt_admit(),
            "manifests",
            "--part",
            "webhooks",
            "--url",
            webhook.url,
            "--ca-file",
            webhook.ca,
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.replace("failurePolicy: Ignore", f"failurePolicy: {failure_policy}")
    plane.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", input=printed, check=True
    )
    probe = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {
            "running": True,
            "runStrategy": "Always",
            "template": {"spec": {"domain": {"devices": {}}}},
        },
    }
    deadline = time.monotonic() + START_SECONDS
    requests = KubectlRequests(plane)
    # an API server learns of each configuration by a watch of its own
    while time.monotonic() < deadline:
        _, said = requests.send("create", probe, dryRun="All")
        validates = "virt-admit/vm-running-and-run-strategy" in said
        if validates and 'endpoint="mutate"' in webhook.ops("/metrics")[1]:
            return
        time.sleep(0.05)
    raise StartError(f"the API server does not ask the webhook: {said}")
