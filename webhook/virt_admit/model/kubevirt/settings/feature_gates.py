"""The places where objects name feature gates of KubeVirt and of HyperConverged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import json_codec, kinds
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT
from virt_admit.model.kubernetes.objects import Field, Object, Path

JSON_PATCH: Final = "kubevirt.kubevirt.io/jsonpatch"
"""The annotation of HyperConverged with a patch of the KubeVirt that it writes."""

_LISTS: Final = ("featureGates", "disabledFeatureGates")


class NamedGate(NamedTuple):
    """A feature gate that an object names."""

    name: str
    path: Path
    enabled: bool


def kubevirt_gates(obj: Object) -> Iterator[NamedGate]:
    """Yield the gates of KubeVirt that a KubeVirt, or the JSON patch of a HyperConverged, names."""
    kind = kinds.of(obj)
    if kind is KUBEVIRT:
        developer = obj.at("spec", "configuration", "developerConfiguration")
        for key in _LISTS:
            yield from _named(developer[key], enabled=key == _LISTS[0])
    elif kind is HCO:
        annotation = obj.annotation(JSON_PATCH)
        for name, enabled in _patched(annotation.text):
            yield NamedGate(name, annotation.path, enabled)


def hyperconverged_gates(hco: Object) -> Iterator[NamedGate]:
    """Yield the gates of HyperConverged itself: a list in v1, a map in v1beta1."""
    gates = hco.at("spec", "featureGates")
    for item in gates.items():
        if name := item["name"].text:
            yield NamedGate(name, item["name"].path, item["state"].text != "Disabled")
    for key in gates.map:
        if gates[key].boolean is not None:
            yield NamedGate(key, gates[key].path, bool(gates[key].boolean))


def _named(gates: Field, *, enabled: bool) -> Iterator[NamedGate]:
    for item in gates.items():
        if item.text:
            yield NamedGate(item.text, item.path, enabled)


def _patched(text: str | None) -> Iterator[tuple[str, bool]]:
    """Yield the gates that a JSON patch adds; none if the text is not a JSON patch."""
    operations = json_codec.embedded(text)
    for operation in operations if isinstance(operations, list) else ():
        if not isinstance(operation, dict) or operation.get("op") not in ("add", "replace"):
            continue
        _, _, place = str(operation.get("path")).partition(
            "/spec/configuration/developerConfiguration/"
        )
        key, value = place.partition("/")[0], operation.get("value")
        if key in _LISTS:
            for name in value if isinstance(value, list) else [value]:
                if isinstance(name, str) and name:
                    yield name, key == _LISTS[0]
