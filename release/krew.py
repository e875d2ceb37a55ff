"""The archive and the manifest of the kubectl plugin for krew."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import yaml

from release.settings import EPOCH, REPOSITORY, ROOT, VERSION

PLUGIN = "kubectl-virt_admit"
ARCHIVE = f"virt-admit-krew-{VERSION}.tar.gz"
MANIFEST = "virt-admit.yaml"
DESCRIPTION = """\
Checks manifests, clusters and planned upgrades with the rules of the admission webhook virt-admit.
The first run installs its locked Python dependencies into krew's folder; it needs Python 3.11 or newer."""  # noqa: E501


def write(folder: Path) -> None:
    """Write the archive and the manifest next to the wheel in the folder."""
    (wheel,) = folder.glob("*.whl")
    contents = {
        PLUGIN: (ROOT / "release" / "kubectl_plugin.py").read_bytes(),
        wheel.name: wheel.read_bytes(),
        "requirements.lock": (ROOT / "requirements.lock").read_bytes(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
    }
    archive = _archive(contents)
    (folder / ARCHIVE).write_bytes(archive)
    (folder / MANIFEST).write_text(
        yaml.safe_dump(manifest(hashlib.sha256(archive).hexdigest()), sort_keys=False)
    )


def manifest(digest: str) -> dict[str, object]:
    """Return krew's manifest of an archive with this digest."""
    platforms = [
        {
            "selector": {
                "matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]
            },
            "uri": f"{REPOSITORY}/releases/download/v{VERSION}/{ARCHIVE}",
            "sha256": digest,
            "bin": PLUGIN,
        }
    ]
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "virt-admit"},
        "spec": {
            "version": f"v{VERSION}",
            "homepage": REPOSITORY,
            "shortDescription": "Keep KubeVirt nodes drainable",
            "description": DESCRIPTION,
            "platforms": platforms,
        },
    }


def _archive(contents: dict[str, bytes]) -> bytes:
    """Return an archive of the same bytes for the same contents."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=EPOCH) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, data in sorted(contents.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = (
                len(data),
                EPOCH,
                0o755 if name == PLUGIN else 0o644,
            )
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
