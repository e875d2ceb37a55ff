"""``check`` of one file starts fast: what it imports and builds,
because times differ between machines.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

VM = """
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: a}
spec: {runStrategy: Always, template: {spec: {domain: {devices: {}}}}}
"""

LOADED = """
import dataclasses, json, sys
before = set(sys.modules)
from virt_admit.cli.main import main
sys.argv = ["virt-admit", "check", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert end.code in (0, 1), end.code
modules = sorted(set(sys.modules) - before)
classes = {value for name in modules if name.startswith("virt_admit")
           for value in vars(sys.modules[name]).values() if isinstance(value, type)}
print(json.dumps([modules, sorted(c.__qualname__ for c in classes if dataclasses.is_dataclass(c))]))
"""

UNUSED = (
    "logging",  # only rules that crash and special files are logged
    "hashlib",  # loads OpenSSL
    "fractions",
    "virt_admit.cli.html_output",
    "virt_admit.documents.diff",
    "virt_admit.documents.edit",
    "virt_admit.documents.json_reader",
    "virt_admit.install",
    "virt_admit.kube.cache",
    "virt_admit.kube.client",
    "virt_admit.model.scheduler.filters",
    "virt_admit.reports.findings.formats.sarif",
    "virt_admit.reports.html",
    "virt_admit.serving",
)


def loaded(folder: Path, manifest: str) -> tuple[list[str], list[str]]:
    """Return what ``check`` of a manifest imports, and the dataclasses in it."""
    (folder / "one.yaml").write_text(manifest)
    command: list[Any] = [
        sys.executable,
        "-c",
        LOADED,
        "one.yaml",
        "-q",
        "-o",
        f"text={folder / 'report'}",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    modules, dataclasses = json.loads(done.stdout)
    return modules, dataclasses


def test_a_virtual_machine_loads_little(tmp_path: Path) -> None:
    modules, dataclasses = loaded(tmp_path, VM)
    assert [name for name in UNUSED if name in modules] == []
    own = [name for name in modules if name.startswith("virt_admit")]
    assert len(own) <= 145, f"each module takes 0.2 ms: {own}"
    assert len(dataclasses) <= 18, f"each dataclass takes 0.4 ms, a named tuple 0.06: {dataclasses}"
