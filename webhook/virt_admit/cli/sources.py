"""The files that ``check`` reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from virt_admit.cli import processes
from virt_admit.cli.output import tell
from virt_admit.documents import files, reader
from virt_admit.documents.batches import batches
from virt_admit.documents.files import Exclude, FoundFile
from virt_admit.documents.reader import Document, DocumentError, Portion


class Source(NamedTuple):
    """A file or standard input: its name in reports, its content, and its valid documents."""

    name: str
    content: bytes
    """Empty unless it was asked for: ``--fix`` and ``--diff`` compare and replace it."""
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
    paths: Sequence[str],
    stdin: str = "<stdin>",
    excludes: Sequence[Exclude] = (),
    strict: bool = False,
    jobs: int | None = 1,
    keep: bool = True,
) -> Sources:
    """Read the paths. Print on stderr what cannot be read.

    In folders, unless ``strict`` is set, documents without ``apiVersion`` and ``kind`` and files
    that are templates are skipped: repositories contain the files of other programs, too.

    Args:
        paths: files, folders or ``-``.
        stdin: the name of standard input.
        excludes: the files and subfolders that are skipped in folders.
        strict: skip nothing.
        jobs: the number of processes that parse many documents.
        keep: keep the contents of the files.
    """
    sources: list[Source] = []
    unreadable: list[DocumentError] = []
    skipped = templates = 0
    contents = list(files.find(paths, stdin, excludes))
    for (name, content, in_folder), parsed in zip(contents, _parsed(contents, jobs), strict=True):
        if isinstance(content, DocumentError):
            unreadable.append(content)
            continue
        found, errors = reader.sort(parsed)
        skips_others = in_folder and not strict
        if skips_others and errors:
            skipped += sum(not error.is_object for error in errors)
            errors = [error for error in errors if error.is_object]
            if errors and reader.is_template(content):
                templates += 1
                continue
        kept, is_stdin = content if keep else b"", name == stdin and "-" in paths
        sources.append(Source(name, kept, tuple(found), is_stdin, skips_others))
        unreadable += errors
    for error in unreadable:
        tell(str(error))
    for path in paths:
        if files.is_empty(path, excludes):
            tell(f"{path}: no file *.yaml, *.yml or *.json is in this folder")
    return Sources(tuple(sources), tuple(unreadable), skipped, templates)


_Parsed = list[Document | DocumentError]


def _parsed(contents: Sequence[FoundFile], jobs: int | None) -> list[_Parsed]:
    """Return for each file its documents, packed, and the errors of those that cannot be read."""
    parsed: list[_Parsed] = [[] for _ in contents]
    portions: list[tuple[int, Portion]] = []
    for index, (name, content, _) in enumerate(contents):
        if isinstance(content, DocumentError):
            continue
        try:
            portions += [(index, portion) for portion in reader.portions(content, name)]
        except DocumentError as error:
            parsed[index].append(error)
    shares = list(batches(portions, lambda each: each[1].size, reader.PORTION))
    for batch, found in zip(shares, processes.share(_parse, shares, jobs), strict=True):
        for (index, _), documents in zip(batch, found, strict=True):
            parsed[index] += documents
    return parsed


def _parse(batch: Sequence[tuple[int, Portion]]) -> list[_Parsed]:
    return [
        [each.packed() if isinstance(each, Document) else each for each in portion.parse()]
        for _, portion in batch
    ]
