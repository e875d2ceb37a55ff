"""One page for each owner in a folder, and an index.

An owner is a namespace or the value of a label.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from virt_admit.documents.files import write_new
from virt_admit.model.kubernetes.objects import Object
from virt_admit.reports.html.levels import BAD
from virt_admit.reports.html.page import Link, Page, Table, render

INDEX: Final = "index.html"
_PLAIN: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,98}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Owners:
    """How objects are assigned to owners: by namespace, or by a label if one is named."""

    label: str = ""

    @classmethod
    def parse(cls, text: str) -> Owners:
        """Return the value of ``--pages-by``.

        Raises:
            ValueError: it is neither ``namespace`` nor ``label=KEY``.
        """
        word, _, key = text.partition("=")
        if text == "namespace" or (word == "label" and key):
            return cls(key)
        raise ValueError(f"--pages-by {text} is not valid. Use namespace or label=KEY")

    def of(self, obj: Object) -> str:
        """Return the owner of an object; empty if it has none."""
        return str(obj.labels.get(self.label) or "") if self.label else obj.namespace

    def subject(self, owner: str) -> str:
        """Return the line that names the owner on a page."""
        if self.label:
            return f"{self.label}={owner}" if owner else f"without label {self.label}"
        return f"namespace {owner}" if owner else "cluster-scoped objects"


def files(whole: Page, pages: Mapping[str, Page], owners: Owners) -> dict[str, str]:
    """Return the files of a folder by name: the index, which is the page about everything, and a
    page for each owner.
    """
    rows = []
    out = {}
    for owner, page in sorted(pages.items()):
        name = file_name(owner)
        worst = sum(tile.number for tile in page.tiles if tile.level == BAD)
        link = Link(owner or owners.subject(owner), name)
        rows.append((link, page.verdict.word, page.verdict.text, worst))
        out[name] = render(page)
    by = f"label {owners.label}" if owners.label else "namespace"
    table = Table(f"Pages by {by}", ("Owner", "Verdict", "Summary", "Worst"), tuple(rows))
    return {INDEX: render(replace(whole, leading=(table,))), **out}


def file_name(owner: str) -> str:
    """Return the file of an owner.

    Names that a file system could misread are replaced by a digest.
    """
    if _PLAIN.fullmatch(owner):
        return f"owner-{owner}.html"
    return f"other-{hashlib.sha256(owner.encode(errors='backslashreplace')).hexdigest()[:16]}.html"


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the pages.

    Raises:
        OSError: the folder or a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_new(folder / name, text.encode(errors="backslashreplace"))
