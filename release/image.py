"""The image for each platform, their index, and what it contains."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path

from release.sbom import components, cyclonedx, spdx
from release.settings import DIST, EPOCH, REGISTRY, REVISION, ROOT, VERSION, run

BUILDAH = shlex.split(os.environ.get("BUILDAH", "buildah"))
"""buildah with its global options."""
BUILD_OPTIONS = shlex.split(os.environ.get("BUILD_OPTIONS", ""))
PLATFORMS = os.environ.get("PLATFORMS", "linux/amd64,linux/arm64").split(",")
INDEX = f"localhost/virt-admit:{VERSION}"


def build() -> str:
    """Build the images, write the SBOMs, push the index to the registry or into an archive;
    return its digest.
    """
    _require_programs()
    arguments = [
        f"--build-arg=VERSION={VERSION}",
        f"--build-arg=REVISION={REVISION}",
        f"--timestamp={EPOCH}",
    ]
    run(*BUILDAH, "manifest", "create", INDEX)
    for platform in PLATFORMS:
        where = ["--platform", platform, "--manifest", INDEX]
        run(*BUILDAH, "bud", "--quiet", "--format", "oci", *where, *arguments, *BUILD_OPTIONS, ROOT)
    _write_sboms()
    archive = f"oci-archive:{DIST}/virt-admit-image-{VERSION}.tar:{VERSION}"
    target = f"docker://{REGISTRY}/virt-admit:{VERSION}" if REGISTRY else archive
    digest = DIST / "image.digest"
    run(*BUILDAH, "manifest", "push", "--all", "--digestfile", digest, INDEX, target)
    return digest.read_text().strip()


def _require_programs() -> None:
    """Install buildah, and what runs the build stage for another processor.

    Both are packages of Debian and Ubuntu.
    """
    packages = [] if shutil.which(BUILDAH[0]) else ["buildah"]
    if len(PLATFORMS) > 1:
        packages.append("qemu-user-static")
    if packages:
        run("apt-get", "update", "-qq")
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages)


def _write_sboms() -> None:
    container = run(*BUILDAH, "from", INDEX)
    try:
        packages = components(Path(run(*BUILDAH, "mount", container)))
    finally:
        run(*BUILDAH, "rm", container)
    for name, document in {"spdx": spdx(packages), "cdx": cyclonedx(packages)}.items():
        (DIST / f"virt-admit-{VERSION}.{name}.json").write_text(
            json.dumps(document, indent=1) + "\n"
        )
