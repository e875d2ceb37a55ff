"""``virt-admit check --diff`` and ``--fix``:
show or write what the fixes of a report make of its files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from virt_admit.cli.output import tell
from virt_admit.cli.sources import Source
from virt_admit.model import sanitize
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import count
from virt_admit.reports.findings.report import Report, called

if TYPE_CHECKING:
    from virt_admit.documents.edit import EditResult


class FixResult(NamedTuple):
    """What happened to the fixes."""

    sources: tuple[Source, ...] = ()
    """The sources after the fixes."""
    unfixed: int = 0
    """The number of objects that still need a fix."""
    failed: bool = False
    """Whether a file could not be written, or its new text would not have been correct."""
    summary: str = ""


NOTHING: Final = FixResult()


def show(sources: Sequence[Source], report: Report) -> FixResult:
    """Print a unified diff of what ``fix_files`` would do."""
    edits = list(_edits(sources, report))
    correct = [(source, edit) for source, edit in edits if edit.roundtrips]
    text = "".join(_diff(source, edit) for source, edit in correct)
    click.echo(text.encode(errors="backslashreplace"), nl=False)
    unfixed = sum(edit.fixed + len(edit.refused) for _, edit in edits)
    return FixResult(
        tuple(sources), unfixed, len(correct) < len(edits), _summary("would fix", correct)
    )


def fix_files(sources: Sequence[Source], report: Report) -> FixResult:
    """Write the fixes of a report into its files. Print standard input, fixed, on standard output.

    Fixes that are not possible are named on stderr.
    """
    edits = list(_edits(sources, report))
    done = [
        (source, edit)
        for source, edit in edits
        if edit.roundtrips and (not edit.fixed or source.is_stdin or _write(source, edit))
    ]
    changed = {
        id(source): source._replace(content=edit.content, documents=edit.documents)
        for source, edit in done
    }
    after = tuple(changed.get(id(source), source) for source in sources)
    click.echo(b"".join(source.content for source in after if source.is_stdin), nl=False)
    unfixed = sum(len(edit.refused) for _, edit in edits)
    return FixResult(after, unfixed, len(done) < len(edits), _summary("fixed", done))


def _summary(verb: str, edits: Sequence[tuple[Source, EditResult]]) -> str:
    fixed = [edit.fixed for _, edit in edits if edit.fixed]
    if not fixed:
        return f"{verb} nothing"
    return f"{verb} {count(sum(fixed), 'object')} in {count(len(fixed), 'file')}"


def _edits(sources: Iterable[Source], report: Report) -> Iterator[tuple[Source, EditResult]]:
    """Yield the sources that have fixes, with their edited text."""
    from virt_admit.documents.edit import edit_text  # noqa: PLC0415 - only --diff and --fix need it

    by_document = {id(result.document): result.response.patch for result in report.results}
    for source in sources:
        patches = [by_document.get(id(document), ()) for document in source.documents]
        if not any(patches):
            continue
        edit = edit_text(source.content, source.name, patches)
        for index, reason in edit.refused.items():
            document = source.documents[index]
            name = called(Object(document.data))
            tell(f"{document.file}:{document.line}: {name} has to be fixed by hand: {reason}")
        if not edit.roundtrips:
            tell(f"{source.name}: not fixed: the new text would not be correct. This is a bug:")
            click.echo(_diff(source, edit), nl=False, err=True)
        yield source, edit


def _diff(source: Source, edit: EditResult) -> str:
    from virt_admit.documents.diff import unified  # noqa: PLC0415 - importing difflib takes time

    pairs = zip(source.documents, edit.documents, strict=False)
    cuts = [(old.line - 1, new.line - 1) for old, new in pairs]
    return unified(sanitize.name(source.name), source.content.decode(), edit.content.decode(), cuts)


def _write(source: Source, edit: EditResult) -> bool:
    """Write the new content into the file. Return whether that worked."""
    try:
        replace(source.name, edit.content, source.content)
    except ChangedError:
        tell(
            f"{source.name}: not fixed: the file changed while its fixes were computed. Run the "
            "command again"
        )
        return False
    except OSError as error:
        tell(f"{source.name}: cannot be written: {error.strerror}")
        return False
    return True


class ChangedError(Exception):
    """An editor has written the file since it was read."""


def replace(name: str, content: bytes, expected: bytes) -> None:
    """Replace the content of a file atomically, if it still is ``expected``. Links and mode stay.

    Raises:
        ChangedError: the file has another content.
        OSError: the file cannot be replaced.
    """
    path = Path(name).resolve()
    if not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file")
    if not os.access(path, os.W_OK):  # write access to the folder alone would suffice to replace it
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    before = path.stat()
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
        # without the right to change the owner, this user becomes the owner
        with contextlib.suppress(PermissionError):
            os.chown(temporary, before.st_uid, before.st_gid)
        temporary.chmod(stat.S_IMODE(before.st_mode))
        # as late as possible: no file system compares and replaces in one step
        if path.read_bytes() != expected:
            raise ChangedError
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
