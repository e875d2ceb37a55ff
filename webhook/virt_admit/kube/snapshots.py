"""Snapshot files: a cluster written without confidential data, and read again.

Secrets are never read from a cluster. User data of guests, credentials of fence agents and values
of environment variables are left out, and so are the containers of unrelated pods and revisions.
Equal clusters at equal times give equal bytes.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final, Protocol

from virt_admit.documents import reader
from virt_admit.documents.files import read_file, walk_linked
from virt_admit.kube.field_filter import IDENTITY, WHOLE, FieldSet, retained_fields
from virt_admit.kube.object_states import ObjectStates
from virt_admit.kube.stored_types import wrong_type
from virt_admit.model.kubernetes import clock, json_codec, kinds
from virt_admit.model.kubernetes.cluster import Snapshot
from virt_admit.model.kubernetes.events import EVENT
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import count
from virt_admit.model.sanitize import without_login
from virt_admit.rules import load_rules
from virt_admit.settings import API_VERSION, SettingError

KIND: Final = "Snapshot"
GROUP: Final = API_VERSION.partition("/")[0]
_HALF: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|"
    rb"(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
"""An escape of half a character without the other half, which is not valid JSON."""


def load(path: Path, warn: Callable[[str], None] | None = None) -> Snapshot:
    """Load the cluster from a file or a folder of files: snapshots, ordinary manifests, Lists.

    The ``complete`` and ``unreadable`` lists of snapshots are combined. Ordinary manifests are
    never complete. Objects of a kind that their own snapshot calls unreadable are ignored. Of an
    object with several states the newest counts.

    Args:
        warn: told in one line that objects had several states.

    Raises:
        SettingError: a file is not valid YAML or JSON, or not a valid snapshot, or has an object
            that no API server stores, or two states of an object differ and nothing says which one
            is newer.
        OSError: a file cannot be read.
    """
    parts = _Parts()
    for file in walk_linked(path):
        for data in _read(file):
            parts.add(data, file)
    if path.is_file() and not parts.documents:  # truncated, or not written yet
        raise SettingError(f"{path}: the file is empty")
    if parts.changed:
        raise SettingError(f"{min(parts.changed)}. No API server stores that. {_SAVE}")
    if warn is not None and parts.objects.superseded:
        warn(_superseded(path, parts.objects.superseded))
    return Snapshot(
        parts.objects,
        parts.complete,
        parts.unreadable,
        parts.server_version,
        clock.stamp(parts.time),
    )


_SAVE: Final = "Save a new snapshot: virt-admit scan --save FILE"


def _superseded(path: Path, found: Collection[str]) -> str:
    words = f"{count(len(found), 'object')} in several states, such as {min(found)}"
    return (
        f"{path}: {words}; the newest counts. Save all files at one time: virt-admit scan --save "
        "FILE"
    )


class _Parts:
    """The combined contents of several documents."""

    def __init__(self) -> None:
        self.objects = ObjectStates()
        self.complete: set[str] = set()
        self.unreadable: set[str] = set()
        self.server_version: str | None = None
        self.time: datetime | None = None
        """The oldest time of the snapshots."""
        self.documents = 0
        self.changed: list[str] = []
        """Objects of snapshots with a field that no API server stores."""

    def add(self, data: Any, file: Path) -> None:
        self.documents += 1
        document = Object(data)
        if (
            document.kind == KIND
            and document.group in ("", GROUP)
            and document.api_version != API_VERSION
        ):
            raise SettingError(
                f"{file}: a Snapshot has apiVersion {API_VERSION}, not {document.api_version!r}"
            )
        unreadable: set[str] = set()
        time = None
        if (document.api_version, document.kind) == (API_VERSION, KIND):
            unreadable = _names(document, "unreadable", file)
            self.complete |= _names(document, "complete", file)
            self.unreadable |= unreadable
            self.server_version = document["serverVersion"].text or self.server_version
            time = _time(document, file)
            self.time = min(filter(None, (self.time, time)), default=None)
            if document["items"].present and not document["items"].is_list:
                raise SettingError(f"{file}: items must be a list")
            if any(not item.is_map for item in document["items"].items()):
                raise SettingError(f"{file}: each item must be an object")
        if document["items"].is_list and document.kind.endswith(("List", KIND)):
            for item in document["items"].items():
                obj = Object(item.value)
                kind = kinds.of(obj)
                if not item.is_map or (unreadable and str(kind) in unreadable):
                    continue
                if (
                    document.kind == KIND
                    and kind is not None
                    and (problem := wrong_type(obj, kind))
                ):
                    self.changed.append(f"{file}: {obj.kind} {obj.full_name}: {problem}")
                self.objects.add(obj, file, time)
        elif document.kind:
            self.objects.add(document, file, time)


def _time(document: Object, file: Path) -> datetime | None:
    """Return when a snapshot was listed; None: it does not say so."""
    field = document["time"]
    found = clock.instant(field.text)
    if field.present and found is None:
        raise SettingError(f"{file}: time must be a time such as 2027-01-31T22:00:00Z")
    return found


def _names(document: Object, key: str, file: Path) -> set[str]:
    field = document[key]
    if (field.present and not field.is_list) or any(item.text is None for item in field.items()):
        raise SettingError(f'{file}: {key} must be a list of plural.group, or ["*"]')
    return {item.text for item in field.items() if item.text}


def _read(file: Path) -> Iterator[Any]:
    text = read_file(file)
    # JSON such as the output of `scan --save`, for which the reader takes 50 times as long. Only
    # the reader says where a fault is.
    if text.lstrip()[:1] == b"{" and not _HALF.search(text):
        try:
            yield json_codec.loads(text)
        except (ValueError, RecursionError):
            # JSON that the API server would reject, which the reader reports; several documents;
            # YAML in flow style
            pass
        else:
            return
    found, errors = reader.read(text, str(file))
    if errors:
        raise SettingError(str(errors[0]))
    for document in found:
        yield document.data


class Sweep(Protocol):
    """The objects read from a cluster: a ``Snapshot`` or a ``ClusterCache``."""

    @property
    def server_version(self) -> str | None: ...

    @property
    def time(self) -> str | None: ...

    @property
    def complete(self) -> frozenset[str]: ...

    @property
    def unreadable(self) -> frozenset[str]: ...

    def __iter__(self) -> Iterator[Object]: ...


def save(sweep: Sweep, path: Path) -> None:
    """Write a snapshot file, one line per object, in the order of ``sweep``.

    The file is replaced atomically.

    Raises:
        OSError: the file cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            _write(sweep, file)
        unfinished.replace(path)
    except OSError as error:  # of the file that the user named, not of the unfinished one
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        unfinished.unlink(missing_ok=True)


def _write(sweep: Sweep, file: IO[str]) -> None:
    head = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        **({"serverVersion": sweep.server_version} if sweep.server_version else {}),
        **({"time": sweep.time} if sweep.time else {}),
        "complete": sorted(sweep.complete),
        "unreadable": sorted(sweep.unreadable),
    }
    file.write(json.dumps(head, indent=1).removesuffix("\n}") + ',\n "items": [')
    separator = "\n"
    for obj in sweep:
        if kinds.of(obj) is not None or (obj.api_version, obj.kind) == (
            EVENT.api_version,
            EVENT.kind,
        ):
            file.write(separator + json.dumps(presentable(obj), sort_keys=True, ensure_ascii=False))
            separator = ",\n"
    file.write("\n ]\n}\n")


_DROPPED: Final = frozenset(
    (
        *("userData", "userDataBase64", "networkData", "networkDataBase64"),  # cloud-init
        *("accessCredentials", "extraHeaders"),
        "kubevirt.io/ignitiondata",  # an annotation
        "variables",  # of a ClusterClass, such as the password of a registry
    )
)
_PARAMETERS: Final = frozenset(("sharedparameters", "nodeparameters"))  # of fence agents
_PROXY: Final = "HTTPS_PROXY"
"""A variable of which only is kept that it has a value: that may have a login in many forms."""
_NO_PROXY: Final = "NO_PROXY"
"""A variable whose value is kept: which requests do not go to a proxy."""
_TEMPLATE: Final = re.compile(
    r"""\{\{ (?: /\* (?>.*?\*/) | "(?:[^"\\]|\\.)*+" | `[^`]*+` | [^"`}] )*+ \}\} | \{\{""",
    re.DOTALL | re.VERBOSE,
)
"""An expression of a Go template with its comments and quoted texts,
or the start of one that never ends.
"""


@functools.cache
def _retained() -> Mapping[Kind, FieldSet]:
    return retained_fields(load_rules())


def presentable(obj: Object) -> dict[str, Any]:
    """Return an object without confidential data.

    Every rule has the same findings on it as on the original.
    """
    kind = kinds.of(obj)
    fields = _retained().get(kind, IDENTITY) if kind and kind.snapshot_filtered else WHOLE
    cleaned: dict[str, Any] = _clean(fields.filter(obj.data))
    return cleaned


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _field(key, below) for key, below in value.items() if key not in _DROPPED}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value


def _field(key: str, value: Any) -> Any:
    if key == "sysprep" and isinstance(value, dict):
        return {}  # the existence of such a volume is not confidential
    if key in _PARAMETERS:
        return _blank(value)
    if key == "env" and isinstance(value, list):
        return [_clean(_without_value(item)) for item in value]
    if key == "url" and isinstance(value, str):
        return without_login(value)
    return _clean(value)


def _without_value(item: Any) -> Any:
    if not isinstance(item, Mapping):
        return item
    name, value = item.get("name"), item.get("value")
    kept = {key: value for key, value in item.items() if key != "value"}
    if not isinstance(name, str) or not isinstance(value, str):
        return kept
    if name.upper() == _PROXY and value:
        return {**kept, "value": "…"}
    return {**kept, "value": value} if name.upper() == _NO_PROXY and "@" not in value else kept


def _blank(value: Any, name: str = "") -> Any:
    """Remove the values of parameters.

    Rules read two parts that are not confidential: the action of the agent, and the place of the
    node's name.
    """
    if isinstance(value, dict):
        return {key: _blank(below, name or key) for key, below in value.items()}
    if isinstance(value, str) and name.lstrip("-") != "action":
        marker = "removed" if _TEMPLATE.sub("", value) else ""
        return marker + "".join(_TEMPLATE.findall(value))
    return value
