"""The VMs that a migration policy selects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from virt_admit.model.kubernetes.objects import Field, Object


class Selectors(NamedTuple):
    """The labels that a policy requires; an absent selector requires none."""

    namespace: Mapping[str, Any]
    vmi: Mapping[str, Any]


def labels(policy: Object) -> Selectors:
    """Return the labels of both selectors, which hold them directly, without ``matchLabels``."""
    return Selectors(*map(_labels, _selectors(policy)))


def nested(policy: Object) -> Iterator[Field]:
    """Yield the maps and lists in the selectors, such as ``matchLabels``:
    the schema allows only strings.
    """
    for selector in _selectors(policy):
        yield from (field for _, field in selector.entries() if field.is_map or field.is_list)


def _selectors(policy: Object) -> tuple[Field, Field]:
    selectors = policy["spec"]["selectors"]
    return selectors["namespaceSelector"], selectors["virtualMachineInstanceSelector"]


def _labels(selector: Field) -> Mapping[str, Any]:
    """Return the labels, including values without quotes such as ``true``,
    which the API server rejects itself.
    """
    return {
        key: value
        for key, value in selector.map.items()
        if isinstance(value, str | bool | int | float)
    }
