"""Folders of the repository that tests read."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
MANIFESTS = ROOT / "manifests"
RULE_FOLDER = ROOT / "webhook" / "virt_admit" / "rules"
DATA = ROOT / "tests" / "data"
