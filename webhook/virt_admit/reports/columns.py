"""Rows of text with aligned columns, as every table on a terminal has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from virt_admit.model.sanitize import cell


def columns(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield rows of equal length, indented by two spaces, with aligned columns;
    the last column is not padded.
    """
    every = list(rows)
    widths = [max(map(len, column)) for column in zip(*every, strict=True)][:-1]
    for row in every:
        padded = (text.ljust(width) for text, width in zip(row, widths, strict=False))
        yield f"  {'  '.join((*padded, row[-1]))}".rstrip()


def table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield rows whose cells may hold any text of the cluster, at any length."""
    return columns(tuple(map(cell, row)) for row in rows)
