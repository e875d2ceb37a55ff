"""Values parsed from files, and parsed again when the files change."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from virt_admit.documents.files import is_manifest
from virt_admit_certs.errors import error_text

log = logging.getLogger(__name__)
T = TypeVar("T")

Stamp = tuple[tuple[str, int, int, int], ...]


class Reloaded(Generic[T]):
    """The value of ``parse(path)``, kept current without a watcher.

    Each call compares inode, change time and size of the file (or of every file in the folder,
    symlinks followed), which takes microseconds and misses no change. Concurrent callers wait while
    one of them parses. When parsing fails, the previous value stays, ``failed`` is called once per
    change, and ``error`` is the reason.

    Raises, on construction only: whatever ``parse`` raises.
    """

    def __init__(
        self,
        parse: Callable[[Path], T],
        path: Path,
        failed: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._parse, self._path, self._failed = parse, path, failed
        self._lock = threading.Lock()
        self._stamp = stamp(path)
        self._value = parse(path)
        self.loaded_at = time.time()
        """When the last successful parse ended, in seconds since the epoch."""
        self.error: Exception | None = None

    def __call__(self) -> T:
        if stamp(self._path) == self._stamp:
            return self._value
        with self._lock:
            now = stamp(self._path)
            if now != self._stamp:
                self._reload(now)
            return self._value

    def _reload(self, now: Stamp) -> None:
        self._stamp = now
        try:
            self._value = self._parse(self._path)
        except Exception as error:
            log.warning(
                "reload failed; keeping the previous version",
                extra={"file": str(self._path), "error": error_text(error)},
            )
            self._failed(error)
            self.error = error  # last, so that an error that shows has been counted
        else:
            self.error = None
            self.loaded_at = time.time()
            log.info("reloaded", extra={"file": str(self._path)})


class Polled(Generic[T]):
    """The value of a ``Reloaded`` that a thread keeps current, so that no request waits while a
    large file is parsed.
    """

    def __init__(self, source: Reloaded[T]) -> None:
        self._source = source
        self._value = source()

    def __call__(self) -> T:
        return self._value

    @property
    def error(self) -> Exception | None:
        """Why the newest version is not in force; None if it is."""
        return self._source.error

    @property
    def loaded_at(self) -> float:
        """When the last successful parse ended, in seconds since the epoch."""
        return self._source.loaded_at

    def start(self, interval: float) -> None:
        """Compare the file every so many seconds, until the process ends."""
        threading.Thread(target=self._poll, args=(interval,), name="reload", daemon=True).start()

    def _poll(self, interval: float) -> None:
        while True:
            time.sleep(interval)
            self._value = self._source()


def stamp(path: Path) -> Stamp:
    """Return what identifies the content of a file or folder; empty if it cannot be read."""
    try:
        return tuple(_stamps(path, set()))
    except OSError:
        return ()


def _stamps(path: Path, seen: set[tuple[int, int]]) -> Iterator[tuple[str, int, int, int]]:
    """Yield the stamp of a file, or those of a folder and all below;
    a folder that contains itself is read once.
    """
    status = os.stat(path)
    yield str(path), status.st_ino, status.st_ctime_ns, status.st_size
    if not stat.S_ISDIR(status.st_mode) or (status.st_dev, status.st_ino) in seen:
        return
    seen.add((status.st_dev, status.st_ino))
    for entry in sorted(path.iterdir()):
        if is_manifest(entry.name) or entry.is_dir():
            with contextlib.suppress(OSError):  # one entry less is a change, too
                yield from _stamps(entry, seen)
