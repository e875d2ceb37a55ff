"""What this package may import: it stands alone,
and pays for the API client only where it is used.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import virt_admit_certs

STRANGERS = ("virt_admit", "flask", "gunicorn", "prometheus_client", "kubernetes", "click", "yaml")
PACKAGE = Path(virt_admit_certs.__file__).parent
MODULES = sorted(
    ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
    for file in PACKAGE.rglob("*.py")
    if file.name != "__init__.py"
)


def test_no_stranger_is_imported():
    """One interpreter imports all modules, and says after each which strangers there are."""
    steps = [
        f"import virt_admit_certs.{module}; print(*set(sys.modules) & strangers)"
        for module in MODULES
    ]
    code = "\n".join([f"import sys; strangers = {set(STRANGERS)!r}", *steps])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert dict(zip(MODULES, done.stdout.splitlines(), strict=True)) == dict.fromkeys(MODULES, "")
