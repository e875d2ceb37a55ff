"""Policies from a file or from the package."""

from __future__ import annotations

from pathlib import Path

from virt_admit.policy import parser
from virt_admit.policy.policy import SHIPPED, Policy
from virt_admit.rules import Rules
from virt_admit.settings import SettingError


def policy_file(name: str) -> Path | None:
    """Return the file that ``--policy`` names; None for a shipped policy.

    Raises:
        SettingError: the file does not exist.
    """
    if name in SHIPPED:
        return None
    path = Path(name)
    if not path.is_file():
        raise SettingError(f"--policy {name}: no such file, and not one of {', '.join(SHIPPED)}")
    return path


def load_policy(name: str, rules: Rules) -> Policy:
    """Load the policy with that name or from that file.

    Raises:
        SettingError, OSError: the file does not exist or cannot be read.
        PolicyError: the policy is not valid.
    """
    file = policy_file(name)
    return parser.load(name, rules) if file is None else parser.parse(file.read_bytes(), rules, str(file))
