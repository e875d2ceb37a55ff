"""``virt-admit check --diff`` and ``--fix``: what the fixes make of files, shown or written."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from virt_admit.documents.diff import unified
from virt_admit.documents.edit import EditResult, edit_text
from virt_admit.documents.reader import Document
from virt_admit.model.messages import count
from virt_admit.model.objects import Object
from virt_admit.reports.report import Report, called


@dataclass(frozen=True, slots=True)
class Source:
    """A file or standard input: what reports call it, its content, and the documents that could be read of it."""

    name: str
    content: bytes
    documents: tuple[Document, ...]
    is_stdin: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the fixes."""

    sources: tuple[Source, ...] = ()
    """As they are now."""
    left: int = 0
    """Objects that are still to be fixed."""
    failed: bool = False
    """Whether a file could not be written, or its new text would not be what it should be."""
    summary: str = ""


NOTHING: Final = Outcome()


def show(sources: Sequence[Source], result: Report) -> Outcome:
    """Print a unified diff of what ``mend`` would do."""
    wanted = list(_spliced(sources, result))
    sound = [(was, now) for was, now in wanted if now.roundtrips]
    text = "".join(_diff(was, now) for was, now in sound)
    click.echo(text.encode(errors="backslashreplace"), nl=False)
    left = sum(now.fixed + len(now.refused) for _, now in wanted)
    return Outcome(tuple(sources), left, len(sound) < len(wanted), _summary("would fix", sound))


def mend(sources: Sequence[Source], result: Report) -> Outcome:
    """Write the fixes of a report into the files that it is about, and standard input, fixed, to standard output.

    What cannot be done is said on stderr.
    """
    wanted = list(_spliced(sources, result))
    done = [(was, now) for was, now in wanted if now.roundtrips and (not now.fixed or was.is_stdin or _write(was, now))]
    after = {id(was): Source(was.name, now.content, now.documents, was.is_stdin) for was, now in done}
    mended = tuple(after.get(id(source), source) for source in sources)
    click.echo(b"".join(source.content for source in mended if source.is_stdin), nl=False)
    left = sum(len(now.refused) for _, now in wanted)
    return Outcome(mended, left, len(done) < len(wanted), _summary("fixed", done))


def _summary(verb: str, changes: Sequence[tuple[Source, EditResult]]) -> str:
    fixed = [now.fixed for _, now in changes if now.fixed]
    return f"{verb} {count(sum(fixed), 'object')} in {count(len(fixed), 'file')}" if fixed else f"{verb} nothing"


def _spliced(sources: Iterable[Source], result: Report) -> Iterator[tuple[Source, EditResult]]:
    """What the fixes make of the sources that have any."""
    patches = {id(one.document): one.response.patch for one in result.judged}
    for source in sources:
        wanted = [patches.get(id(document), ()) for document in source.documents]
        if not any(wanted):
            continue
        new = edit_text(source.content, source.name, wanted)
        for index, why in new.refused.items():
            document = source.documents[index]
            name = called(Object(document.data))
            click.echo(f"{document.file}:{document.line}: {name} has to be fixed by hand: {why}", err=True)
        if not new.roundtrips:
            click.echo(f"{source.name}: not fixed: the result would be wrong, which is a bug:", err=True)
            click.echo(_diff(source, new), nl=False, err=True)
        yield source, new


def _diff(was: Source, now: EditResult) -> str:
    cuts = [(old.line - 1, new.line - 1) for old, new in zip(was.documents, now.documents, strict=False)]
    return unified(was.name, was.content.decode(), now.content.decode(), cuts)


def _write(was: Source, now: EditResult) -> bool:
    """Whether the new content is in the file."""
    try:
        replace(was.name, now.content)
    except OSError as error:
        click.echo(f"{was.name}: cannot be written: {error.strerror}", err=True)
        return False
    return True


def replace(name: str, content: bytes) -> None:
    """Replace the content of a file at once: who reads it sees the old one or the new one. Links and mode stay.

    Raises:
        OSError: it cannot be done.
    """
    path = Path(name).resolve()
    if not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")
    if not os.access(path, os.W_OK):  # who may write into the folder could replace it all the same
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    before = path.stat()
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("xb") as file:
            file.write(content)
        with contextlib.suppress(PermissionError):  # who may write it but not give it away, owns it from now on
            os.chown(unfinished, before.st_uid, before.st_gid)
        unfinished.chmod(stat.S_IMODE(before.st_mode))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
