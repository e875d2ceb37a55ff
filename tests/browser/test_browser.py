"""Every kind of page in a real browser: errors, requests, accessibility, keyboard, print,
no script, 10,000 VMs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.reports.html import samples
from tests.reports.html.test_pages import ATTACK
from tests.work import slowness

MODULES = Path(os.environ.get("VIRT_ADMIT_NODE_MODULES", ".browser/node_modules")).absolute()
CHROMIUM = shutil.which("chromium")
MISSING = not (CHROMIUM and shutil.which("node") and (MODULES / "axe-core").is_dir())
HINT = "make browser installs Chromium, playwright-core and axe-core"
WHITE = "rgb(255, 255, 255)"
KINDS = (*samples.NAMED, "explain", "many")
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="session", autouse=True)
def browser():
    if MISSING:
        assert not os.environ.get("VIRT_ADMIT_REQUIRE_BROWSER"), HINT
        pytest.skip(HINT)


@pytest.fixture(scope="session")
def visited(browser, tmp_path_factory):
    """What the browser saw of each page."""
    folder = tmp_path_factory.mktemp("pages")
    explained = samples.explained(folder, ATTACK)
    texts = samples.named(ATTACK) | {"explain": explained, "many": samples.many()}
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text)
    urls = {name: (folder / f"{name}.html").as_uri() for name in texts}
    environ = {**os.environ, "NODE_PATH": str(MODULES), "CHROMIUM": str(CHROMIUM)}
    script = str(Path(__file__).with_name("visit.cjs"))
    slow = slowness()
    done = subprocess.run(
        ["node", script, *urls.values()],
        capture_output=True,
        text=True,
        timeout=800,
        env=environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen, slow = json.loads(done.stdout), (slow + slowness()) / 2
    return {name: seen[url] | {"url": url, "slow": slow} for name, url in urls.items()}


@pytest.mark.parametrize("name", KINDS)
def test_no_error_no_request_no_violation(name, visited):
    seen = visited[name]
    assert seen["errors"] == []
    assert set(seen["requests"]) <= {seen["url"], "data:,"}
    assert seen["violations"] == []
    assert seen["overflow"] <= 0


@pytest.mark.parametrize("name", KINDS)
def test_the_keyboard_sorts_opens_and_filters(name, visited):
    seen = visited[name]
    assert seen["first_focus"] == "#content"
    assert seen["sorted"] == 1
    assert seen.get("opened", 1) == 1
    assert seen["after"] == 0
    assert seen["before"] > 0 or name in ("explain", "plan")


@pytest.mark.parametrize("name", KINDS)
def test_paper_shows_every_object(name, visited):
    assert visited[name]["print"]
    for paper in visited[name]["print"]:
        assert (paper["hidden"], paper["form"], paper["paper"]) == (0, False, WHITE)
        assert paper["pdf"] > 10_000


@pytest.mark.parametrize("name", KINDS)
def test_everything_can_be_read_without_script(name, visited):
    plain = visited[name]["plain"]
    assert not plain["form"]
    assert "Evidence" in plain["text"]
    assert "alert(1)" in plain["text"] or name == "many"


def test_ten_thousand_machines_open_in_two_seconds(visited):
    """The best of some loads, by the page's CPU time on the reference machine of tests/work.py."""
    times, slow = visited["many"]["times"], visited["many"]["slow"]
    assert min(one["cpu"] for one in times) / slow < 2, (times, slow)


def test_ten_thousand_machines_are_printed_in_ten_seconds(visited):
    """By the same measure. In balanced columns they took 27 s."""
    (paper,), slow = visited["many"]["print"], visited["many"]["slow"]
    assert paper["cpu"] / slow < 10, (paper, slow)
