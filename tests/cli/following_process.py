"""A command that follows a live cluster, as a process whose output a test reads while it runs."""

import os
import subprocess
import threading
from pathlib import Path

from tests.fake_api import FakeApi
from tests.prefork import virt_admit
from tests.waiting import eventually


class Following:
    """A command with ``--follow`` as a process of its own, with its output in a pipe.

    Who measures the process needs the real program: in the place of prefork's a client waits for
    the process.
    """

    def __init__(
        self, api: FakeApi, folder: Path, *words: str, program: Path | None = None
    ) -> None:
        command = [program or virt_admit(), *words]
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith("KUBERNETES_")
        }
        self.process = subprocess.Popen(
            [*command, "--kubeconfig", api.kubeconfig(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=inherited,
        )
        self.lines, self.errors = [], []
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream, lines):
        with stream:
            lines.extend(line.rstrip("\n") for line in stream)

    @property
    def text(self):
        return "\n".join(self.lines)

    def wait_for(self, *words):
        """Wait for a line that has all these words."""
        return eventually(
            lambda: next(
                (line for line in self.lines if all(word in line for word in words)), None
            ),
            30,
        )

    def ended(self) -> int:
        """Wait for the end. Return the exit code."""
        code = self.process.wait(30)
        for reader in self._readers:
            reader.join(5)
        return code
