"""Fields of an object that a chart writes and another field manager owns, by its managedFields.

Server-side apply is refused for a field that another manager owns with another value. Whatever
updates a field owns it from then on. Source: kubernetes-sigs/structured-merge-diff:merge/update.go
#Updater.Apply, #Updater.Update.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.model.kubernetes.objects import Field, Object

HELM: Final = "meta.helm.sh/release-name"
_DEEPEST: Final = 16


class OwnedField(NamedTuple):
    """A field of the spec that a manager owns alone."""

    path: tuple[str, ...]
    """From ``spec`` on."""
    manager: str
    since: str
    """When the manager wrote last; empty: not known."""

    @property
    def name(self) -> str:
        """``spec.workloadUpdateStrategy``."""
        return ".".join(self.path)


def foreign(obj: Object) -> list[OwnedField]:
    """Return the fields of the spec of an object that managers besides its chart own alone; empty:
    none, or who writes the chart is not known.

    The manager that wrote Helm's annotation writes the chart. A field that it left out when it
    applied the object after the other manager is not in the chart.
    """
    entries = [
        each
        for each in obj.metadata["managedFields"].items()
        if not each["subresource"].text and each["manager"].text
    ]
    own = [each for each in entries if _annotations(each)[f"f:{HELM}"].present]
    managers = {each["manager"].text for each in own}
    mine = [each for each in entries if each["manager"].text in managers]
    shared = {path for each in mine for path in _paths(each.at("fieldsV1", "f:spec"), ("spec",))}
    applied = max((_time(each) for each in mine if each["operation"].text == "Apply"), default="")
    return [
        OwnedField(path, entry["manager"].text or "", _time(entry))
        for entry in entries
        if own and entry["manager"].text not in managers
        if not applied or _time(entry) > applied
        for path in _paths(entry.at("fieldsV1", "f:spec"), ("spec",))
        if path not in shared
    ]


def _annotations(entry: Field) -> Field:
    return entry.at("fieldsV1", "f:metadata", "f:annotations")


def _time(entry: Field) -> str:
    return entry["time"].text or ""


def _paths(fields: Field, begin: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the fields without fields of their own; items of lists count as none."""
    for key in fields.map if fields.is_map else ():
        if key.startswith("f:") and len(begin) < _DEEPEST:
            path, below = (*begin, key.removeprefix("f:")), fields[key]
            if any(each.startswith("f:") for each in (below.map if below.is_map else ())):
                yield from _paths(below, path)
            else:
                yield path
