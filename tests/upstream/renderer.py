"""Programs that link upstream's own code: built once with Go and cached outside the checkout."""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.apiserver.binaries import Announce, Build, Unavailable, go_command, run_go

LAUNCHER = Path(__file__).resolve().parent / "launcher"
"""The pods that KubeVirt creates for VMIs."""
MIGRATIONS = LAUNCHER.with_name("migrations")
"""KubeVirt's evacuation and migration controllers, and kube-scheduler."""
ADMISSION = LAUNCHER.with_name("admission")
"""KubeVirt's webhooks, and the migration condition of virt-handler."""
HEALTH = LAUNCHER.with_name("health")
"""The API server's validation of custom resources, and Cluster API's health checks."""
COPIES = LAUNCHER.with_name("copies")
"""The claims that CDI makes for copies of disks. It shares no package with the others, so
``make verify-upstream`` alone builds it: four minutes of a processor.
"""
CLOCKS = LAUNCHER.with_name("clocks")
"""Kubernetes' controllers for lost nodes. ``make verify-clocks`` alone builds it."""
RESTARTS = LAUNCHER.with_name("restarts")
"""KubeVirt's controllers for VMs and their VMIs. ``make verify-restarts`` alone builds it."""
MACHINES = LAUNCHER.with_name("machines")
"""OpenShift's MachineHealthCheck, the drains of OpenShift and Cluster API, and Cluster API's owners
of Machines. ``make verify-remediation`` alone builds it.
"""
FENCING = LAUNCHER.with_name("fencing")
"""The reconciler of FenceAgentsRemediation. ``make verify-fencing`` alone builds it."""
PROMETHEUS = LAUNCHER.with_name("prometheus")
"""Prometheus' engine for expressions."""


def _print(line: str) -> None:
    print(line, file=sys.stderr)


def renderer(announce: Announce = _print) -> Path:
    """Return the program that renders launcher pods, see ``program``."""
    return program(LAUNCHER, announce)


def program(module: Path, announce: Announce = _print) -> Path:
    """Return the path of a program; build it the first time,
    which takes minutes and is announced with one line.

    Raises Unavailable without Go, and RuntimeError with the output of Go if the build fails.
    """
    found = cached(module)
    if found.is_file():
        return found
    go = go_command(Build(module.name, (module.name,), "."))
    cache = found.parent
    cache.mkdir(parents=True, exist_ok=True)
    with Path(f"{found}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.is_file():  # another process may have built it while we waited
            announce(
                f"building the program {module.name} of upstream code once, some minutes, into "
                f"{found}"
            )
            with TemporaryDirectory(dir=cache, prefix=f"{found.name}.") as scratch:
                built = Path(scratch) / module.name
                run_go(
                    [
                        go,
                        "build",
                        "-mod=readonly",
                        "-trimpath",
                        "-ldflags",
                        "-s -w",
                        "-o",
                        str(built),
                        ".",
                    ],
                    module,
                )
                built.rename(found)
    return found


def cached(module: Path) -> Path:
    """Return where a program is after it was built."""
    sources = sorted(
        file for file in module.iterdir() if file.suffix in (".go", ".mod", ".sum", ".s")
    )
    key = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "virt-admit"
    return cache / f"{module.name}-{key}"


def render(program: Path, cases: Iterable[Any], *arguments: str) -> list[Any]:
    """Return what upstream makes of each case; ``main.go`` has the fields of both."""
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run(
        [program, *arguments], input=lines, check=False, text=True, capture_output=True
    )
    if done.returncode:
        raise RuntimeError(f"{program.name} failed:\n{done.stderr[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def ask(program: Path, cases: Iterable[Any]) -> list[Any]:
    """Return the same of a program that writes an answer after each line.

    It is started once: that takes 5 s of a processor.
    """
    running = _started(program)
    assert running.stdin is not None
    assert running.stdout is not None
    answers = []
    for case in cases:
        running.stdin.write(json.dumps(case) + "\n")
        running.stdin.flush()
        if not (line := running.stdout.readline()):
            _started.cache_clear()
            raise RuntimeError(f"{program.name} ended with {running.wait()}: its stderr says why")
        answers.append(json.loads(line))
    return answers


@functools.cache
def _started(program: Path) -> subprocess.Popen[str]:
    running = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(running.communicate)
    return running


if __name__ == "__main__":  # before pytest-xdist, whose workers cannot announce a build
    try:
        renderer()
        program(MIGRATIONS)
        program(ADMISSION)
        program(HEALTH)
        program(PROMETHEUS)
    except Unavailable as reason:
        _print(str(reason))
