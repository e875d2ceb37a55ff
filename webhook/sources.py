"""Where policies and snapshots come from: files, folders, and what is shipped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from webhook import documents, policy_reader
from webhook.admission import DOMAIN
from webhook.model import kinds
from webhook.model.cluster import Snapshot
from webhook.model.objects import Object
from webhook.policy import SHIPPED, Policy
from webhook.reload import SUFFIXES
from webhook.rules import Rules
from webhook.settings import SettingError

SNAPSHOT: Final = (f"{DOMAIN}/v1alpha1", "Snapshot")


def policy_file(name: str) -> Path | None:
    """The file that ``--policy`` names; None for a shipped policy.

    Raises:
        SettingError: there is no such file.
    """
    if name in SHIPPED:
        return None
    path = Path(name)
    if not path.is_file():
        raise SettingError(f"--policy {name}: no such file, and not one of {', '.join(SHIPPED)}")
    return path


def load_policy(name: str, rules: Rules) -> Policy:
    """The policy of that name or in that file.

    Raises:
        SettingError, OSError: the file is not there or cannot be read.
        PolicyError: it is no policy.
    """
    file = policy_file(name)
    return policy_reader.load(name, rules) if file is None else policy_reader.parse(file.read_bytes(), rules, str(file))


def load_snapshot(path: Path) -> Snapshot:
    """The cluster in a file or a folder of files: snapshots, ordinary manifests, Lists.

    What snapshots say of ``complete`` and ``unreadable`` is added up; ordinary manifests are complete for nothing.
    What a snapshot holds of kinds that it calls unreadable itself does not count.

    Raises:
        SettingError: a file is not YAML or JSON, or says something that a snapshot cannot say.
        OSError: it cannot be read.
    """
    parts = _Parts()
    for file in _files(path):
        for data in _read(file):
            parts.add(data, file)
    return Snapshot(parts.objects, parts.complete, parts.unreadable, parts.server_version)


class _Parts:
    """What the documents of a snapshot add up to."""

    def __init__(self) -> None:
        self.objects: list[Object] = []
        self.complete: set[str] = set()
        self.unreadable: set[str] = set()
        self.server_version: str | None = None

    def add(self, data: Any, file: Path) -> None:
        document = Object(data)
        unreadable: set[str] = set()
        if (document.api_version, document.kind) == SNAPSHOT:
            unreadable = _names(document, "unreadable", file)
            self.complete |= _names(document, "complete", file)
            self.unreadable |= unreadable
            self.server_version = document["serverVersion"].text or self.server_version
            if document["items"].present and not document["items"].is_list:
                raise SettingError(f"{file}: items must be a list")
        if document["items"].is_list and document.kind.endswith(("List", "Snapshot")):
            objects = (Object(item.value) for item in document["items"].items() if item.is_map)
            self.objects += [obj for obj in objects if not unreadable or str(kinds.of(obj)) not in unreadable]
        elif document.kind:
            self.objects.append(document)


def _names(document: Object, key: str, file: Path) -> set[str]:
    field = document[key]
    if (field.present and not field.is_list) or any(item.text is None for item in field.items()):
        raise SettingError(f'{file}: {key} must be a list of plural.group, or ["*"]')
    return {item.text for item in field.items() if item.text}


def _files(path: Path) -> Iterable[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())


def _read(file: Path) -> Iterator[Any]:
    text = file.read_bytes()
    if text.lstrip()[:1] == b"{":  # what `scan --save` writes; parsing it as YAML would take 50 times as long
        try:
            yield json.loads(text)
        except ValueError:
            pass  # several JSON documents, or YAML in flow style
        else:
            return
    found, errors = documents.read(text, str(file))
    if errors:
        raise SettingError(str(errors[0]))
    for document in found:
        yield document.data
