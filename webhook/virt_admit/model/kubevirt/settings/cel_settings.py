"""The settings of KubeVirt, HyperConverged and CDI in CEL, by the object's kind and version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from virt_admit.model import cel
from virt_admit.model.kubevirt.settings.configuration import (
    CDI_PATHS,
    HCO_V1_PATHS,
    HCO_V1BETA1_PATHS,
    KUBEVIRT_PATHS,
    Setting,
)


def cel_setting(what: Setting) -> str:
    """Return ``setting`` in CEL: an optional field."""
    return _cel_choice(what, lambda path: f"self.?{path.replace('.', '.?')}")


def cel_path(what: Setting) -> str:
    """Return the path of ``setting`` in CEL: a text."""
    return _cel_choice(what, cel.text)


def _cel_choice(what: Setting, written: Callable[[str], str]) -> str:
    """Return an expression that chooses by the kind and the version of the object."""
    of_kubevirt, of_v1beta1, of_v1 = (
        written(paths[what]) for paths in (KUBEVIRT_PATHS, HCO_V1BETA1_PATHS, HCO_V1_PATHS)
    )
    hyperconverged = f"(self.apiVersion.endsWith('/v1beta1') ? {of_v1beta1} : {of_v1})"
    of_cdi = f"self.kind == 'CDI' ? {written(CDI_PATHS[what])} : " if what in CDI_PATHS else ""
    return f"(self.kind == 'KubeVirt' ? {of_kubevirt} : {of_cdi}{hyperconverged})"


MIGRATION_LIMITS: Final = (
    f"(self.kind == 'MigrationPolicy' ? self.?spec : {cel_setting(Setting.MIGRATIONS)})"
)
"""``migration_limits.block`` in CEL."""
MIGRATION_PATH: Final = (
    f"(self.kind == 'MigrationPolicy' ? 'spec' : {cel_path(Setting.MIGRATIONS)})"
)
