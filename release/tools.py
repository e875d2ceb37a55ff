"""Programs that a release needs, built once with Go and cached.

Go compares them with its checksum database.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.apiserver import helm

PACKAGES: Final = {
    "actionlint": "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12",
    "cosign": "github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3",
    "crane": "github.com/google/go-containerregistry/cmd/crane@v0.22.1",
    "helm3": helm.PACKAGES["helm3"],
}


def tool(name: str) -> Path:
    """Return the path of a program; build it the first time."""
    return helm.go_program(name, PACKAGES[name])
