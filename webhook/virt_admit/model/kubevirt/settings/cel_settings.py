"""The settings of KubeVirt and HyperConverged in CEL, by the kind and version of the object."""

from __future__ import annotations

from virt_admit.model import cel
from virt_admit.model.kubevirt.settings.configuration import (
    HCO_V1_PATHS,
    HCO_V1BETA1_PATHS,
    KUBEVIRT_PATHS,
    Setting,
)

_PLACES = (KUBEVIRT_PATHS, HCO_V1BETA1_PATHS, HCO_V1_PATHS)


def cel_setting(what: Setting) -> str:
    """Return ``setting`` of a HyperConverged or KubeVirt in CEL: an optional field."""
    return _cel_choice(*(f"self.?{places[what].replace('.', '.?')}" for places in _PLACES))


def cel_path(what: Setting) -> str:
    """Return the path of ``setting`` in CEL: a text."""
    return _cel_choice(*(cel.text(places[what]) for places in _PLACES))


def _cel_choice(of_kubevirt: str, of_v1beta1: str, of_v1: str) -> str:
    hyperconverged = f"(self.apiVersion.endsWith('/v1beta1') ? {of_v1beta1} : {of_v1})"
    return f"(self.kind == 'KubeVirt' ? {of_kubevirt} : {hyperconverged})"
