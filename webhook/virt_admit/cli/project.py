"""``.virt-admit.yaml``: the settings of ``check`` that a repository keeps next to its manifests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click

from virt_admit.documents import reader
from virt_admit.documents.files import Exclude
from virt_admit.documents.reader import Document
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.messages import did_you_mean
from virt_admit.policy.policy import SHIPPED
from virt_admit.settings import SettingError

FILE: Final = ".virt-admit.yaml"
KEYS: Final = ("paths", "excludes", "policy", "cluster")


class Project(NamedTuple):
    """The settings of a repository. Names of files are relative to the current folder."""

    file: str = ""
    """The file with the settings; empty: there is none."""
    paths: tuple[str, ...] = ()
    excludes: tuple[Exclude, ...] = ()
    policy: str = ""
    cluster: Path | None = None

    def print_file(self) -> None:
        """Print on stderr which file the settings are from."""
        if self.file:
            click.echo(f"settings from {self.file}", err=True)


def find_project() -> Project:
    """Return the settings in the nearest ``.virt-admit.yaml``, from the current folder upwards.

    Raises:
        SettingError: the file is not valid; with file and line of each problem.
        OSError: the file cannot be read.
    """
    start = Path.cwd()
    for folder in (start, *start.parents):
        file = folder / FILE
        if file.is_file():
            return _parse(file.read_bytes(), os.path.relpath(file, start))
    return Project()


def _parse(content: bytes, file: str) -> Project:
    found, errors = reader.read(content, file)
    problems = [str(error) for error in errors]
    if len(found) > 1:
        problems.append(f"{file}:{found[1].line}: expected one document, found {len(found)}")
    problems += [problem for document in found for problem in _problems(document, file)]
    if problems:
        raise SettingError(*problems)
    settings = Object(found[0].data if found else {})
    folder = os.path.dirname(file)

    def located(name: str) -> str:
        return os.path.normpath(os.path.join(folder, name))

    policy, cluster = settings["policy"].text or "", settings["cluster"].text
    return Project(
        file=file,
        paths=tuple(located(item.text) for item in settings["paths"].items() if item.text),
        excludes=tuple(
            Exclude(item.text, folder) for item in settings["excludes"].items() if item.text
        ),
        policy=policy if not policy or policy in SHIPPED else located(policy),
        cluster=Path(located(cluster)) if cluster else None,
    )


def _problems(document: Document, file: str) -> Iterator[str]:
    """Yield what is wrong with the settings, each with file and line."""
    for duplicate in document.duplicates:
        yield (
            f"{file}:{duplicate.line}: {duplicate.path}: duplicate key, first on line "
            f"{duplicate.first_line}"
        )
    root = Object(document.data).root
    for key in root.map:
        if problem := _problem(key, root[key]):
            yield f"{file}:{document.location((key,)).line}: {key}: {problem}"


def _problem(key: str, value: Field) -> str:
    if key not in KEYS:
        similar = did_you_mean(key, KEYS)
        return f"unknown key: {f'did you mean {similar}?' if similar else 'use ' + ', '.join(KEYS)}"
    if key in ("paths", "excludes"):
        is_valid = value.is_list and all(item.text for item in value.items())
        return "" if is_valid else "must be a list of strings"
    return "" if value.text else "must be a string"
