"""The programs of prefork behave as the real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests import prefork
from tests.apiserver.webhook import VIRT_ADMIT
from tests.paths import EXAMPLES

FAULTY = EXAMPLES / "03-both-keys.yaml"


def run(program: Path, *words: str | Path, folder: Path, **more: str) -> tuple[int, str, str]:
    environment = {"PATH": os.defpath, "HOME": str(folder), **more}
    done = subprocess.run(
        [program, *words],
        cwd=folder,
        env=environment,
        input="",
        text=True,
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words", [["--version"], ["check", FAULTY], ["check", "missing.yaml"], ["drain", "--all"]]
)
def test_output_and_exit_code_are_those_of_the_program(
    tmp_path: Path, words: list[str | Path]
) -> None:
    (tmp_path / "broken").write_text("a: [")
    for variables in ({}, {"KUBECONFIG": str(tmp_path / "broken")}):
        answers = [
            run(program, *words, folder=tmp_path, **variables)
            for program in (prefork.virt_admit(), VIRT_ADMIT)
        ]
        assert answers[0] == answers[1]


def test_a_signal_ends_the_run_and_the_program() -> None:
    with subprocess.Popen([prefork.virt_admit(), "check", "-"], stdin=subprocess.PIPE) as process:
        time.sleep(1)
        process.terminate()
        assert process.wait(30) == -signal.SIGTERM


def test_a_run_ends_with_its_program() -> None:
    read, write = os.pipe()
    command = [prefork.virt_admit(), "check", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=write) as process:
        os.close(write)
        time.sleep(1)
        process.kill()
        assert os.read(read, 1) == b""  # no process has the other end any more
    os.close(read)
