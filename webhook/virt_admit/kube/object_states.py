"""One state of each object that several files of a snapshot folder have: the newest."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.objects import Object
from virt_admit.settings import SettingError


class ReadState(NamedTuple):
    """An object as a file has it."""

    obj: Object
    file: Path
    time: datetime | None
    """When its snapshot was listed."""

    def is_newer_than(self, other: ReadState) -> bool | None:
        """Return whether this state is the newer one of two that differ; None: nothing says so.

        Resource versions of one object are ordered (kubernetes/enhancements: KEP-5504).
        """
        versions = [each.obj.metadata["resourceVersion"].text or "" for each in (self, other)]
        if all(text.isascii() and text.isdigit() for text in versions):
            mine, others = ((len(text.lstrip("0")), text.lstrip("0")) for text in versions)
            return mine >= others
        if self.time is None or other.time is None or self.time == other.time:
            return None
        return self.time > other.time


class ObjectStates:
    """Collects objects. Of two states of one object the newer one counts."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, ...], ReadState] = {}
        self._unknown: list[Object] = []
        self.superseded: set[str] = set()
        """The objects that were read in different states."""

    def add(self, obj: Object, file: Path, time: datetime | None) -> None:
        """Add an object.

        Raises:
            SettingError: another file has a different state of it, and neither says which one is
                newer.
        """
        kind = kinds.of(obj)
        if kind is None or not obj.name:
            self._unknown.append(obj)
            return
        namespace = (obj.namespace or "default") if kind.namespaced else ""
        read, key = ReadState(obj, file, time), (kind.group, kind.kind, namespace, obj.name)
        before = self._found.setdefault(key, read)
        if before.obj.data == obj.data:
            return
        name = f"{kind.kind} {obj.full_name}"
        newer = read.is_newer_than(before)
        if newer is None:
            files = f"{before.file} and {file} have" if before.file != file else f"{file} has"
            problem = f"{files} different states of {name}, and nothing says which one is newer"
            raise SettingError(
                f"{problem}. Keep one of them, or save a snapshot: virt-admit scan --save FILE"
            )
        self.superseded.add(name)
        if newer:
            self._found[key] = read

    def __iter__(self) -> Iterator[Object]:
        yield from self._unknown
        yield from (read.obj for read in self._found.values())
