"""The API server's own validator of policies: the Go program of ``policies``,
asked with one line for each request.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PolicyDecision:
    denied: bool
    message: str
    error: str
    cost: int
    """What the validation cost, with its variables and its message;
    the API server stops at 10,000,000.
    """


def decide(
    program: Path, policies: Sequence[Any], requests: Iterable[dict[str, Any]]
) -> list[PolicyDecision]:
    """Return what the policies say about each request, of which ``policy`` names one."""
    lines = [json.dumps([each for each in policies if each["kind"] == "ValidatingAdmissionPolicy"])]
    lines += map(json.dumps, requests)
    done = subprocess.run(
        [program], input="\n".join(lines) + "\n", check=False, text=True, capture_output=True
    )
    assert not done.returncode, done.stderr[-4000:]
    return [PolicyDecision(**json.loads(line)) for line in done.stdout.splitlines()]
