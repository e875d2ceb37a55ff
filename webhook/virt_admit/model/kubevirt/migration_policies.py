"""The VMs that a migration policy selects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from virt_admit.model.objects import Field, Object


class Selectors(NamedTuple):
    """The labels that a policy requires; an absent selector requires none."""

    namespace: Mapping[str, Any]
    vmi: Mapping[str, Any]


def labels(policy: Object) -> Selectors:
    """Return the labels of both selectors, which hold them directly, without ``matchLabels``."""
    selectors = policy["spec"]["selectors"]
    return Selectors(_labels(selectors["namespaceSelector"]), _labels(selectors["virtualMachineInstanceSelector"]))


def _labels(selector: Field) -> Mapping[str, Any]:
    """Return the labels, including values without quotes such as ``true``, which the API server rejects itself."""
    return {key: value for key, value in selector.map.items() if isinstance(value, str | bool | int | float)}
