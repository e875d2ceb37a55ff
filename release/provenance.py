"""How the files of a release were made: an in-toto statement with SLSA's provenance, version 1."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from release.settings import REPOSITORY, REVISION, VERSION


def statement(digests: Mapping[str, str], base_image: str) -> dict[str, Any]:
    """Return the statement about files and images with these SHA-256 digests."""
    sources = [{"uri": f"git+{REPOSITORY}@refs/tags/v{VERSION}", "digest": {"gitCommit": REVISION}}]
    name, _, digest = base_image.partition("@sha256:")
    if digest:
        sources.append({"uri": f"oci://{name}", "digest": {"sha256": digest}})
    run = os.environ.get("GITHUB_RUN_ID")
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": digest}} for name, digest in sorted(digests.items())
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{REPOSITORY}/blob/v{VERSION}/CONTRIBUTING.md#release",
                "externalParameters": {"repository": REPOSITORY, "ref": f"refs/tags/v{VERSION}"},
                "resolvedDependencies": sources,
            },
            "runDetails": {
                "builder": {
                    "id": f"{REPOSITORY}/.github/workflows/release.yaml" if run else "dry-run"
                },
                "metadata": {"invocationId": f"{REPOSITORY}/actions/runs/{run}"} if run else {},
            },
        },
    }
