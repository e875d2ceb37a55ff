"""Certificates in a directory: our own, or files that an external issuer writes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final

from virt_admit_certs.state import KEYS, PRIVATE_KEYS
from virt_admit_certs.stores.protocol import Loaded

log = logging.getLogger(__name__)

_DATA: Final = "..data"

_GENERATION: Final = "..gen-"

_NOTES: Final = "notes.json"

_FILES: Final = (*KEYS, _NOTES)


class Directory:
    """A directory in the layout of kubelet's mounts.

    The files are in ``..gen-<random>/``, ``..data`` is a symlink to it, and ``ca.crt`` and the
    others are symlinks into ``..data``. A save writes a new generation and renames one symlink:
    readers see the old or the new one, never a mixture, whenever a crash happens. Plain files of an
    administrator become the first generation, unless they contain a certificate without its CA.
    """

    external: ClassVar[bool] = False

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)

    def load(self) -> Loaded:
        data, version = _read(self._path, _FILES)
        notes = _notes(data.pop(_NOTES, b""))
        for name in PRIVATE_KEYS:
            _tighten(self._path / name)
        return Loaded(data, notes, version)

    def save(
        self, data: Mapping[str, bytes], notes: Mapping[str, str], version: str | None
    ) -> bool:
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(self._path / ".lock") as held:
            if not held or self.stale(version):
                return False
            if version and not version.startswith(_GENERATION):
                self._adopt()
            self._switch(data, notes)
        return True

    def stale(self, version: str | None) -> bool:
        return _version(self._path, _FILES) != version

    def _adopt(self) -> None:
        """Turn plain files into a generation, so that replacing them loses nothing."""
        found = _read(self._path, KEYS)[0]
        if "tls.key" in found and "ca.key" not in found:  # a confused flag must not overwrite a key
            raise FileExistsError(
                errno.EEXIST,
                "tls.key without ca.key: use --certs-external for certificates of another issuer",
                str(self._path),
            )
        self._switch(found, {})

    def _link_names(self, names: Iterable[str]) -> None:
        for name in names:
            if not (self._path / name).is_symlink():
                _link(f"{_DATA}/{name}", self._path / name)
        _sync(self._path)

    def _switch(self, data: Mapping[str, bytes], notes: Mapping[str, str]) -> None:
        generation = self._path / f"{_GENERATION}{secrets.token_hex(8)}"
        try:
            os.mkdir(generation, 0o700)
            for name, content in {
                **data,
                _NOTES: json.dumps(dict(notes), indent=1).encode(),
            }.items():
                _write(generation / name, content, 0o600 if name in PRIVATE_KEYS else 0o644)
            _sync(generation)
            if (self._path / _DATA).is_symlink():  # otherwise the plain files are still in use
                self._link_names(data)
            # from here on readers see the new generation
            _link(generation.name, self._path / _DATA)
        except OSError:
            # otherwise each retry takes more space on a full disk
            shutil.rmtree(generation, ignore_errors=True)
            raise
        self._link_names(data)
        for name in set(KEYS) - set(data):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path / name)
        for old in self._path.glob(f"{_GENERATION}*"):
            if old != generation:
                shutil.rmtree(old, ignore_errors=True)


class ExternalDirectory:
    """Files of an external issuer: a mount of cert-manager or OpenShift,
    or files of an administrator.
    """

    external: ClassVar[bool] = True
    _KEYS: Final = ("tls.crt", "tls.key", "ca.crt")

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._warned = False

    def load(self) -> Loaded:
        data, version = _read(self._path, self._KEYS)
        key = self._path / "tls.key"
        # only this pod sees a mount
        if not self._warned and not key.is_symlink() and _permits(stat.S_IRWXO, key):
            self._warned = True
            log.warning("key file is readable by all users", extra={"file": str(key)})
        return Loaded(data, {}, version)

    def save(
        self, data: Mapping[str, bytes], notes: Mapping[str, str], version: str | None
    ) -> bool:
        raise NotImplementedError("external certificates are never written")

    def stale(self, version: str | None) -> bool:
        return _version(self._path, self._KEYS) != version


def _read(path: Path, names: tuple[str, ...]) -> tuple[dict[str, bytes], str | None]:
    """Return the files of one generation, and its version.

    Raise OSError (EBUSY) if they keep changing.
    """
    for _ in range(5):
        version = _version(path, names)
        root = _root(path)
        data = {}
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                data[name] = (root / name).read_bytes()
        if _version(path, names) == version:
            return data, version
    raise OSError(errno.EBUSY, "the files keep changing while they are read", str(path))


def _notes(content: bytes) -> dict[str, str]:
    """Parse the notes. They are for people, so notes that are not valid are dropped."""
    try:
        notes = json.loads(content)
    except ValueError:
        return {}
    return (
        {str(name): str(value) for name, value in notes.items()} if isinstance(notes, dict) else {}
    )


def _root(path: Path) -> Path:
    """Return the directory with the files: the target of ``..data``, resolved once,
    or the path itself.
    """
    try:
        return path / os.readlink(path / _DATA)
    except OSError:
        return path


def _version(path: Path, names: tuple[str, ...]) -> str | None:
    """Return the name of the generation; for plain files a digest of inode, mtime and size;
    None without files.
    """
    with contextlib.suppress(OSError):
        return os.readlink(path / _DATA)
    found = []
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(path / name)
            found.append((name, status.st_ino, status.st_mtime_ns, status.st_size))
    return f"files-{hashlib.sha256(repr(found).encode()).hexdigest()[:16]}" if found else None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Lock a file without waiting; yield whether this process has the lock."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _write(path: Path, content: bytes, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _link(target: str, path: Path) -> None:
    """Make ``path`` a symlink in one operation, replacing what exists."""
    temporary = path.with_name(f"..new-{path.name}")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    os.symlink(target, temporary)
    os.rename(temporary, path)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _permits(mask: int, path: Path) -> bool:
    """Return whether the permissions of a file include any of a mask."""
    try:
        return bool(path.stat().st_mode & mask)
    except OSError:
        return False


def _tighten(path: Path) -> None:
    """Remove the permissions of all other users from a key file."""
    if _permits(stat.S_IRWXG | stat.S_IRWXO, path):
        log.warning(
            "key file was readable by other users; permissions restricted",
            extra={"file": str(path)},
        )
        with contextlib.suppress(OSError):
            os.chmod(path, 0o600)
