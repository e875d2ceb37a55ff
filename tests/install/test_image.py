"""The image: its build steps work on a clean machine, and its Dockerfile keeps to good practice.

There need not be a container engine: the steps of the build stage run in a temporary folder.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import urllib.request
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from tests import prefork
from tests.apiserver.control_plane import free_port
from tests.install.every_command import LIVE, RUNS, SERVERS, inputs
from tests.install.wheels import wheels
from tests.paths import ROOT
from tests.waiting import eventually
from virt_admit import __version__
from virt_admit.cli import main


class Instruction(NamedTuple):
    """``RUN`` and what it runs, and so on."""

    name: str
    value: str


def stages() -> list[list[Instruction]]:
    """The Dockerfile's instructions, stage by stage;
    what stands before the first stage comes first.
    """
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace(
        "\\\n", ""
    )
    found: list[list[Instruction]] = [[]]
    for line in filter(None, text.splitlines()):
        name, _, value = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append(Instruction(name, value.strip()))
    return found


BEFORE, BUILD, FINAL = stages()


def values(stage: list[Instruction], name: str) -> list[str]:
    return [each.value for each in stage if each.name == name]


class TestGoodPractice:
    def test_both_stages_have_the_base_that_a_release_pins(self):
        (base,) = values(BEFORE, "ARG")
        assert re.fullmatch(
            r"PYTHON=docker\.io/library/python:3\.13-slim(@sha256:[0-9a-f]{64})?", base
        )
        assert values(BUILD, "FROM") == ["${PYTHON} AS build"]
        assert values(FINAL, "FROM") == ["${PYTHON}"]

    def test_the_final_stage_runs_nothing_and_takes_only_what_was_installed(self):
        assert values(FINAL, "RUN") == []
        assert values(FINAL, "COPY") == ["--from=build /opt/virt-admit /opt/virt-admit"]

    def test_nothing_is_added_from_elsewhere(self):
        assert not values(BUILD, "ADD") + values(FINAL, "ADD")
        assert not [
            each
            for each in values(BUILD, "RUN")
            if re.search(r"\b(curl|wget|git|apt-get|sudo)\b", each)
        ]

    def test_what_is_installed_is_locked_by_hash(self):
        for run in values(BUILD, "RUN"):
            for command in run.split("&&"):
                if re.search(r"\bpip .*\binstall\b", command):
                    assert "--require-hashes -r" in command or "--no-index" in command, command
                if "pip wheel" in command:
                    # isolation would fetch the newest build tools
                    assert "--no-build-isolation" in command

    def test_the_user_is_a_number_and_not_root(self):
        (user,) = values(FINAL, "USER")
        # Kubernetes' runAsNonRoot cannot tell from a name
        assert re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", user)

    def test_the_version_label_needs_no_build_argument(self):
        assert f"VERSION={__version__}" in values(FINAL, "ARG")

    def test_it_is_labelled(self):
        labels = set(
            re.findall(r"org\.opencontainers\.image\.(\w+)=", " ".join(values(FINAL, "LABEL")))
        )
        assert labels >= {"title", "description", "licenses", "version", "revision"}

    def test_signals_reach_the_webhook(self):
        assert values(FINAL, "ENTRYPOINT") == ['["virt-admit"]']  # no shell between
        assert values(FINAL, "HEALTHCHECK") == ["NONE"]

    def test_no_secret_comes_with_it(self):
        assert not [
            each for each in [*BUILD, *FINAL] if re.search(r"(?i)token|password|secret", each.value)
        ]

    def test_the_context_has_what_is_copied_and_little_else(self):
        lines = (ROOT / ".dockerignore").read_text().splitlines()
        rules = [line for line in lines if line and not line.startswith("#")]
        assert rules[0] == "*"
        kept = {rule[1:] for rule in rules if rule.startswith("!")}
        assert kept == set(copied())


def copied() -> list[str]:
    """What is copied out of the repository."""
    return [part for value in values(BUILD, "COPY") for part in value.split()[:-1]]


def is_ready(port: int) -> bool:
    """Return whether the server on this port of loopback says that it is ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the build stage has run in as if it were the root of a clean machine."""
    machine = tmp_path_factory.mktemp("machine")
    environment = {
        "PATH": f"{machine}/bin:/usr/bin:/bin",
        "HOME": str(machine),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels(sys.executable)),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    (machine / "bin").mkdir()
    (machine / "bin" / "python").symlink_to(sys.executable)
    here = machine
    for instruction in BUILD:
        match instruction.name:
            case "WORKDIR":
                here = machine / instruction.value.lstrip("/")
                here.mkdir(parents=True)
            case "COPY":
                *sources, target = instruction.value.split()
                for source in sources:
                    if (ROOT / source).is_dir():
                        shutil.copytree(
                            ROOT / source,
                            here / target,
                            ignore=shutil.ignore_patterns("__pycache__"),
                        )
                    else:
                        shutil.copy(ROOT / source, here / target)
            case "RUN":
                command = instruction.value.replace("/opt/", f"{machine}/opt/")
                done = subprocess.run(
                    ["/bin/sh", "-ec", command],
                    cwd=here,
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            case "FROM":
                pass
            case other:
                raise AssertionError(f"cannot run {other}")
    return machine


@pytest.mark.slow
class TestBuild:
    def run(
        self, machine: Path, *arguments: str, program: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        process = self.start(machine, *arguments, program=program)
        with process:
            output, errors = process.communicate(timeout=240)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def start(
        self, machine: Path, *arguments: str, program: Path | None = None
    ) -> subprocess.Popen[str]:
        """Start the installed program as the image does: no home, nowhere to write,
        no other path.
        """
        (variables,) = values(FINAL, "ENV")
        environment = dict(each.split("=", 1) for each in variables.split())
        environment["PATH"] = f"{machine}/opt/virt-admit/bin"
        installed = machine / "opt" / "virt-admit" / "bin" / "virt-admit"
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [program or installed, *arguments],
            cwd="/",
            env=environment,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )

    def test_the_program_is_there_and_tells_its_version(self, machine):
        done = self.run(machine, "--version")
        assert (done.stdout, done.stderr) == (f"virt-admit {__version__}\n", "")

    def test_it_judges(self, machine):
        done = self.run(machine, "check", str(ROOT / "examples" / "03-both-keys.yaml"))
        assert done.returncode == 1
        assert "[vm-running-and-run-strategy]" in done.stdout

    def test_the_server_and_what_it_needs_are_there(self, machine):
        done = self.run(machine, "serve", "--certs-external", "/none", "--policy", "/none")
        assert (done.returncode, done.stdout) == (2, "")
        assert "--policy /none: no such file" in done.stderr

    def test_the_image_keeps_nothing_of_what_the_build_removes(self, machine):
        (kubernetes,) = machine.glob("opt/virt-admit/lib/*/site-packages/kubernetes")
        assert (kubernetes / "client" / "configuration.py").is_file()
        assert not (kubernetes / "aio").exists()
        assert not (kubernetes / "client" / "api").exists()
        assert {path.name for path in (kubernetes / "client" / "models").iterdir()} == {
            "__init__.py",
            "__pycache__",
        }
        assert not list(kubernetes.parent.glob("aiohttp*"))

    def test_every_command_has_a_run(self):
        commands = {run.arguments.split()[0] for run in RUNS}
        assert commands.isdisjoint(SERVERS)
        assert commands | set(SERVERS) == set(
            main.virt_admit.list_commands(click.Context(main.virt_admit))
        )

    def test_every_command_runs_without_what_the_build_removes(self, machine, tmp_path):
        """With the modules of the image, imported once."""
        program = prefork.folder(machine / "opt" / "virt-admit" / "bin" / "python") / "virt-admit"
        with inputs(tmp_path):
            for run in RUNS:
                done = self.run(machine, *run.words(str(tmp_path)), program=program)
                output = done.stdout + done.stderr
                assert (done.returncode, run.says in output) == (run.exit_code, True), (
                    f"{run.arguments}\n{output}"
                )

    @pytest.mark.parametrize(
        "command",
        [
            f"serve --bind 127.0.0.1:0 --certs {{folder}}/certs --policy default {LIVE}",
            f"watch --policy default {LIVE}",
        ],
    )
    def test_servers_run_without_what_the_build_removes(self, machine, tmp_path, command):
        port = free_port()
        with inputs(tmp_path):
            words = command.format(folder=tmp_path).split()
            process = self.start(machine, *words, "--ops-bind", f"127.0.0.1:{port}")
            try:
                eventually(lambda: process.poll() is not None or is_ready(port))
            finally:
                process.terminate()
                _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors

    def test_it_takes_along_neither_build_tools_nor_a_way_to_install(self, machine):
        names = {
            path.name.partition("-")[0]
            for path in machine.glob("opt/virt-admit/lib/*/site-packages/*.dist-info")
        }
        assert {"virt_admit", "flask", "gunicorn"} <= names
        assert not {
            name
            for name in names
            if fnmatchcase(name, "pip*") or name in ("hatchling", "pytest", "mypy")
        }

    def test_running_it_wrote_nothing(self, machine):
        def files() -> set[Path]:
            return set((machine / "opt" / "virt-admit").rglob("*"))

        before = files()
        self.run(machine, "rules")
        assert files() == before
