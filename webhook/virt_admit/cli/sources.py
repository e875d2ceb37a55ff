"""The files that ``check`` reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from virt_admit.cli.output import tell
from virt_admit.documents import files, reader
from virt_admit.documents.files import Exclude
from virt_admit.documents.reader import Document, DocumentError


class Source(NamedTuple):
    """A file or standard input: its name in reports, its content, and its valid documents."""

    name: str
    content: bytes
    documents: tuple[Document, ...]
    is_stdin: bool = False
    skips_others: bool = False
    """Whether documents without ``apiVersion`` and ``kind`` are skipped."""

    @property
    def objects(self) -> tuple[Document, ...]:
        """The documents that are not skipped."""
        if not self.skips_others:
            return self.documents
        return tuple(document for document in self.documents if document.is_object)


class Sources(NamedTuple):
    """The contents of all paths."""

    files: tuple[Source, ...] = ()
    unreadable: tuple[DocumentError, ...] = ()
    skipped: int = 0
    """The number of documents that are not Kubernetes objects and not among ``files``."""
    templates: int = 0
    """The number of files that were skipped as templates."""


def read_sources(
    paths: Sequence[str], stdin: str = "<stdin>", excludes: Sequence[Exclude] = (), strict: bool = False
) -> Sources:
    """Read the paths. Print on stderr what cannot be read.

    In folders, unless ``strict`` is set, documents without ``apiVersion`` and ``kind`` and files that are templates are
    skipped: repositories contain the files of other programs, too.
    """
    sources: list[Source] = []
    unreadable: list[DocumentError] = []
    skipped = templates = 0
    for name, content, in_folder in files.find(paths, stdin, excludes):
        if isinstance(content, DocumentError):
            unreadable.append(content)
            continue
        found, errors = reader.read(content, name)
        skips_others = in_folder and not strict
        if skips_others and errors:
            skipped += sum(not error.is_object for error in errors)
            errors = [error for error in errors if error.is_object]
            if errors and reader.is_template(content):
                templates += 1
                continue
        packed = tuple(document.packed() for document in found)
        sources.append(Source(name, content, packed, name == stdin and "-" in paths, skips_others))
        unreadable += errors
    for error in unreadable:
        tell(str(error))
    return Sources(tuple(sources), tuple(unreadable), skipped, templates)
