"""A page in a real browser: no error, no request, no axe violation, keyboard and filter work."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.reports.formats.reports import both_keys, scanned
from tests.reports.html.test_pages import ATTACK, node, snapshot, vmi
from virt_admit.model.kubevirt.drain_plan import plan
from virt_admit.reports.html import drain, findings, page
from virt_admit.reports.report import Report

MODULES = Path(os.environ.get("VIRT_ADMIT_NODE_MODULES", ".browser/node_modules")).absolute()
CHROMIUM = shutil.which("chromium")
MISSING = not (CHROMIUM and shutil.which("node") and (MODULES / "axe-core").is_dir())


@pytest.fixture(autouse=True)
def browser():
    if MISSING:
        hint = "make browser installs Chromium, playwright-core and axe-core"
        assert not os.environ.get("VIRT_ADMIT_REQUIRE_BROWSER"), hint
        pytest.skip(hint)


def pages():
    results = [one for name in ("a", "b", ATTACK) for one in scanned(both_keys(name=name)).results]
    cluster = snapshot(node("w1"), node("w2"), vmi("db", node="w1", migratable="False"), vmi("web", node="w2"))
    return {"findings": findings.page(Report(tuple(results))), "drain": drain.page(plan(cluster), cluster)}


@pytest.mark.parametrize("name", ["findings", "drain"])
def test_a_page(name, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page.render(pages()[name]))
    environ = {**os.environ, "NODE_PATH": str(MODULES), "CHROMIUM": str(CHROMIUM)}
    script = str(Path(__file__).with_name("visit.cjs"))
    done = subprocess.run(
        ["node", script, file.as_uri()], capture_output=True, text=True, timeout=120, env=environ, check=False
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["errors"] == []
    assert set(seen["requests"]) <= {file.as_uri(), "data:,"}
    assert seen["violations"] == []
    assert seen["sorted"] == 1
    assert seen["before"] > 0
    assert seen["after"] == 0
