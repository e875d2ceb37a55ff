"""The programs of a real API server: those of ``KUBEBUILDER_ASSETS``, else built once with Go and cached.

``go.mod`` beside this file names them and their release. ``VIRT_ADMIT_KUBERNETES=1.30.14`` chooses another release,
with the etcd that this release is tested with.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

MODULE = Path(__file__).resolve().parent
NAMES = ("etcd", "kube-apiserver", "kubectl")
CHOICE = "VIRT_ADMIT_KUBERNETES"


class Unavailable(Exception):
    """This machine has no binaries and cannot build them; the text says what would help."""


@dataclass(frozen=True)
class Binaries:
    """Where the three programs are."""

    etcd: Path
    kube_apiserver: Path
    kubectl: Path


def binaries(announce: Callable[[str], None] = lambda line: print(line, file=sys.stderr)) -> Binaries:
    """Find the programs; build them the first time, which takes minutes and is announced with one line.

    Raises Unavailable without Go, FileNotFoundError if ``KUBEBUILDER_ASSETS`` lacks one of them, ValueError if the
    chosen release is none, and RuntimeError with Go's own words if the build fails.
    """
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        folder = Path(assets).resolve()
        if missing := [name for name in NAMES if not (folder / name).is_file()]:
            raise FileNotFoundError(f"KUBEBUILDER_ASSETS={assets} has no {', '.join(missing)}")
    else:
        folder = cache_folder()
        if not _complete(folder):
            _build(folder, announce)
    return Binaries(*(folder / name for name in NAMES))


def cache_folder() -> Path:
    """Where a build is kept, outside the checkout: one of another release, or of this very ``go.mod`` and ``go.sum``."""
    key = _release()
    if key == usual_release():
        key = hashlib.sha256((MODULE / "go.mod").read_bytes() + (MODULE / "go.sum").read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "virt-admit" / f"apiserver-{key}"


def _complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in NAMES)


def _build(folder: Path, announce: Callable[[str], None]) -> None:
    """Build into a scratch folder and rename it, so that the cache is whole or not there; one builder at a time."""
    go, release = _go(), _release()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _complete(folder):  # another process built it while we waited
            return
        announce(f"building etcd, kube-apiserver and kubectl v{release} once, some minutes, into {folder}")
        with TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as scratch:
            built = Path(scratch) / "bin"
            built.mkdir()
            module, changes = MODULE, "readonly"
            if release != usual_release():
                module, changes = Path(scratch), "mod"  # Go adds what Kubernetes' own go.mod requires
                (module / "go.mod").write_text(_go_mod(go, release))
            flags = (f"-mod={changes}", "-trimpath", "-ldflags", _ldflags(release))
            _run([go, "build", *flags, "-o", f"{built}/", "tool"], module)
            (built / "server").rename(built / "etcd")  # Go names a program after its package
            shutil.rmtree(folder, ignore_errors=True)
            built.rename(folder)


def _go() -> str:
    """The Go command, if it is new enough; one that fetches newer toolchains by itself is."""
    needed = _pinned(r"^go (\d+)\.(\d+)").groups()
    if go := shutil.which("go"):
        asked = subprocess.run(
            [go, "env", "GOVERSION"],
            cwd=MODULE,
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        found = re.search(r"go(\d+)\.(\d+)", asked.stdout)
        if found and tuple(map(int, found.groups())) >= tuple(map(int, needed)):
            return go
    raise Unavailable(
        f"a real kube-apiserver needs Go {'.'.join(needed)} or newer on the PATH to be built once, "
        f"or KUBEBUILDER_ASSETS=<folder with {', '.join(NAMES)}>"
    )


def _go_mod(go: str, release: str) -> str:
    """The ``go.mod`` of another release: our tools, and the versions of Kubernetes' own, etcd's among them."""
    said = _run([go, "list", "-m", "-json", f"k8s.io/kubernetes@v{release}"], MODULE)
    theirs = Path(json.loads(said)["GoMod"]).read_text()
    staged = re.findall(r"^\s*(\S+) => \./staging/", theirs, re.MULTILINE)
    ours = (MODULE / "go.mod").read_text().partition("require (")[0]
    library = f"v0.{release.removeprefix('1.')}"
    return "\n".join(
        [f"{ours}require k8s.io/kubernetes v{release}", *(f"replace {each} => {each} {library}" for each in staged), ""]
    )


def _run(command: list[str], module: Path) -> str:
    """What the Go command prints in that module. Raises RuntimeError with its words if it fails."""
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
    done = subprocess.run(command, cwd=module, env=environment, check=False, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"go {command[1]} of the API server failed:\n{done.stderr[-4000:]}")
    return done.stdout


def _release() -> str:
    """The chosen release of Kubernetes, ``1.36.3``."""
    release = os.environ.get(CHOICE) or usual_release()
    if not re.fullmatch(r"1\.\d+\.\d+", release):
        raise ValueError(f"{CHOICE}={release} is no release of Kubernetes: write it like {usual_release()}")
    return release


def usual_release() -> str:
    """The release of Kubernetes that ``go.mod`` has."""
    return _pinned(r"^\s*k8s\.io/kubernetes v(\S+)")[1]


def _ldflags(release: str) -> str:
    """Linker flags: no symbols, and the release, which only Kubernetes' own build scripts would set."""
    major, minor, _ = release.split(".", 2)
    values = {"gitVersion": f"v{release}", "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items())])


def _pinned(pattern: str) -> re.Match[str]:
    found = re.search(pattern, (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert found, pattern
    return found
