"""Fields of HyperConverged that belong to another API version:
nearly every field moved between v1beta1 and v1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.model.kubernetes.objects import Field, Object

V1_ONLY: Final = frozenset(
    (
        "virtualization",
        "storage",
        "networking",
        "workloadSources",
        "security",
        "deployment",
        "observability",
    )
)
V1_FIELDS: Final = V1_ONLY | {"featureGates"}


def foreign_fields(hco: Object) -> Iterator[Field]:
    """Yield the fields of the spec that v1 does not define,
    or that only v1 defines in a v1beta1 object.
    """
    if hco.version not in ("v1", "v1beta1"):
        return
    for key in hco["spec"].map:
        field = hco["spec"][key]
        if field.present and (key not in V1_FIELDS if hco.version == "v1" else key in V1_ONLY):
            yield field
