"""Where a policy comes from: a file, or what is shipped."""

from __future__ import annotations

from pathlib import Path

from virt_admit.policy import parser
from virt_admit.policy.policy import SHIPPED, Policy
from virt_admit.rules import Rules
from virt_admit.settings import SettingError


def policy_file(name: str) -> Path | None:
    """The file that ``--policy`` names; None for a shipped policy.

    Raises:
        SettingError: there is no such file.
    """
    if name in SHIPPED:
        return None
    path = Path(name)
    if not path.is_file():
        raise SettingError(f"--policy {name}: no such file, and not one of {', '.join(SHIPPED)}")
    return path


def load_policy(name: str, rules: Rules) -> Policy:
    """The policy of that name or in that file.

    Raises:
        SettingError, OSError: the file is not there or cannot be read.
        PolicyError: it is no policy.
    """
    file = policy_file(name)
    return parser.load(name, rules) if file is None else parser.parse(file.read_bytes(), rules, str(file))
