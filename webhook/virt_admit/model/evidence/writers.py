"""Signs that a tool writes an object from a repository or a chart, and would revert a change."""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model.kubernetes.objects import Object

_TRACKED: Final = "argocd.argoproj.io/tracking-id"
"""Its value begins with the name of the application."""


class Writer(NamedTuple):
    """What writes an object."""

    tool: str
    """``Argo CD``"""
    source: str
    """What of that tool, as ``Argo CD application web``."""


_WRITERS: Final = (
    ("argocd.argoproj.io/instance", "Argo CD", "application"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux", "Kustomization"),
    ("helm.toolkit.fluxcd.io/name", "Flux", "HelmRelease"),
    ("meta.helm.sh/release-name", "Helm", "release"),
)
"""Labels and annotations with the name of what writes an object."""


def of(obj: Object) -> Writer | None:
    """Return what writes an object; None: nothing says so."""
    if application := (obj.annotations.get(_TRACKED) or "").partition(":")[0]:
        return Writer("Argo CD", f"Argo CD application {application.replace('_', '/')}")
    for key, tool, what in _WRITERS:
        if name := obj.labels.get(key) or obj.annotations.get(key):
            return Writer(tool, f"{tool} {what} {name}")
    return None
