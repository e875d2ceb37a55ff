"""Which VMs a migration policy applies to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from virt_admit.model.objects import Field, Object


class Selectors(NamedTuple):
    """The labels that a policy asks for; an absent selector asks for none."""

    namespace: Mapping[str, Any]
    vmi: Mapping[str, Any]


def labels(policy: Object) -> Selectors:
    """The labels of both selectors, which stand in them directly, without ``matchLabels``."""
    selectors = policy["spec"]["selectors"]
    return Selectors(_labels(selectors["namespaceSelector"]), _labels(selectors["virtualMachineInstanceSelector"]))


def _labels(selector: Field) -> Mapping[str, Any]:
    """A value without quotes, such as ``true``, is a label all the same; that the API server wants text is its say."""
    return {key: value for key, value in selector.map.items() if isinstance(value, str | bool | int | float)}
