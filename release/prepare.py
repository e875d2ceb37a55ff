"""The changes of a commit that makes a release: the version everywhere,
and the section of the changelog.
"""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

from release.changelog import with_release
from release.settings import run, version_of

VERSIONED = (
    *("webhook/virt_admit/__init__.py", "Dockerfile", "README.md", "docs/*.md"),
    "manifests/**/kustomization.yaml",
    "examples/argocd/*.yaml",
)
"""Files that name the current version. `make docs` writes it into generated files."""


def prepare(root: Path, version: str, day: date) -> list[str]:
    """Write the version and the section of the changelog; return the files that changed.

    Raises:
        ValueError: the version is not valid or not newer, or the changelog has no entries for it.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ValueError(f"{version!r} is not a version such as 1.2.3")
    current = version_of(root)
    if _numbers(version) <= _numbers(current) and run(
        "git", "tag", "--list", f"v{current}", cwd=root
    ):
        raise ValueError(f"{version} is not newer than {current}, which has a tag")
    changelog = root / "CHANGELOG.md"
    changed = {changelog: with_release(changelog.read_text(), version, day)}
    for pattern in VERSIONED:
        for file in root.glob(pattern):
            text = file.read_text()
            changed[file] = re.sub(rf"(?<![\d.]){re.escape(current)}(?![\d.]*\d)", version, text)
    for file, text in changed.items():
        file.write_text(text)
    return run("git", "diff", "--name-only", cwd=root).splitlines()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
