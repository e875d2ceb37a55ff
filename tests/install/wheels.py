"""All that the locks name, in a folder, so that tests install it offline."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from tests.paths import ROOT

LOCKS = (ROOT / "requirements.lock", ROOT / "requirements-build.lock")


def wheels(python: str) -> Path:
    """Return the folder for this Python; filled once for each content of the locks."""
    command = [python, "-c", "import sys; print(sys.version, end='')"]
    version = subprocess.run(command, capture_output=True, check=True).stdout
    digest = hashlib.sha256(b"".join(lock.read_bytes() for lock in LOCKS) + version).hexdigest()[
        :16
    ]
    cache = (
        Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        / "virt-admit"
        / f"wheels-{digest}"
    )
    if not cache.is_dir():
        unfinished = cache.with_name(f"{cache.name}.{os.getpid()}")
        with tempfile.TemporaryDirectory() as environment:
            # the environment of the tests has no pip if uv made it
            subprocess.run([python, "-m", "venv", environment], check=True, capture_output=True)
            pip = [
                f"{environment}/bin/python",
                "-m",
                "pip",
                "download",
                "-q",
                "--require-hashes",
                "-d",
                str(unfinished),
            ]
            for lock in LOCKS:
                done = subprocess.run(
                    [*pip, "-r", str(lock)], capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, (
                    f"cannot download what {lock.name} names:\n{done.stderr}"
                )
        unfinished.rename(cache)
    return cache
