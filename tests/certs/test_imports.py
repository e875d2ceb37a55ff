"""What this package may import: it stands alone, and pays for the API client only where it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

STRANGERS = ("webhook", "flask", "gunicorn", "prometheus_client", "kubernetes", "click", "yaml")
MODULES = ("issue", "plan", "steps", "store", "rotate", "context", "status", "commands", "verify")


@pytest.mark.parametrize("module", MODULES)
def test_no_stranger_is_imported(module):
    code = f"import sys, virt_admit_certs.{module}; print(*sorted(set(sys.modules) & {set(STRANGERS)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []
