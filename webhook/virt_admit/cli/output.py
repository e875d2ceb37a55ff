"""The terminal: what a verb writes on stdout or into a file, progress, and errors on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal

import click

from virt_admit.documents.files import nearest
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.sanitize import line
from virt_admit.model.sanitize import name as safe_name

EXIT_CODES: Final = {True: 0, False: 1, None: 2}
"""The exit code of each verdict of a forecast."""

Progress = Callable[[Kind, int], None]
"""Receives a kind and the number of its objects that are done; 0 at its beginning."""


def tell(text: str) -> None:
    """Print one line on stderr."""
    click.echo(line(text), err=True)


class Problems(click.ClickException):
    """Ends a verb with exit code 2 and one printable line for each problem.

    The message of any other error is one line.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        super().__init__("\n".join(map(line, problems)))


def failure(error: Exception) -> click.ClickException:
    """Return the exception that ends a verb with exit code 2. Its message has no errno.

    It may quote files and snapshots of others, so a line break in a name begins no line: a CI
    system would read a command.
    """
    if isinstance(error, OSError) and error.strerror:
        text = ": ".join(safe_name(str(part)) for part in (error.filename, error.strerror) if part)
        return click.ClickException(text + (nearest(error.filename) if _is_missing(error) else ""))
    # of settings and of policies
    problems: Iterable[str] = getattr(error, "problems", (str(error),))
    return Problems(problems)


def _is_missing(error: OSError) -> bool:
    return isinstance(error, FileNotFoundError) and isinstance(error.filename, str | os.PathLike)


@contextlib.contextmanager
def progress(label: str, length: int, quiet: bool = False) -> Iterator[Progress]:
    """Show a bar on stderr that moves with each of ``length`` kinds.

    Print nothing if stderr is not a terminal.
    """
    hidden = quiet or not sys.stderr.isatty()
    with click.progressbar(
        length=length,
        label=label,
        file=sys.stderr,
        hidden=hidden,
        item_show_func=lambda item: item or "",
    ) as bar:

        def show(kind: Kind, count: int) -> None:
            bar.update(int(count == 0), f"{kind} {count or ''}")
            bar.render_progress()

        yield show


def wants_color() -> bool:
    """Return whether stdout shows colors: a terminal, unless the environment says otherwise."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0")) or sys.stdout.isatty()


def write(rendered: str, file: str | None, mode: Literal["wb", "ab"] = "wb") -> None:
    """Write a report to a file or to stdout.

    Raises:
        ClickException: the file cannot be written.
    """
    content = rendered.encode(errors="backslashreplace")  # JSON may hold halves of surrogate pairs
    if file is None:
        click.echo(content, nl=False)
        return
    try:
        with open(file, mode) as output:
            output.write(content)
    except OSError as error:
        raise failure(error) from None
