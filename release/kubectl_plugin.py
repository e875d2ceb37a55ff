#!/usr/bin/env python3
"""kubectl virt-admit as krew installs it:
the first run creates a virtual environment next to this file.

The archive has this file, the wheel and the lock file, so the dependencies are those with the
locked hashes.
"""

import fcntl
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE / "environment"
READY = ENVIRONMENT / "ready"


def install() -> None:
    """Install the wheel and its locked dependencies. Another process may be installing them now."""
    with (HERE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if READY.exists():
            return
        print("virt-admit: installing the locked dependencies (once)", file=sys.stderr)
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
        pip = [
            str(ENVIRONMENT / "bin" / "pip"),
            "--quiet",
            "--disable-pip-version-check",
            "install",
        ]
        (wheel,) = HERE.glob("*.whl")
        subprocess.run(  # noqa: S603
            [*pip, "--require-hashes", "-r", str(HERE / "requirements.lock")], check=True
        )
        subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)  # noqa: S603
        READY.touch()


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 - krew runs whatever python3 is
        sys.exit("virt-admit needs Python 3.11 or newer as python3")
    if not READY.exists():
        try:
            install()
        except subprocess.CalledProcessError as error:
            sys.exit(f"virt-admit: cannot install the dependencies: {' '.join(error.cmd)} failed")
    program = str(ENVIRONMENT / "bin" / "kubectl-virt_admit")
    os.execv(program, [program, *sys.argv[1:]])  # noqa: S606
