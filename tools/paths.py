"""Folders of the repository that generators read and write."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
MANIFESTS = ROOT / "manifests"
