"""Kubernetes objects as read-only views over plain JSON data.

Any field of an untrusted object may be absent, null or of the wrong type. Reading never raises, and
all three cases read alike. A rule therefore only judges values that are present and well-formed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

T = TypeVar("T")

FINAL_PHASES: Final = ("Succeeded", "Failed")
"""Phases of a pod, a VMI or a migration that has ended."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+\Z")

PathStep = str | int
"""One step of a path: the name of a field, a key of a map, or an index of a list."""


class Key(str):
    """A map key that the user chose (label, annotation, selector):
    printed in brackets instead of after a dot.
    """

    __slots__ = ()


class Path(tuple[PathStep, ...]):
    """The location of a value in an object.

    >>> path = Path("spec", "volumes", 0)
    >>> str(path), path.pointer
    ('spec.volumes[0]', '/spec/volumes/0')
    """

    __slots__ = ()

    def __new__(cls, *steps: PathStep) -> Path:
        return tuple.__new__(cls, steps)

    def __getnewargs__(self) -> tuple[PathStep, ...]:
        """Let pickle call ``Path(*steps)``."""
        return tuple(self)

    def __truediv__(self, step: PathStep) -> Path:
        return tuple.__new__(Path, (*self, step))

    def __str__(self) -> str:
        text = ""
        for step in self:
            if isinstance(step, (int, Key)) or not _PLAIN.match(step):
                text += f"[{step}]"
            else:
                text += f".{step}" if text else step
        return text

    def __repr__(self) -> str:
        return f"Path({str(self)!r})"

    @property
    def pointer(self) -> str:
        """The path as a JSON Pointer (RFC 6901)."""
        return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in self)

    @property
    def without_indices(self) -> tuple[str, ...]:
        """The path without list indices, so that an inserted item does not turn an old finding into
        a new one.
        """
        return tuple(step for step in self if isinstance(step, str))


_ROOT: Final = Path()


class Field:
    """A value and its path.

    ``field["spec"]["volumes"]`` descends; a missing value reads as absent.
    """

    __slots__ = ("_start", "_steps", "value")

    def __init__(
        self, value: Any, start: Path | Field = _ROOT, steps: tuple[PathStep, ...] = ()
    ) -> None:
        """Make a field. Its path leads from ``start`` over ``steps``."""
        self.value = value
        self._start = start
        self._steps = steps

    @property
    def path(self) -> Path:
        """The path.

        Made when it is asked for: rules read hundreds of values and show few of them.
        """
        start, steps = self._start, self._steps
        while isinstance(start, Field):
            steps = start._steps + steps
            start = start._start
        return Path(*start, *steps)

    # these two readers dominate the cost of all rules, so they call no functions

    def __getitem__(self, step: PathStep) -> Field:
        value = self.value
        if isinstance(value, dict):
            found = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            found = value[step]
        else:
            found = None
        return Field(found, self, (step,))

    def at(self, *steps: PathStep) -> Field:
        """Descend several steps at once."""
        return _descend(self.value, self, steps)

    @property
    def present(self) -> bool:
        """Whether a value of any type is present; an explicit ``null`` is absent."""
        return self.value is not None

    @property
    def text(self) -> str | None:
        """The value if it is a string, else None."""
        return self.value if isinstance(self.value, str) else None

    @property
    def words(self) -> str:
        """The text with one space between its words; empty if it is none."""
        return " ".join(self.value.split()) if isinstance(self.value, str) else ""

    @property
    def boolean(self) -> bool | None:
        """The value if it is a boolean, else None."""
        return self.value if isinstance(self.value, bool) else None

    @property
    def integer(self) -> int | None:
        """The value if it is an integer, else None. A boolean is not an integer."""
        return (
            self.value if isinstance(self.value, int) and not isinstance(self.value, bool) else None
        )

    @property
    def map(self) -> Mapping[str, Any]:
        """The value if it is a map, else an empty map."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def is_map(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, list)

    @property
    def texts(self) -> Mapping[str, str]:
        """The string entries of a map (labels, annotations, node selectors)."""
        return _texts(self.value)

    def items(self) -> Iterator[Field]:
        """Yield the items of a list, in order, whatever their types."""
        if isinstance(self.value, list):
            for index, item in enumerate(self.value):
                yield Field(item, self, (index,))

    def named(self, name: str) -> Field:
        """Return the item of a list with this ``name``; absent if none has it."""
        return next((item for item in self.items() if item["name"].text == name), self["-"])

    @property
    def maps(self) -> list[dict[str, Any]]:
        """The items of a list that are maps, as plain data, for readers that need no paths."""
        value = self.value
        return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []

    def entries(self) -> Iterator[tuple[str, Field]]:
        """Yield key and value of each entry of a map whose keys are user-defined (labels,
        annotations).
        """
        for key, value in self.map.items():
            yield key, Field(value, self, (Key(key),))

    def __repr__(self) -> str:
        return f"Field({str(self.path)!r}: {self.value!r})"


def _descend(value: Any, start: Path | Field, steps: tuple[PathStep, ...]) -> Field:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            value = None
            break
    return Field(value, start, steps)


class Object:
    """One Kubernetes object: ``obj["spec"]["running"].boolean``.

    ``namespace`` overrides ``metadata.namespace``, because an admission request may carry it
    outside the object.
    """

    __slots__ = ("__weakref__", "_cached", "_namespace", "data")

    def __init__(self, data: Any, namespace: str = "") -> None:
        self.data: dict[str, Any] = data if isinstance(data, dict) else {}
        self._namespace = namespace
        self._cached: dict[Callable[[Object], Any], Any] | None = None

    def cached(self, function: Callable[[Object], T]) -> T:
        """Return ``function(self)``, computed once: the data of an object never change."""
        cached = self._cached
        if cached is None:
            cached = self._cached = {}
        if function not in cached:
            cached[function] = function(self)
        value: T = cached[function]
        return value

    def __getitem__(self, step: str) -> Field:
        return Field(self.data.get(step), _ROOT, (step,))

    def at(self, *steps: PathStep) -> Field:
        """Return the field at the end of these steps."""
        return _descend(self.data, _ROOT, steps)

    @property
    def root(self) -> Field:
        return Field(self.data)

    @property
    def api_version(self) -> str:
        return _text(self.data.get("apiVersion"))

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        group, slash, _ = self.api_version.partition("/")
        return group if slash else ""

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    @property
    def kind(self) -> str:
        return _text(self.data.get("kind"))

    @property
    def metadata(self) -> Field:
        return self["metadata"]

    @property
    def name(self) -> str:
        """``metadata.name``, else ``metadata.generateName`` and an ellipsis, else empty."""
        metadata = self.data.get("metadata")  # of every object of a cluster: no function is called
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if name and isinstance(name, str):
            return name
        prefix = _text(self._meta("generateName"))
        return f"{prefix}…" if prefix else ""

    @property
    def namespace(self) -> str:
        """The namespace; empty for cluster-scoped objects."""
        if self._namespace:
            return self._namespace
        metadata = self.data.get("metadata")
        namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
        return namespace if isinstance(namespace, str) else ""

    @property
    def full_name(self) -> str:
        """``namespace/name``, or only the name if the object has no namespace."""
        namespace = self.namespace
        return f"{namespace}/{self.name}" if namespace else self.name

    @property
    def labels(self) -> Mapping[str, str]:
        return _texts(self._meta("labels"))

    @property
    def annotations(self) -> Mapping[str, str]:
        return _texts(self._meta("annotations"))

    @property
    def deleted(self) -> bool:
        """Whether the object is being deleted, which means that it has a deletion timestamp."""
        return self._meta("deletionTimestamp") is not None

    @property
    def ended(self) -> bool:
        """Whether the phase of a pod, a VMI or a migration is final."""
        status = self.data.get("status")
        return isinstance(status, dict) and status.get("phase") in FINAL_PHASES

    @property
    def created(self) -> str:
        """``metadata.creationTimestamp``; empty before the API server has written it."""
        return _text(self._meta("creationTimestamp"))

    def annotation(self, key: str) -> Field:
        """Return one annotation as a field with value and path."""
        return self.at("metadata", "annotations", Key(key))

    def label(self, key: str) -> Field:
        """Return one label as a field with value and path."""
        return self.at("metadata", "labels", Key(key))

    def condition(self, kind: str) -> Field:
        """Return the item of ``status.conditions`` with this type; absent if none has it."""
        status = self.data.get("status")
        conditions = status.get("conditions") if isinstance(status, dict) else None
        for index, item in enumerate(conditions if isinstance(conditions, list) else ()):
            if isinstance(item, dict) and item.get("type") == kind:
                return Field(item, _ROOT, ("status", "conditions", index))
        return Field(None, _ROOT, ("status", "conditions", "-"))

    def is_true(self, kind: str) -> bool:
        """Return whether the condition with this type is True."""
        return self.condition(kind)["status"].text == "True"

    @property
    def controller(self) -> Field | None:
        """The owner reference with ``controller: true``, or None."""
        owners = self._meta("ownerReferences")
        for index, owner in enumerate(owners if isinstance(owners, list) else ()):
            if isinstance(owner, dict) and owner.get("controller") is True:
                return Field(owner, _ROOT, ("metadata", "ownerReferences", index))
        return None

    def owned_by(self, kind: str) -> str:
        """Return the name of the controller if it is of a kind; empty: another one, or none."""
        owner = self.controller
        return owner["name"].text or "" if owner is not None and owner["kind"].text == kind else ""

    def _meta(self, key: str) -> Any:
        """Return a metadata value without creating fields,
        because this runs for every object of a cluster.
        """
        metadata = self.data.get("metadata")
        return metadata.get(key) if isinstance(metadata, dict) else None

    def __repr__(self) -> str:
        return f"<{self.kind or 'object'} {self.full_name}>"


def _texts(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict):  # mostly there is none
        return {}
    return {key: text for key, text in value.items() if isinstance(text, str)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
