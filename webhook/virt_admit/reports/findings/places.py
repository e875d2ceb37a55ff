"""File names and links in reports, for readers outside the working directory."""

from __future__ import annotations

import os
from pathlib import PurePath

from virt_admit.reports.findings.report import DUPLICATE_KEY
from virt_admit.settings import DOCS_URL


def docs_url() -> str:
    """Return the URL of the folder ``docs``: the installer's, or the project's."""
    return (os.environ.get("VIRT_ADMIT_DOCS_URL") or DOCS_URL).rstrip("/")


def rule_page(rule: str) -> str:
    """Return the URL of a rule's page."""
    return f"{docs_url()}/cli.md" if rule == DUPLICATE_KEY else f"{docs_url()}/rules.md#{rule}"


def relative(file: str) -> str:
    """Return a file relative to the working directory, with ``/``. A file outside of it keeps its name."""
    try:
        path = os.path.relpath(file)
    except (OSError, ValueError):  # the working directory was deleted, or the name is empty
        return file
    return PurePath(file if path.startswith(os.pardir) else path).as_posix()
