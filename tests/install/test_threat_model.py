"""The threat model names files that exist."""

from __future__ import annotations

import re

from tests.for_each import for_each
from tests.paths import ROOT

PATHS = sorted(
    {
        path
        for page in ("SECURITY.md", "docs/threat-model.md")
        for path in re.findall(
            r"`((?:tests|webhook|manifests|docs)/[^`]+)`", (ROOT / page).read_text()
        )
    }
)


@for_each("path", PATHS)
def test_what_is_named_exists(path: str) -> None:
    assert (ROOT / path).is_file()


def test_every_attack_has_its_test() -> None:
    page = (ROOT / "docs/threat-model.md").read_text()
    rows = [
        line.split("|")
        for line in page.splitlines()
        if line.startswith("| ") and " | test |" not in line
    ]
    assert len(rows) >= 15
    assert all("`tests/" in row[4] or "`webhook/" in row[4] for row in rows)
