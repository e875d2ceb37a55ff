"""``virt-admit watch`` as a process of its own, as a Deployment runs it."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from http.client import HTTPResponse
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.apiserver.control_plane import free_port
from tests.prefork import virt_admit
from tests.reports.html.structure import Structure
from tests.waiting import eventually


class Watching:
    """The process, its metrics and its page.

    At the end of the block it stops on SIGTERM with exit code 0.

    Who measures the process needs the real program: in the place of prefork's a client waits for
    the process.
    """

    def __init__(self, kubeconfig: str, *flags: str, program: Path | None = None) -> None:
        self.port = free_port()
        options = ("--ops-bind", f"127.0.0.1:{self.port}", "--kubeconfig", kubeconfig, *flags)
        self.command = (program or virt_admit(), "watch", *options)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        inherited = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("KUBERNETES_", "VIRT_ADMIT_"))
        }
        self._process = subprocess.Popen(self.command, env=inherited)
        try:
            eventually(self.answers, 180)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            code = self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait()
        assert code == 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def cpu_seconds(self) -> float:
        """Return the CPU time that the process has used."""
        return self.samples()["process_cpu_seconds_total"]

    def open(self, path: str, method: str = "GET", **headers: str) -> HTTPResponse:
        """Return the response to one request.

        Raises HTTPError for a status that is not a success.
        """
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", method=method, headers=headers
        )
        response: HTTPResponse = urllib.request.urlopen(request, timeout=10)
        return response

    def get(self, path: str) -> str:
        with self.open(path) as response:
            return response.read().decode()

    def answers(self) -> bool:
        try:
            return self.get("/healthz") == "ok\n"
        except OSError:
            return False

    def is_ready(self) -> bool:
        try:
            return self.get("/readyz") == "ok\n"
        except OSError:
            return False

    def shows(self, *texts: str) -> bool:
        """Return whether the page has all these texts. Its structure is always sound."""
        page = Structure.of(self.get("/"))
        assert page.is_complete, page.errors
        return all(text in page.text for text in texts)

    def samples(self) -> dict[str, float]:
        lines = (
            line.rpartition(" ")
            for line in self.get("/metrics").splitlines()
            if not line.startswith("#")
        )
        return {name: float(value) for name, _, value in lines}

    def sample(self, start: str) -> float | None:
        """Return the first sample with these first characters."""
        return next(
            (value for name, value in self.samples().items() if name.startswith(start)), None
        )

    def wait_for(self, start: str, value: float | None, seconds: float = 60) -> float:
        """Return the seconds until the first sample with these first characters has the value."""
        began = time.monotonic()
        while (seen := self.sample(start)) != value:
            assert time.monotonic() - began < seconds, (start, seen, value)
            time.sleep(0.05)
        return time.monotonic() - began
