"""File names and links in reports, for readers outside the working directory."""

from __future__ import annotations

import os
from pathlib import PurePath
from urllib.parse import urlsplit

from virt_admit.reports.findings.report import DUPLICATE_KEY
from virt_admit.settings import DOCS_URL, SettingError


def docs_url() -> str:
    """Return the URL of a copy of the folder ``docs`` that the installer names; empty without one.

    A link to pages that nothing serves is worse than none: ``virt-admit rules ID`` shows the page
    of a rule.

    Raises:
        SettingError: it is not an http or https URL with a host and at most a path.
    """
    url = os.environ.get("VIRT_ADMIT_DOCS_URL") or ""
    if url and not _is_folder(url):
        raise SettingError(
            f"VIRT_ADMIT_DOCS_URL {url} is not the URL of a folder: write it like {DOCS_URL}"
        )
    return url.rstrip("/")


def _is_folder(url: str) -> bool:
    """Return whether a page's name can follow the URL.

    A link of another scheme could run a script in the reader's browser.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:  # an IPv6 address that does not end
        return False
    only_a_path = url.isprintable() and not set("?# ") & set(url) and parts.username is None
    return parts.scheme in ("http", "https") and bool(host) and only_a_path


def rule_page(rule: str) -> str:
    """Return the URL of a rule's page; empty if no copy of the pages is named."""
    folder = docs_url()
    if not folder:
        return ""
    return f"{folder}/cli.md" if rule == DUPLICATE_KEY else f"{folder}/rules.md#{rule}"


def relative(file: str) -> str:
    """Return a file relative to the working directory, with ``/``.

    A file outside of it keeps its name.
    """
    try:
        path = os.path.relpath(file)
    except (OSError, ValueError):  # the working directory was deleted, or the name is empty
        return file
    return PurePath(file if path.startswith(os.pardir) else path).as_posix()
