"""Policies from a file or from the package, and the name of the ConfigMap that may hold one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple, Self

from virt_admit.documents.files import nearest
from virt_admit.model.messages import did_you_mean
from virt_admit.policy import parser
from virt_admit.policy.policy import SHIPPED, Policy
from virt_admit.rules import Rules
from virt_admit.settings import POLICY_CONFIGMAP, SettingError


def policy_file(name: str) -> Path | None:
    """Return the file that ``--policy`` names; None for a shipped policy.

    Raises:
        SettingError: the file does not exist.
    """
    if name in SHIPPED:
        return None
    path = Path(name)
    if not path.is_file():
        meant = did_you_mean(name, SHIPPED)
        hint = f". Did you mean {meant}?" if meant else nearest(name)
        raise SettingError(
            f"--policy {name}: no such file, and not one of {', '.join(SHIPPED)}{hint}"
        )
    return path


def load_policy(name: str, rules: Rules) -> Policy:
    """Load the policy with that name or from that file.

    Raises:
        SettingError, OSError: the file does not exist or cannot be read.
        PolicyError: the policy is not valid.
    """
    file = policy_file(name)
    return parser.load(name, rules) if file is None else parser.parse(_read(file), rules, str(file))


def _read(file: Path) -> bytes:
    """Return the content of a file, or as much of it as shows that it is too large."""
    with file.open("rb") as content:
        return content.read(parser.MAX_BYTES + 1)


_CONFIGMAP: Final = r"([^/,=]+)/([^/,=]+)(?:,fallback=([^/,=]+))?"


class PolicyConfigMap(NamedTuple):
    """The ConfigMap with the policy of a cluster."""

    namespace: str
    name: str
    fallback: str = "default"
    """The shipped policy that is in force while the ConfigMap does not exist."""

    @classmethod
    def parse(cls, text: str = POLICY_CONFIGMAP) -> Self:
        """Parse ``NAMESPACE/NAME[,fallback=audit|default|strict]``.

        Raises:
            SettingError: the text has another form.
        """
        found = re.fullmatch(_CONFIGMAP, text)
        if not found or found[3] not in (None, *SHIPPED):
            form = f"NAMESPACE/NAME or NAMESPACE/NAME,fallback={'|'.join(SHIPPED)}"
            raise SettingError(f"--policy-configmap {text} is not {form}")
        return cls(found[1], found[2], found[3] or "default")

    @property
    def path(self) -> str:
        """The URL path of the ConfigMap."""
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{self.name}"

    def __str__(self) -> str:
        return f"ConfigMap {self.namespace}/{self.name}"
