"""Errors as users read them."""

from __future__ import annotations


def error_text(error: BaseException) -> str:
    """Return the message of an error on one line: the file and the reason,
    without the system's number.
    """
    if isinstance(error, OSError) and error.strerror:
        return ": ".join(str(part) for part in (error.filename, error.strerror) if part)
    return str(error) or type(error).__name__
