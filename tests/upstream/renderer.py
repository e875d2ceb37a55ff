"""KubeVirt's own pod templates, as a program: built once with Go and cached outside the checkout."""

from __future__ import annotations

import fcntl
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

MODULE = Path(__file__).resolve().parent / "launcher"
_LAUNCHER = Build("launcher", ("launcher",), ".")
_SOURCES = ("go.mod", "go.sum", "link.s", "main.go")


def _print(line: str) -> None:
    print(line, file=sys.stderr)


def renderer(announce: Announce = _print) -> Path:
    """Return the path of the program; build it the first time, which takes minutes and is announced with one line.

    Raises Unavailable without Go, and RuntimeError with the output of Go if the build fails.
    """
    key = hashlib.sha256(b"".join((MODULE / name).read_bytes() for name in _SOURCES)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "virt-admit"
    program = cache / f"launcher-{key}"
    if program.is_file():
        return program
    go = go_command(_LAUNCHER)
    cache.mkdir(parents=True, exist_ok=True)
    with Path(f"{program}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.is_file():  # another process may have built it while we waited
            announce(f"building KubeVirt's pod templates once, some minutes, into {program}")
            with TemporaryDirectory(dir=cache, prefix=f"{program.name}.") as scratch:
                built = Path(scratch) / "launcher"
                run_go([go, "build", "-mod=readonly", "-trimpath", "-ldflags", "-s -w", "-o", str(built), "."], MODULE)
                built.rename(program)
    return program


def render(program: Path, cases: Iterable[Any]) -> list[Any]:
    """Return what KubeVirt makes of each case; ``main.go`` has the fields of both."""
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run([program], input=lines, check=False, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{program.name} failed:\n{done.stderr[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":  # before pytest-xdist, whose workers cannot announce a build
    try:
        renderer()
    except Unavailable as reason:
        _print(str(reason))
