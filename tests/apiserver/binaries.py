"""The programs of a real API server: those of ``KUBEBUILDER_ASSETS``,
otherwise built once with Go and cached.

``go.mod`` in this folder names them and their release. ``VIRT_ADMIT_KUBERNETES=1.30.14`` chooses
another release, with the etcd that this release is tested with. kube-scheduler, and ``oracle`` with
its filters alone, are built separately, when a test first asks for them.
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

Announce = Callable[[str], None]

MODULE = Path(__file__).resolve().parent
CHOICE = "VIRT_ADMIT_KUBERNETES"


class Unavailable(Exception):
    """This machine has no binaries and cannot build them; the text says what would help."""


@dataclass(frozen=True)
class Build:
    """Programs that are built and cached together."""

    cache: str
    names: tuple[str, ...]
    packages: str
    """What ``go build`` is told: ``tool`` means every tool of ``go.mod``."""
    source: Path | None = None
    """A Go file of ours. It is written for the release in ``go.mod``,
    so it is built with no other.
    """
    more_modules: bool = False
    """Whether it needs modules that ``go.sum`` does not list.
    Kubernetes' own ``go.mod`` fixes their versions.
    """

    @property
    def release(self) -> str:
        return usual_release() if self.source else _release()


API_SERVER = Build("apiserver", ("etcd", "kube-apiserver", "kubectl"), "tool")
# Not a tool of go.mod: few tests need it, and the others must not wait for it.
SCHEDULER = Build("scheduler", ("kube-scheduler",), "k8s.io/kubernetes/cmd/kube-scheduler")
CONTROLLERS = Build(
    "controllers",
    ("kube-controller-manager",),
    "k8s.io/kubernetes/cmd/kube-controller-manager",
    more_modules=True,
)
ORACLE = Build("oracle", ("oracle",), "./oracle", MODULE / "oracle" / "main.go")
POLICIES = Build("policies", ("policies",), "./policies", MODULE / "policies" / "main.go")
NAMES = API_SERVER.names


def _print(line: str) -> None:
    print(line, file=sys.stderr)


@dataclass(frozen=True)
class Binaries:
    """The paths of the programs."""

    etcd: Path
    kube_apiserver: Path
    kubectl: Path

    def kube_scheduler(self, announce: Announce = _print) -> Path:
        """Return the path of the scheduler; build it the first time. Raises as ``binaries`` does.

        The usual contents of ``KUBEBUILDER_ASSETS`` do not include a scheduler, so Go builds it
        there too.
        """
        given = self.kube_apiserver.with_name("kube-scheduler")
        return given if given.is_file() else _built(SCHEDULER, announce) / "kube-scheduler"


def binaries(announce: Announce = _print) -> Binaries:
    """Find the programs; build them the first time,
    which takes minutes and is announced with one line.

    Raises Unavailable without Go, FileNotFoundError if ``KUBEBUILDER_ASSETS`` lacks one of them,
    ValueError if the chosen release is not valid, and RuntimeError with the output of Go if the
    build fails.
    """
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        folder = Path(assets).resolve()
        if missing := [name for name in NAMES if not (folder / name).is_file()]:
            raise FileNotFoundError(
                f"KUBEBUILDER_ASSETS={assets} does not contain {', '.join(missing)}"
            )
    else:
        folder = _built(API_SERVER, announce)
    return Binaries(*(folder / name for name in NAMES))


def controller_manager(announce: Announce = _print) -> Path:
    """Return the program with Kubernetes' own controllers; build it the first time,
    as ``binaries``.
    """
    return _built(CONTROLLERS, announce) / "kube-controller-manager"


def scheduler_oracle(announce: Announce = _print) -> Path:
    """Return the program that answers as the filters of kube-scheduler; build it the first time,
    as ``binaries``.
    """
    return _built(ORACLE, announce) / "oracle"


def policy_oracle(announce: Announce = _print) -> Path:
    """Return the program that evaluates policies as kube-apiserver does; build it the first time,
    as ``binaries``.
    """
    return _built(POLICIES, announce) / "policies"


def cache_folder(build: Build = API_SERVER) -> Path:
    """Return the folder of a build, outside the checkout:
    one for each other release and each state of ``go.mod``.
    """
    key = build.release
    if key == usual_release():
        files = [MODULE / "go.mod", MODULE / "go.sum", *([build.source] if build.source else [])]
        key = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "virt-admit" / f"{build.cache}-{key}"


def _complete(folder: Path, build: Build) -> bool:
    return all((folder / name).is_file() for name in build.names)


def _built(build: Build, announce: Announce) -> Path:
    """Return the folder with these programs.

    They are built in a scratch folder that is renamed, so that the cache is either complete or does
    not exist. A lock lets one process build at a time.
    """
    folder = cache_folder(build)
    if _complete(folder, build):
        return folder
    go, release = go_command(build), build.release
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _complete(folder, build):  # another process built it while we waited
            return folder
        announce(f"building {', '.join(build.names)} v{release} once, some minutes, into {folder}")
        with TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as scratch:
            built = Path(scratch) / "bin"
            built.mkdir()
            module, changes = MODULE, "readonly"
            if release != usual_release():
                # Go adds what Kubernetes' own go.mod requires
                module, changes = Path(scratch), "mod"
                (module / "go.mod").write_text(_go_mod(go, release))
            elif build.more_modules:
                module, changes = Path(scratch), "mod"
                for name in ("go.mod", "go.sum"):
                    shutil.copy(MODULE / name, module)
            flags = (f"-mod={changes}", "-trimpath", "-ldflags", _ldflags(release))
            run_go([go, "build", *flags, "-o", f"{built}/", build.packages], module)
            if (server := built / "server").exists():  # Go names a program after its package
                server.rename(built / "etcd")
            shutil.rmtree(folder, ignore_errors=True)
            built.rename(folder)
    return folder


def go_command(build: Build) -> str:
    """Return the Go command if it is new enough, or fetches newer toolchains itself.

    Raises Unavailable.
    """
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
    version = f"Go {'.'.join(needed)} or newer on the PATH to be built once"
    if build is API_SERVER:
        raise Unavailable(
            f"a real kube-apiserver needs {version}, or KUBEBUILDER_ASSETS=<folder with "
            f"{', '.join(NAMES)}>"
        )
    raise Unavailable(f"{', '.join(build.names)} needs {version}")


def _go_mod(go: str, release: str) -> str:
    """Return the ``go.mod`` of another release: our tools,
    with the versions that Kubernetes' own ``go.mod`` has.
    """
    module = run_go([go, "list", "-m", "-json", f"k8s.io/kubernetes@v{release}"], MODULE)
    theirs = Path(json.loads(module)["GoMod"]).read_text()
    staged = re.findall(r"^\s*(\S+) => \./staging/", theirs, re.MULTILINE)
    ours = (MODULE / "go.mod").read_text().partition("require (")[0]
    library = f"v0.{release.removeprefix('1.')}"
    return "\n".join(
        [
            f"{ours}require k8s.io/kubernetes v{release}",
            *(f"replace {each} => {each} {library}" for each in staged),
            "",
        ]
    )


def run_go(command: list[str], module: Path) -> str:
    """Return what the Go command prints in that module.

    Raises RuntimeError with its output if it fails.
    """
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
    done = subprocess.run(
        command, cwd=module, env=environment, check=False, text=True, capture_output=True
    )
    if done.returncode:
        raise RuntimeError(f"go {command[1]} failed:\n{done.stderr[-4000:]}")
    return done.stdout


def _release() -> str:
    """Return the chosen release of Kubernetes, such as ``1.36.3``."""
    release = os.environ.get(CHOICE) or usual_release()
    if not re.fullmatch(r"1\.\d+\.\d+", release):
        raise ValueError(
            f"{CHOICE}={release} is not a Kubernetes release: write it like {usual_release()}"
        )
    return release


def usual_release() -> str:
    """Return the release of Kubernetes in ``go.mod``."""
    return _pinned(r"^\s*k8s\.io/kubernetes v(\S+)")[1]


def _ldflags(release: str) -> str:
    """Return linker flags: no symbols, and the release,
    which otherwise only Kubernetes' own build scripts set.
    """
    major, minor, _ = release.split(".", 2)
    values = {"gitVersion": f"v{release}", "gitMajor": major, "gitMinor": minor}
    return " ".join(
        [
            "-s -w",
            *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items()),
        ]
    )


def _pinned(pattern: str) -> re.Match[str]:
    found = re.search(pattern, (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert found, pattern
    return found


if __name__ == "__main__":  # before pytest-xdist, whose workers cannot announce a build
    try:
        binaries().kube_scheduler()
        controller_manager()
        scheduler_oracle()
    except Unavailable as reason:
        _print(str(reason))
