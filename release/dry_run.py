"""`make release-dry-run`: run every step of .github/workflows/release.yaml here, offline,
with a throw-away key.

Nothing is pushed: the index of images goes into an archive, and the last step prints its command.
The base image is one of debootstrap, for this processor alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from release.settings import DIST, ROOT
from tests.image.engine import BASE, Buildah, missing


def steps() -> Iterator[str]:
    """Yield the commands of the workflow."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            if "run" in step:
                yield step["run"].removeprefix("sudo --preserve-env ")  # this is root already


def environment(folder: Path) -> dict[str, str]:
    """Return what replaces registry, identity and base image."""
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        encoding, form, serialization.NoEncryption()
    )
    (folder / "throw-away.key").write_bytes(key)
    buildah = Buildah(folder / "images")
    return {
        "RELEASE_DRY_RUN": "1",
        "SIGNING_KEY": str(folder / "throw-away.key"),
        "REGISTRY": "",
        "BUILDAH": " ".join(buildah.command),
        "BUILD_OPTIONS": f"--isolation chroot --layers=false --build-arg PYTHON={BASE}",
        "PLATFORMS": "linux/amd64" if os.uname().machine == "x86_64" else "linux/arm64",
    }


def main() -> None:
    """Run the steps; print the seconds of each, and the files in the end."""
    if lack := missing():
        sys.exit(f"the image needs {lack}: make image-test installs it, as root")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "images").mkdir()
        environ = os.environ | environment(folder)
        Buildah(folder / "images").add_base()
        for command in steps():
            began = time.monotonic()
            print(f"$ {command}", flush=True)
            subprocess.run(  # noqa: S603
                ["bash", "-euo", "pipefail", "-c", command],  # noqa: S607
                cwd=ROOT,
                env=environ,
                check=True,
            )
            print(f"  {time.monotonic() - began:.0f} s", flush=True)
    for path in sorted(DIST.iterdir()):
        print(f"{path.stat().st_size:>12,} {path.name}")


if __name__ == "__main__":
    main()
