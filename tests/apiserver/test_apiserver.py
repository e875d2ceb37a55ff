"""Tests of the toolchain without an API server: where binaries come from,
and which processes end together.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apiserver import binaries as toolchain
from tests.apiserver.binaries import NAMES, Unavailable, binaries
from tests.apiserver.control_plane import Server, free_port
from tests.paths import ROOT

GO = """#!/bin/sh
test "$1" = env && { echo "$FAKE_GOVERSION"; exit; }
test "$1" = list && { echo "{\\"GoMod\\": \\"$FAKE_LOG.mod\\"}"; exit; }
cp go.mod "$FAKE_LOG.built"
echo build >> "$FAKE_LOG"
test -z "$FAKE_FAILURE" || { echo "$FAKE_FAILURE" >&2; exit 1; }
for argument; do case $argument in */) folder=$argument; esac; done
case $argument in
  tool) touch "$folder/server" "$folder/kube-apiserver" "$folder/kubectl" ;;
  */kube-scheduler) touch "$folder/kube-scheduler" ;;
  ./oracle) touch "$folder/oracle" ;;
esac
"""


@pytest.fixture
def go_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the build log of a machine with an empty cache and a Go command that builds at
    once.
    """
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "go").write_text(GO)
    (tools / "go").chmod(0o755)
    log = tmp_path / "builds"
    log.touch()
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv(toolchain.CHOICE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_GOVERSION", "go1.26.8")
    monkeypatch.setenv("FAKE_LOG", str(log))
    monkeypatch.setenv("FAKE_FAILURE", "")
    return log


def test_builds_once_and_says_so(go_log: Path) -> None:
    lines: list[str] = []

    first = binaries(lines.append)
    second = binaries(lines.append)

    assert first == second
    assert all(path.is_file() for path in (first.etcd, first.kube_apiserver, first.kubectl))
    assert go_log.read_text().split() == ["build"]
    assert len(lines) == 1
    assert str(toolchain.cache_folder()) in lines[0]


def test_the_scheduler_is_built_once_when_it_is_asked_for(go_log: Path) -> None:
    lines: list[str] = []
    found = binaries(lines.append)
    assert not toolchain.cache_folder(toolchain.SCHEDULER).exists()

    first = found.kube_scheduler(lines.append)
    second = found.kube_scheduler(lines.append)

    assert first == second
    assert first.is_file()
    assert found == binaries(lines.append)
    assert go_log.read_text().split() == ["build", "build"]
    assert [("kube-scheduler" in line) for line in lines] == [False, True]


def test_the_oracle_is_built_from_its_source_whatever_release_is_chosen(
    go_log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = toolchain.scheduler_oracle()
    monkeypatch.setenv(toolchain.CHOICE, "1.30.14")
    assert toolchain.scheduler_oracle() == first

    changed = tmp_path / "main.go"
    changed.write_text("package main")
    monkeypatch.setattr(toolchain, "ORACLE", dataclasses.replace(toolchain.ORACLE, source=changed))

    assert toolchain.scheduler_oracle() != first
    assert go_log.read_text().split() == ["build", "build"]


def test_without_go_the_oracle_says_what_is_missing(
    go_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GOVERSION", "go1.20.1")

    with pytest.raises(Unavailable, match=r"oracle needs Go 1\.26 or newer"):
        toolchain.scheduler_oracle()


def test_a_given_scheduler_is_used(
    go_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    for name in (*NAMES, "kube-scheduler"):
        (tmp_path / name).touch()

    assert binaries().kube_scheduler() == tmp_path / "kube-scheduler"
    assert go_log.read_text() == ""


def test_two_processes_build_once(go_log: Path) -> None:
    code = "from tests.apiserver.binaries import binaries; print(binaries().kubectl)"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        for _ in "12"
    ]

    paths = {process.communicate()[0] for process in both}

    assert len(paths) == 1
    assert go_log.read_text().split() == ["build"]


def test_a_damaged_cache_is_built_again(go_log: Path) -> None:
    binaries().kubectl.unlink()

    assert binaries().kubectl.is_file()
    assert go_log.read_text().split() == ["build", "build"]


def test_a_failed_build_leaves_no_cache(go_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAILURE", "dial tcp: no route to host")

    with pytest.raises(RuntimeError, match="no route to host"):
        binaries()

    assert [path.suffix for path in toolchain.cache_folder().parent.iterdir()] == [".lock"]


STAGED = """\
module k8s.io/kubernetes
require k8s.io/api v0.0.0
replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kms => ./staging/src/k8s.io/kms
)
"""


def test_another_release_is_built_from_its_own_go_mod(
    go_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = binaries()
    go_log.with_suffix(".mod").write_text(STAGED)
    monkeypatch.setenv(toolchain.CHOICE, "1.30.14")
    lines: list[str] = []

    theirs = binaries(lines.append)
    assert binaries(lines.append) == theirs

    assert theirs.kubectl.parent.name == "apiserver-1.30.14"
    assert ours.kubectl.is_file()
    assert go_log.read_text().split() == ["build", "build"]
    assert [" v1.30.14 once" in line for line in lines] == [True]
    built = go_log.with_suffix(".built").read_text()
    assert "tool (" in built
    assert built.endswith(
        "require k8s.io/kubernetes v1.30.14\n"
        "replace k8s.io/api => k8s.io/api v0.30.14\n"
        "replace k8s.io/kms => k8s.io/kms v0.30.14\n"
    )


def test_the_usual_release_by_its_name_is_the_usual_build(
    go_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = binaries()
    monkeypatch.setenv(toolchain.CHOICE, toolchain.usual_release())

    assert binaries() == usual


@pytest.mark.parametrize("release", ["1.30", "v1.30.14", "latest", "1.30.14/../x"])
def test_an_invalid_release_is_refused(
    go_log: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setenv(toolchain.CHOICE, release)

    with pytest.raises(
        ValueError, match=f"={re.escape(release)} is not a Kubernetes release: write it like 1"
    ):
        binaries()


@pytest.mark.parametrize("version", ["go1.25.9", "go1.9", ""])
def test_an_old_go_cannot_build(
    go_log: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("FAKE_GOVERSION", version)

    with pytest.raises(Unavailable, match=r"needs Go 1\.26 or newer .* or KUBEBUILDER_ASSETS="):
        binaries()


def test_a_machine_without_go_cannot_build(
    go_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Unavailable, match=r"needs Go 1\.26"):
        binaries()


def test_given_binaries_are_used(
    go_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    for name in NAMES[:2]:
        (tmp_path / name).touch()
    with pytest.raises(FileNotFoundError, match="does not contain kubectl"):
        binaries()

    (tmp_path / "kubectl").touch()

    assert binaries().kubectl == tmp_path / "kubectl"
    assert go_log.read_text() == ""


ORPHANS = """
import sys, time
from pathlib import Path
from tests.apiserver.control_plane import Server
Server(["sleep", "600"], Path(sys.argv[1]))
print("started", flush=True)
time.sleep(600)
"""


def test_a_server_ends_with_its_parent_even_after_sigkill(tmp_path: Path) -> None:
    log = tmp_path / "log"
    os.mkfifo(log)
    with (
        subprocess.Popen([sys.executable, "-c", ORPHANS, log], stdout=subprocess.PIPE) as parent,
        log.open("rb") as output,
    ):
        assert parent.stdout
        assert parent.stdout.readline() == b"started\n"
        parent.kill()
        assert output.read() == b""  # returns when the last process that could write has gone


def test_killing_a_server_also_ends_its_watcher(tmp_path: Path) -> None:
    log = tmp_path / "log"
    os.mkfifo(log)
    output = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    server = Server(["sleep", "600"], log)
    assert server.running

    server.kill()
    server.kill()

    assert not server.running
    os.set_blocking(output, True)
    assert os.read(output, 1) == b""
    os.close(output)


def test_ports_are_outside_the_ephemeral_range() -> None:
    ports = [free_port() for _ in range(100)]
    assert all(20_000 <= port < 30_000 for port in ports)
    assert len(set(ports)) == len(ports)


def test_ports_of_processes_that_run_at_the_same_time_differ() -> None:
    """Several test processes start servers in the same second:
    a port is taken before its server listens on it.
    """
    asks = (
        "from tests.apiserver.control_plane import free_port; print(*(free_port() for _ in "
        "range(400)), flush=True)"
    )
    command = [sys.executable, "-c", f"{asks}; input()"]
    pipe = subprocess.PIPE
    both = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) for _ in range(2)
    ]
    try:
        first, second = (set(each.stdout.readline().split()) for each in both if each.stdout)
    finally:
        for each in both:
            each.communicate("\n")
    assert len(first) == len(second) == 400
    assert not first & second
