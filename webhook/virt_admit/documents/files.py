"""Find and read manifest files: as named, in folders, or on standard input."""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

from virt_admit.documents.reader import DocumentError
from virt_admit.model import sanitize
from virt_admit.model.messages import did_you_mean

SUFFIXES: Final = (".yaml", ".yml", ".json")
"""The suffixes, in lower case, of the files that are read in folders."""


def is_manifest(name: str) -> bool:
    """Return whether a file of this name is read in folders."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


class FoundFile(NamedTuple):
    """A file or standard input: its name, and its content or why it cannot be read."""

    name: str
    content: bytes | DocumentError
    in_folder: bool = False
    """Whether the file was found in a folder. False: it was named."""


class Exclude(NamedTuple):
    """A pattern for files and folders that are not read, relative to a folder.

    ``*`` also matches ``/``.
    """

    pattern: str
    folder: str = ""

    def matches(self, path: str) -> bool:
        """Whether the pattern matches the path or its last part."""
        pattern = os.path.normpath(self.pattern)
        relative = os.path.relpath(path, self.folder or os.curdir)
        # **/ also stands for no folder
        below = "/" + relative if pattern.startswith("**/") else relative
        texts = (relative, below, os.path.basename(relative))
        return any(fnmatchcase(text, pattern) for text in texts)


def find(
    paths: Iterable[str], stdin: str = "<stdin>", excludes: Sequence[Exclude] = ()
) -> Iterator[FoundFile]:
    """Yield each file.

    Files are read as given, the manifests in folders are sorted by name, and ``-`` is standard
    input. Hidden files in folders are skipped. A file that cannot be read yields an error instead
    of its content.

    Args:
        paths: files, folders or ``-``.
        stdin: the name of standard input.
        excludes: the files and subfolders that are skipped in folders.
    """
    seen = set()
    for path in paths:
        if path == "-":
            yield FoundFile(stdin, sys.stdin.buffer.read())
            continue
        in_folder = os.path.isdir(path)
        for name in sorted(_walk(path, excludes)) if in_folder else [path]:
            identity = os.path.abspath(name)
            if identity not in seen:
                seen.add(identity)
                yield FoundFile(name, _content(name), in_folder)


def is_empty(path: str, excludes: Sequence[Exclude] = ()) -> bool:
    """Return whether the path is a folder in which no file would be read."""
    return os.path.isdir(path) and next(_walk(path, excludes), None) is None


def _content(name: str) -> bytes | DocumentError:
    try:
        return read_file(name)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        hint = nearest(name) if isinstance(error, FileNotFoundError) else ""
        return DocumentError((getattr(error, "strerror", None) or str(error)) + hint, name)


def nearest(path: str | os.PathLike[str]) -> str:
    """Return the end of an error about a file that does not exist: the file that was probably
    meant, if there is one.
    """
    folder, name = os.path.split(os.fspath(path).rstrip("/"))
    try:
        known = [each for each in os.listdir(folder or os.curdir) if not each.startswith(".")]
    except OSError:
        is_missing = folder and not os.path.exists(folder)
        return f". Create the folder {sanitize.name(folder)} first" if is_missing else ""
    stems = {os.path.splitext(each)[0]: each for each in known}
    meant = did_you_mean(name, known) if known else None
    meant = meant or stems.get(os.path.splitext(name)[0])
    return f". Did you mean {sanitize.name(os.path.join(folder, meant))}?" if meant else ""


PIPE_TIMEOUT: Final = 5.0
"""Seconds until some process must have opened a named pipe for writing."""


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file or a pipe.

    It does not wait forever for the writer of a named pipe.

    Raises:
        OSError: the file cannot be read, or no process writes to the pipe.
        ValueError: the name is not valid.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        descriptor, start = file.fileno(), b""
        # the parent of this process connected its descriptors, such as /dev/fd/63 of a process
        # substitution
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode) and not os.fspath(path).startswith("/dev/"):
            start = _first_piece(descriptor, path)
        os.set_blocking(descriptor, True)
        return start + file.read()


def _first_piece(pipe: int, path: str | os.PathLike[str]) -> bytes:
    """Return what has been written to a pipe when its writer has opened it."""
    hung_up = select.poll()
    hung_up.register(pipe, 0)
    for _ in range(int(PIPE_TIMEOUT * 100)):
        try:
            piece = os.read(pipe, 1 << 16)  # empty without a writer, see fifo(7)
        except BlockingIOError:
            return b""
        if piece or hung_up.poll(10):  # milliseconds
            return piece
    raise OSError(errno.ETIMEDOUT, "No process writes to this pipe", os.fspath(path))


def write_new(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file in a folder of ours.

    A symlink of that name is replaced: it may lead to a file of another user.

    ``O_EXCL`` refuses a symlink that another process creates between the two steps.

    Raises:
        OSError: the file cannot be written.
    """
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as output:
        output.write(content)


def _is_special(mode: int) -> bool:
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _walk(folder: str, excludes: Sequence[Exclude]) -> Iterator[str]:
    def is_wanted(path: str) -> bool:
        return not any(exclude.matches(path) for exclude in excludes)

    # a folder that cannot be listed is opened like a file, so that its error is reported
    unreadable: list[str] = []
    for top, folders, files in os.walk(
        folder, onerror=lambda error: unreadable.append(error.filename)
    ):
        seen = (name for name in folders if not name.startswith("."))
        folders[:] = [name for name in seen if is_wanted(os.path.join(top, name))]
        for name in filter(is_manifest, files):
            path = os.path.normpath(os.path.join(top, name))
            if is_wanted(path) and not is_special(path):
                yield path
    yield from unreadable


def is_special(path: str | os.PathLike[str]) -> bool:
    """Return whether the path is a pipe, a socket or a device, and log that it is skipped.

    Such a file may block a reader or never end.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False  # reading it reports the error
    if not _is_special(mode):
        return False
    import logging  # noqa: PLC0415 - importing it takes time, and such files are rare

    logging.getLogger(__name__).warning(
        "skipped %s: not a regular file", sanitize.name(os.fspath(path))
    )
    return True


def walk_linked(path: Path) -> Iterator[Path]:
    """Yield the path if it is a file.

    For a folder, yield its manifests in the order of their names, and follow symlinks.

    A folder that contains itself through a symlink is read once. Hidden files are skipped, because
    a mounted ConfigMap holds its current and previous versions in hidden folders.
    """
    if not path.is_dir():
        yield path
        return
    yield from _walk_linked(path, set())


def _walk_linked(folder: Path, seen: set[tuple[int, int]]) -> Iterator[Path]:
    status = folder.stat()
    if (status.st_dev, status.st_ino) in seen:
        return
    seen.add((status.st_dev, status.st_ino))
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _walk_linked(entry, seen)
        elif is_manifest(entry.name) and entry.exists() and not is_special(entry):
            yield entry
