"""What the steps of a release share: the version, the commit, where files and images go."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
DIST: Final = Path(os.environ.get("RELEASE_DIST") or ROOT / "dist")
"""The folder of the files of a release."""


def run(*command: object, cwd: Path = ROOT, **environ: str) -> str:
    """Return what a program prints to stdout. Raises CalledProcessError if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(  # noqa: S603
        words, cwd=cwd, env=os.environ | environ, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()


def version_of(root: Path = ROOT) -> str:
    """Return the version that the package declares."""
    text = (root / "webhook" / "virt_admit" / "__init__.py").read_text()
    (version,) = re.findall(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    return str(version)


VERSION: Final = version_of()
REVISION: Final = run("git", "rev-parse", "HEAD")
EPOCH: Final = int(os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct"))
"""The time of everything in a release, so that the same commit gives the same bytes."""
REPOSITORY: Final = "/".join(
    (
        os.environ.get("GITHUB_SERVER_URL", "https://github.com"),
        os.environ.get("GITHUB_REPOSITORY", "OWNER/virt-admit"),
    )
)
REGISTRY: Final = os.environ.get("REGISTRY", "")
"""Host and folder: the image is ``<REGISTRY>/virt-admit``, the chart
``<REGISTRY>/charts/virt-admit``.
"""
