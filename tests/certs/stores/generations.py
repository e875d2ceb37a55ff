"""Two generations of files, and what is found in a directory."""

from __future__ import annotations

from pathlib import Path

OLD = {
    "ca.crt": b"old ca",
    "ca.key": b"old key",
    "tls.crt": b"old cert",
    "tls.key": b"old tls",
    "cross.crt": b"x",
}


NEW = {
    "ca.crt": b"new ca",
    "ca.key": b"new key",
    "tls.crt": b"new cert",
    "tls.key": b"new tls",
    "next.crt": b"y",
}


NOTES = {"generation": "1"}


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def by_name(path: Path) -> dict[str, bytes]:
    """What a reader finds who opens the files by their names."""
    return {
        file.name: file.read_bytes()
        for file in path.iterdir()
        if not file.name.startswith(".") and file.exists()
    }
