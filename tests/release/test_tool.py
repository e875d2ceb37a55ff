"""The command alone, installed from a local wheel as README.md says, on the Python of the tests.

``make test`` leaves the installation by pip to ``make verify-installation``, which takes each
Python that this machine has: krew's plugin makes an environment and runs pip too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from release import krew
from tests.install.wheels import wheels
from tests.paths import ROOT
from virt_admit import __version__

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

README = (ROOT / "README.md").read_text()
INSTALLERS = ("uv==0.13.9", "pipx==1.18.4")
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
OWN_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
PATH = "/usr/bin:/bin"


def python(version: str) -> str | None:
    """Return a Python of this version: that of the tests, of pyenv, or on the PATH."""
    installed = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python3"))
    here = sys.executable if version == OWN_VERSION else None
    # pyenv's own python3.12 on the PATH is a shim, which may refuse to run
    return here or (str(installed[-1]) if installed else shutil.which(f"python{version}"))


def run(command: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in the folder, which is also the home."""
    environ = {
        "HOME": str(folder),
        "PATH": f"{folder}/bin:{folder}/.local/bin:{PATH}",
        "LANG": "C.UTF-8",
        **environ,
    }
    shell = ["bash", "-euo", "pipefail", "-c", command]
    return subprocess.run(
        shell, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Return a folder with the wheel, as `make release-files` builds it, and krew's archive."""
    folder = tmp_path_factory.mktemp("dist")
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(folder),
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    krew.write(folder)
    return folder


@pytest.fixture(scope="module")
def installers():
    """Return the folder with uv and pipx; installed once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "virt-admit"
    folder = cache / "-".join(["installers", *(each.replace("==", "") for each in INSTALLERS)])
    if not (folder / "bin" / "pipx").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run(
            [folder / "bin" / "pip", "install", "-q", *INSTALLERS], check=True, capture_output=True
        )
    return folder / "bin"


def offline(dist: Path, executable: str) -> dict[str, str]:
    """Return settings with which pip and uv find the wheel and the locked dependencies,
    and nothing else.
    """
    links = [str(dist), str(wheels(executable))]
    (dist / "uv.toml").write_text(f"no-index = true\nfind-links = {json.dumps(links)}\n")
    return {
        "PIP_NO_INDEX": "1",
        "PIP_NO_COMPILE": "1",  # 40 s of processor time for the classes that kubernetes generates
        "PIP_FIND_LINKS": " ".join(links),
        "UV_CONFIG_FILE": str(dist / "uv.toml"),
        "UV_PYTHON": executable,
        "UV_PYTHON_DOWNLOADS": "never",
        "PIPX_DEFAULT_PYTHON": executable,
    }


def lines() -> dict[str, str]:
    """Return the installing lines of README.md by their first word."""
    (block,) = re.findall(r"## Install the command\n.*?```console\n(.*?)```", README, re.DOTALL)
    return {line.split()[0]: line for line in block.splitlines()}


def assert_it_works(folder: Path, bin_folder: Path, prefix: str = "") -> None:
    plugin = "kubectl-virt_admit"
    assert run(f"{bin_folder}/virt-admit --version", folder).stdout == f"virt-admit {__version__}\n"
    assert run(f"{bin_folder}/{plugin} --version", folder).stdout == f"virt-admit {__version__}\n"
    done = run(f"{bin_folder}/virt-admit check {ROOT}/examples/03-both-keys.yaml", folder)
    assert (done.returncode, "[vm-running-and-run-strategy]" in done.stdout) == (1, True), (
        done.stderr
    )


def test_each_line_installs_the_package_by_its_name():
    assert lines().keys() == {"pipx", "uv", "python3"}
    assert all(line.endswith(" install virt-admit") for line in lines().values())


@pytest.mark.parametrize("version", VERSIONS if os.environ.get("ALL_PYTHONS") else [OWN_VERSION])
def test_pip_in_a_virtual_environment(version, dist, tmp_path):
    executable = python(version)
    if executable is None:
        pytest.skip(f"this machine has no Python {version}")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(executable)
    done = run(lines()["python3"], tmp_path, **offline(dist, executable))
    assert done.returncode == 0, done.stderr
    assert_it_works(tmp_path, tmp_path / "virt-admit" / "bin")
    assert f"python{version}" in str(next((tmp_path / "virt-admit" / "lib").iterdir()))


@pytest.mark.parametrize("installer", ["pipx", "uv"])
def test_an_installer_of_tools(installer, dist, installers, tmp_path):
    settings = offline(dist, sys.executable) | {"PATH": f"{installers}:{PATH}"}
    done = run(lines()[installer], tmp_path, **settings)
    assert done.returncode == 0, done.stderr
    assert_it_works(tmp_path, tmp_path / ".local" / "bin")


def test_pipx_installs_a_checkout(dist, installers, tmp_path):
    """What README.md names as long as there is no release."""
    (command,) = re.findall(r"`(pipx install \.)`", README)
    checkout = tmp_path / "checkout"
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, tracked.split("\0")):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, checkout / name)
    settings = offline(dist, sys.executable) | {"PATH": f"{installers}:{PATH}"}
    done = run(f"cd checkout && {command}", tmp_path, **settings)
    assert done.returncode == 0, done.stderr
    assert_it_works(tmp_path, tmp_path / ".local" / "bin")


def test_uvx_runs_it_without_an_installation(dist, installers, tmp_path):
    (command,) = re.findall(r"`(uvx .*?)`", README)
    (tmp_path / "manifests").mkdir()
    shutil.copy(ROOT / "examples" / "03-both-keys.yaml", tmp_path / "manifests")
    done = run(command, tmp_path, **offline(dist, sys.executable), PATH=f"{installers}:{PATH}")
    assert (done.returncode, "[vm-running-and-run-strategy]" in done.stdout) == (1, True), (
        done.stderr
    )
    assert not (tmp_path / ".local" / "bin").exists()


def test_the_archive_of_krew(dist, tmp_path):
    """krew extracts the archive and links to the file that the manifest names."""
    (name,) = re.findall(r"--archive=(\S+?)`", README)
    with tarfile.open(dist / name) as archive:
        archive.extractall(tmp_path / "store", filter="data")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    (tmp_path / "bin" / "kubectl-virt_admit").symlink_to(tmp_path / "store" / krew.PLUGIN)
    first = run("kubectl-virt_admit --version", tmp_path, **offline(dist, sys.executable))
    assert (first.returncode, first.stdout) == (0, f"virt-admit {__version__}\n"), first.stderr
    assert "installing the locked dependencies (once)" in first.stderr
    again = run("kubectl-virt_admit rules", tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
