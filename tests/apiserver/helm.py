"""The real helm, version 3 and 4: built once with Go and cached outside the checkout."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.apiserver.binaries import Announce, Build, Unavailable, go_command

PACKAGES: Final = {
    "helm3": "helm.sh/helm/v3/cmd/helm@v3.22.0",
    "helm4": "helm.sh/helm/v4/cmd/helm@v4.3.1",
}
"""Programs by our name for them. Go compares each module with its public checksum database."""


def _print(line: str) -> None:
    print(line, file=sys.stderr)


def program(name: str, announce: Announce = _print) -> Path:
    """Return the path of a program; build it the first time,
    which takes minutes and is announced with one line.

    Raises Unavailable without Go, and RuntimeError with the output of Go if the build fails.
    """
    return go_program(name, PACKAGES[name], announce)


def go_program(name: str, installable: str, announce: Announce = _print) -> Path:
    """Return the path of what ``go install`` makes of a package and its version;
    raises as ``program`` does.
    """
    package, _, version = installable.partition("@")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "virt-admit"
    found = cache / f"{name}-{version}"
    if found.is_file():
        return found
    go = go_command(Build(name, (name,), package))
    cache.mkdir(parents=True, exist_ok=True)
    with Path(f"{found}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.is_file():  # another process may have built it while we waited
            announce(f"building {name} {version} once, some minutes, into {found}")
            with TemporaryDirectory(dir=cache, prefix=f"{found.name}.") as scratch:
                environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOBIN": scratch}
                command = [go, "install", "-trimpath", "-ldflags", "-s -w", installable]
                done = subprocess.run(
                    command, env=environment, check=False, text=True, capture_output=True
                )
                if done.returncode:
                    raise RuntimeError(f"go install failed:\n{done.stderr[-4000:]}")
                (Path(scratch) / package.rpartition("/")[2]).rename(found)
    return found


if __name__ == "__main__":  # before pytest-xdist, whose workers cannot announce a build
    try:
        for each in PACKAGES:
            program(each)
    except Unavailable as reason:
        _print(str(reason))
