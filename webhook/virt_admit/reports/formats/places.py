"""File names and links in reports, for readers outside the working directory."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import Final

from virt_admit.settings import DOMAIN

SITE: Final = f"https://{DOMAIN}"


def rule_page(rule: str) -> str:
    """Return the URL of a rule's page."""
    return f"{SITE}/rules#{rule}"


def relative(file: str) -> str:
    """Return a file relative to the working directory, with ``/``. A file outside of it keeps its name."""
    try:
        path = os.path.relpath(file)
    except (OSError, ValueError):  # the working directory was deleted, or the name is empty
        return file
    return PurePath(file if path.startswith(os.pardir) else path).as_posix()
