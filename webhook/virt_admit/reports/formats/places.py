"""Where results stand, for readers who do not know the working directory."""

from __future__ import annotations

import os
from pathlib import PurePath


def relative(file: str) -> str:
    """A file as it is called from the working directory, with ``/``; one outside of it as it was given."""
    try:
        path = os.path.relpath(file)
    except (OSError, ValueError):  # the directory is gone; no name at all
        return file
    return PurePath(file if path.startswith(os.pardir) else path).as_posix()
