"""The image as `make image` builds it: its size, its labels, its rights, and its start."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.control_plane import free_port
from tests.image.engine import BASE, Buildah, command, missing, run
from tests.install.every_command import RUNS, inputs
from tests.install.test_image import is_ready
from tests.paths import ROOT
from tests.waiting import eventually
from tests.work import slowness
from virt_admit import __version__

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

OUR_BYTES = 70_000_000
START_SECONDS = 2.0
"""Seconds of CPU until the webhook is ready, on the reference machine of tests/work.py."""


@dataclass(frozen=True)
class Image:
    """An image that was built, and the root file system of a container of it."""

    config: dict[str, Any]
    root: Path
    bytes: int
    base_bytes: int

    def command(self, *arguments: str, inputs: Path | str = "") -> list[str]:
        return command(self.root, self.config["config"], *arguments, inputs=inputs)

    def run(self, *arguments: str, inputs: Path | str = "") -> subprocess.CompletedProcess[str]:
        words = self.command(*arguments, inputs=inputs)
        return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    if lack := missing():
        assert not os.environ.get("VIRT_ADMIT_REQUIRE_IMAGE"), f"building the image needs {lack}"
        pytest.skip(f"building the image needs {lack}: make image-test, as root, installs it")
    buildah = Buildah(tmp_path_factory.mktemp("image"))
    buildah.add_base()
    run(
        "make",
        "image",
        f"ENGINE={' '.join(buildah.build)}",
        f"BASE={BASE}",
        "IMAGE=virt-admit",
        cwd=ROOT,
    )
    with buildah.mounted("virt-admit") as root:
        config = buildah.inspect("virt-admit")
        yield Image(config, root, buildah.size("virt-admit"), buildah.size(BASE))


def test_our_part_is_small(image: Image):
    ours = image.bytes - image.base_bytes
    print(
        f"image {image.bytes / 1e6:.0f} MB, base {image.base_bytes / 1e6:.0f} MB, ours "
        f"{ours / 1e6:.0f} MB"
    )
    assert 20_000_000 < ours <= OUR_BYTES
    blocks = run("du", "--summarize", "--block-size=1", image.root / "opt" / "virt-admit").split()[
        0
    ]
    assert int(blocks) <= OUR_BYTES


def test_it_is_labelled_with_version_and_revision(image: Image):
    labels = image.config["config"]["Labels"]
    prefix = "org.opencontainers.image"
    assert labels[f"{prefix}.version"] == __version__
    assert labels[f"{prefix}.revision"].startswith(
        run("git", "rev-parse", "HEAD", cwd=ROOT).strip()
    )
    assert labels[f"{prefix}.title"] == "virt-admit"
    assert f"VIRT_ADMIT_REVISION={labels[f'{prefix}.revision']}" in image.config["config"]["Env"]


def test_it_tells_its_version_without_any_right(image: Image):
    done = image.run("virt-admit", "--version")
    assert (done.stdout, done.stderr) == (f"virt-admit {__version__}\n", "")


def test_only_tmp_is_writable(image: Image):
    script = (
        "id -u; for folder in / /opt/virt-admit /dev /home; do touch $folder/x; done; touch /tmp/x "
        "&& echo tmp"
    )
    done = image.run("sh", "-c", script)
    assert done.stdout == "65532\ntmp\n"
    assert done.stderr.count("touch: cannot touch") == 4


def test_it_has_no_pip_of_its_own(image: Image):
    assert image.run("/opt/virt-admit/bin/python", "-c", "import virt_admit").returncode == 0
    assert image.run("/opt/virt-admit/bin/python", "-c", "import pip").returncode == 1
    assert not list(image.root.glob("opt/virt-admit/bin/pip*"))


def test_every_command_runs_in_it(image: Image, tmp_path: Path):
    tmp_path.chmod(0o755)
    with inputs(tmp_path):
        for each in RUNS:
            # they write into the inputs, which are read-only here
            if not each.arguments.startswith("certs"):
                done = image.run("virt-admit", *each.words("/mnt"), inputs=tmp_path)
                assert done.returncode == each.exit_code, (
                    f"{each.arguments}\n{done.stdout}{done.stderr}"
                )
                assert each.says in done.stdout + done.stderr, each.arguments


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and its children, those that ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + sum(
        map(cpu_seconds, map(int, children))
    )


def test_it_is_ready_soon_and_judges(image: Image):
    port, ops = free_port(), free_port()
    arguments = [
        "--bind",
        f"127.0.0.1:{port}",
        "--ops-bind",
        f"127.0.0.1:{ops}",
        "--certs",
        "/tmp/certs",
    ]
    entry = image.config["config"]["Entrypoint"] + image.config["config"]["Cmd"]
    assert entry == ["virt-admit", "serve"]
    slow, began = slowness(), time.monotonic()
    process = subprocess.Popen(
        image.command(*entry, *arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        assert eventually(lambda: process.poll() is None and is_ready(ops))
        seconds, cpu = time.monotonic() - began, cpu_seconds(process.pid)
        slow = (slow + slowness()) / 2
        print(
            f"start to ready: {seconds:.2f} s, {cpu:.2f} s of processor time, {cpu / slow:.2f} s "
            "on the reference machine"
        )
        review = (ROOT / "tests" / "contract" / "denied.json").read_bytes()
        request = json.dumps(json.loads(review)["review"]).encode()
        trust = ssl.create_default_context(cafile=f"/proc/{process.pid}/root/tmp/certs/ca.crt")
        url, headers = f"https://127.0.0.1:{port}/validate", {"Content-Type": "application/json"}
        asked = urllib.request.Request(url, request, headers)
        with urllib.request.urlopen(asked, context=trust, timeout=60) as response:
            assert json.load(response)["response"]["allowed"] is False
    finally:
        process.terminate()
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output.decode()
    assert cpu / slow <= START_SECONDS
