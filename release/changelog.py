"""CHANGELOG.md: the section of a version, and a new version."""

from __future__ import annotations

import re
from datetime import date

UNRELEASED = "## [Unreleased]\n"


def section(text: str, version: str) -> str:
    """Return the entries of a version, without its heading; empty if there are none."""
    found = re.search(rf"^## \[{re.escape(version)}\].*\n((?:(?!## \[).*\n?)*)", text, re.MULTILINE)
    return found[1].strip() if found else ""


def with_release(text: str, version: str, day: date) -> str:
    """Return the changelog with the unreleased entries under a version.

    Raises:
        ValueError: there are no unreleased entries, or the version has a section already.
    """
    if not section(text, "Unreleased"):
        raise ValueError("CHANGELOG.md has no entries under [Unreleased]")
    if f"## [{version}]" in text:
        raise ValueError(f"CHANGELOG.md has a section {version} already")
    return text.replace(UNRELEASED, f"{UNRELEASED}\n## [{version}] - {day}\n", 1)
