"""What this package may import: it stands alone, and pays for the API client only where it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import virt_admit_certs
from tests.for_each import for_each

STRANGERS = ("virt_admit", "flask", "gunicorn", "prometheus_client", "kubernetes", "click", "yaml")
PACKAGE = Path(virt_admit_certs.__file__).parent
MODULES = sorted(
    ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
    for file in PACKAGE.rglob("*.py")
    if file.name != "__init__.py"
)


@for_each("module", MODULES)
def test_no_stranger_is_imported(module):
    code = f"import sys, virt_admit_certs.{module}; print(*sorted(set(sys.modules) & {set(STRANGERS)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []
