"""Write a cluster to a file, without what is nobody's business (contract.md 4).

Secrets are never read. User data of guests, credentials of fence agents and values of environment variables are left
out, and so is what lies in the pods and revisions of others. Equal clusters give equal bytes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, Protocol

from webhook.admission import DOMAIN
from webhook.model import kinds
from webhook.model.objects import Object
from webhook.trimming import strip, trim


class Sweep(Protocol):
    """What was read of a cluster: a ``Snapshot`` or an ``Inventory``."""

    @property
    def server_version(self) -> str | None: ...

    @property
    def complete(self) -> frozenset[str]: ...

    @property
    def unreadable(self) -> frozenset[str]: ...

    def __iter__(self) -> Iterator[Object]: ...


def save(sweep: Sweep, path: Path) -> None:
    """Write a snapshot file: one line per object, sorted if the sweep is. Readers see the old file or the new one.

    Raises:
        OSError: it cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            _write(sweep, file)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _write(sweep: Sweep, file: IO[str]) -> None:
    head = {
        "apiVersion": f"{DOMAIN}/v1alpha1",
        "kind": "Snapshot",
        **({"serverVersion": sweep.server_version} if sweep.server_version else {}),
        "complete": sorted(sweep.complete),
        "unreadable": sorted(sweep.unreadable),
    }
    file.write(json.dumps(head, indent=1).removesuffix("\n}") + ',\n "items": [')
    separator = "\n"
    for obj in sweep:
        if kinds.of(obj) is not None:
            file.write(separator + json.dumps(presentable(obj), sort_keys=True, ensure_ascii=False))
            separator = ",\n"
    file.write("\n ]\n}\n")


_DROPPED: Final = frozenset(
    (
        *("userData", "userDataBase64", "networkData", "networkDataBase64"),  # cloud-init
        *("accessCredentials", "extraHeaders"),
        "kubevirt.io/ignitiondata",  # an annotation
    )
)
_PARAMETERS: Final = frozenset(("sharedparameters", "nodeparameters"))  # of fence agents
_OTHERS: Final = frozenset((kinds.POD, kinds.CONTROLLER_REVISION))
"""Kinds that are mostly not about machines, and full of other people's containers."""

_TEMPLATE: Final = re.compile(
    r"""\{\{ (?: /\* (?>.*?\*/) | "(?:[^"\\]|\\.)*+" | `[^`]*+` | [^"`}] )*+ \}\} | \{\{""", re.DOTALL | re.VERBOSE
)
"""An expression of a Go template, with its comments and quoted texts; or where one begins that never ends."""
_LOGIN: Final = re.compile(r"(?<=://)[^/@\s]*@")


def presentable(obj: Object) -> dict[str, Any]:
    """An object without what should not leave the cluster. Every rule says of it what it says of the whole one."""
    kind = kinds.of(obj)
    data = trim(kind, obj.data) if kind in _OTHERS and kind is not None else strip(obj.data)
    cleaned: dict[str, Any] = _clean(data)
    return cleaned


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _field(key, below) for key, below in value.items() if key not in _DROPPED}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value


def _field(key: str, value: Any) -> Any:
    if key == "sysprep" and isinstance(value, dict):
        return {}  # that there is such a volume is no secret
    if key in _PARAMETERS:
        return _blank(value)
    if key == "env" and isinstance(value, list):
        return [_clean(_without_value(item)) for item in value]
    if key == "url" and isinstance(value, str):
        return _LOGIN.sub("", value)
    return _clean(value)


def _without_value(item: Any) -> Any:
    return {key: value for key, value in item.items() if key != "value"} if isinstance(item, Mapping) else item


def _blank(value: Any, name: str = "") -> Any:
    """Parameters without their values. Two things are no secrets, and rules judge them: what the agent shall do, and
    where the name of the node is filled in."""
    if isinstance(value, dict):
        return {key: _blank(below, name or key) for key, below in value.items()}
    if isinstance(value, str) and name.lstrip("-") != "action":
        said = "removed" if _TEMPLATE.sub("", value) else ""
        return said + "".join(_TEMPLATE.findall(value))
    return value
