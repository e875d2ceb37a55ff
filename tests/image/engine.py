"""Build and run images without a daemon and without a registry of images: Debian's buildah and
debootstrap, as root.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

PROGRAMS: Final = ("buildah", "debootstrap", "unshare", "chroot")
BASE: Final = "localhost/python-base"
PACKAGES: Final = "python3,python3-venv,python-is-python3,ca-certificates"
SETTINGS: Final = ("etc/ssl/certs/ca-certificates.crt", "etc/pip.conf")
"""Files of this machine that pip in the base image needs to reach what pip reaches here."""

START: Final = """
set -e
root=$1 inputs=$2; shift 2
mount --bind "$root" "$root" && mount -o remount,ro,bind "$root"
mount -t tmpfs -o mode=1777,size=64m tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for name in null zero random urandom; do touch "$root/dev/$name"; mount --bind "/dev/$name" "$root/dev/$name"; done
mount -o remount,ro "$root/dev"
mount -t proc proc "$root/proc"
[ -z "$inputs" ] || mount -o bind,ro "$inputs" "$root/mnt"
exec chroot "$@"
"""  # noqa: E501
"""A read-only root with a writable /tmp alone; not even /dev/shm, which Kubernetes provides."""


def missing() -> str:
    """Return what this machine lacks to build images; empty if nothing."""
    if os.geteuid() != 0:
        return "root"
    return ", ".join(name for name in PROGRAMS if shutil.which(name) is None)


def base_archive() -> Path:
    """Return an archive of this machine's Debian with Python alone, made once."""
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "virt-admit"
    archive = cache / f"image-base-{suite}.tar"
    if not archive.is_file():
        root = cache / f"image-base.{os.getpid()}"
        root.mkdir(parents=True)
        try:
            run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, root)
            for folder in ("var/cache/apt", "var/lib/apt/lists"):
                shutil.rmtree(root / folder)
            for name in filter(os.path.exists, (f"/{name}" for name in SETTINGS)):
                shutil.copy(name, root / name.lstrip("/"))
            unfinished = archive.with_suffix(f".{os.getpid()}")
            run("tar", "-C", root, "--exclude=./dev/*", "-cf", unfinished, ".")
            unfinished.rename(archive)
        finally:
            shutil.rmtree(root)
    return archive


def run(*command: object, cwd: Path | None = None, environ: dict[str, str] | None = None) -> str:
    """Return what a program prints. Raises RuntimeError with its output if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=cwd,
        env=os.environ | (environ or {}),
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


class Buildah:
    """A store of images in a folder."""

    def __init__(self, folder: Path) -> None:
        store = (
            "--root",
            f"{folder}/store",
            "--runroot",
            f"{folder}/run",
            "--storage-driver",
            "vfs",
        )
        self.command = ("buildah", *store)
        self.build = (*self.command, "bud", "--isolation", "chroot", "--layers=false", "--quiet")
        self.folder = folder

    def __call__(self, *arguments: object) -> str:
        return run(*self.command, *arguments).strip()

    def add_base(self) -> None:
        """Add the base image under the name BASE."""
        context = self.folder / "base"
        context.mkdir()
        shutil.copy(base_archive(), context / "base.tar")
        (context / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n")
        run(*self.build, "--tag", BASE, context)
        shutil.rmtree(context)

    def inspect(self, image: str) -> dict[str, Any]:
        """Return the image's configuration as the OCI image specification defines it."""
        config: dict[str, Any] = json.loads(self("inspect", "--type", "image", image))["OCIv1"]
        return config

    def size(self, image: str) -> int:
        """Return the bytes of all files of an image."""
        with self.mounted(image) as root:
            return sum(
                path.lstat().st_size
                for path in root.rglob("*")
                if path.is_file() and not path.is_symlink()
            )

    @contextmanager
    def mounted(self, image: str) -> Iterator[Path]:
        """Yield the root file system of a new container."""
        container = self("from", image)
        try:
            yield Path(self("mount", container))
        finally:
            self("rm", container)


def command(
    root: Path, config: dict[str, Any], *arguments: str, inputs: Path | str = ""
) -> list[str]:
    """Return a command that runs a container as Kubernetes would with our manifests;
    ``inputs`` appears as /mnt.
    """
    users = config["User"]
    where = ["unshare", "--mount", "--", "bash", "-c", START, "start", str(root), str(inputs)]
    return [
        *where,
        f"--userspec={users}",
        "--groups=",
        str(root),
        "/usr/bin/env",
        "-i",
        *config["Env"],
        *arguments,
    ]
