"""The names that the parts of virt-admit share, and the error of a setting that is not valid."""

from __future__ import annotations

from typing import Final

DOMAIN: Final = "virt-admit.io"
"""The API group of policies and snapshots, and the prefix of annotations,
labels and webhook names.
"""
API_VERSION: Final = f"{DOMAIN}/v1alpha1"
"""The API version of policies and snapshots."""
DOCS_URL: Final = f"https://{DOMAIN}/docs"
"""Where links in reports and alerts lead by default: the folder ``docs`` of the project.
``VIRT_ADMIT_DOCS_URL`` replaces it, because a company reads a copy of its own.
"""
NAMESPACE: Final = "virt-admit"
SERVICE: Final = "virt-admit-webhook"
CERTS_SECRET: Final = f"{NAMESPACE}/virt-admit-certs"
POLICY_CONFIGMAP: Final = f"{NAMESPACE}/virt-admit-policy"
LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")

SERVICE_NAMES: Final = (f"{SERVICE}.{NAMESPACE}.svc", f"{SERVICE}.{NAMESPACE}.svc.cluster.local")


class SettingError(ValueError):
    """A setting is not valid. Each problem names the setting, its value and a valid alternative."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
