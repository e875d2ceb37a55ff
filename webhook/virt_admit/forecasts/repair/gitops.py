"""Signs that an object is written by a tool which would revert a change of it."""

from __future__ import annotations

from typing import Final

from virt_admit.model.kubernetes.objects import Object

_ARGO: Final = ("argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance")
_FLUX: Final = ("kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name")
_HELM: Final = ("meta.helm.sh/release-name",)
_TOOLS: Final = (("Argo CD", _ARGO), ("Flux", _FLUX), ("Helm", _HELM))


def hint(obj: Object) -> str:
    """Return who writes an object, and what to do about it; empty: nothing says a tool does."""
    for tool, keys in _TOOLS:
        if any(key in obj.annotations or key in obj.labels for key in keys):
            return (
                f"{tool} writes this object: change it in the repository, or the change is "
                "reverted. Pause the sync only for a data copy."
            )
    return ""
