"""Helm templates as data: YAML values that depend on a condition, or that an expression prints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

Tree = Any
"""A mapping, a sequence or a scalar, with the classes of this module at any depth."""
ABSENT: Final = object()
WIDE: Final = 1 << 20
"""No line breaks inside a scalar: an expression must stay on its line."""


@dataclass(frozen=True, slots=True)
class If:
    """A value, an item or a document that depends on a condition."""

    condition: str
    then: Tree
    otherwise: Tree = ABSENT


@dataclass(frozen=True, slots=True)
class Nested:
    """A block that an expression prints; ``style`` is ``|`` for a text."""

    expression: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Splice:
    """A key: the entries that an expression prints take its place."""

    expression: str


@dataclass(frozen=True, slots=True)
class Expression:
    """A scalar that an expression prints, without quotes."""

    text: str


class Template(str):
    """A string with expressions in it. Braces in other strings are escaped."""

    __slots__ = ()


def opposite(condition: str) -> str:
    """Return the negation of a condition."""
    word, _, rest = condition.partition(" ")
    return {"eq": f"ne {rest}", "ne": f"eq {rest}"}.get(word, f"not ({condition})")


def print_document(document: Tree) -> str:
    """Return a document with the line ``---`` before it."""
    if isinstance(document, If):
        return (
            f"{{{{- if {document.condition} }}}}\n{print_document(document.then)}{{{{- end }}}}\n"
        )
    return "\n".join(["---", *_mapping(document, 0), ""])


def _mapping(tree: dict[Any, Tree], indent: int) -> Iterator[str]:
    pad = " " * indent
    for key, value in tree.items():
        match key, value:
            case Splice(), _:
                yield f"{pad}{{{{- {key.expression} | nindent {indent} }}}}"
            case _, If():
                yield from _branches(
                    value, pad, lambda branch, key=key: _mapping({key: branch}, indent)
                )
            case _, Nested():
                yield (
                    f"{pad}{key}: {value.style}{{{{- {value.expression} | nindent {indent + 2} }}}}"
                )
            case _, dict() if value:
                yield f"{pad}{key}:"
                yield from _mapping(value, indent + 2)
            case _, list() if value:
                yield f"{pad}{key}:"
                yield from _sequence(value, indent)
            case _, str() if "\n" in value:
                yield f"{pad}{key}: {'|' if value.endswith(chr(10)) else '|-'}"
                yield from (f"{pad}  {_escaped(line)}" for line in value.splitlines())
            case _:
                yield f"{pad}{key}: {_scalar(value)}"


def _sequence(items: list[Tree], indent: int) -> Iterator[str]:
    pad = " " * indent
    for item in items:
        if isinstance(item, If):
            yield from _branches(item, pad, lambda branch: _sequence([branch], indent))
        elif isinstance(item, dict) and item:
            first, *rest = _mapping(item, indent + 2)
            yield f"{pad}- {first.lstrip()}"
            yield from rest
        else:
            yield f"{pad}- {_scalar(item)}"


def _branches(value: If, pad: str, print_branch: Any) -> Iterator[str]:
    yield f"{pad}{{{{- if {value.condition} }}}}"
    yield from print_branch(value.then)
    while isinstance(value.otherwise, If):
        value = value.otherwise
        yield f"{pad}{{{{- else if {value.condition} }}}}"
        yield from print_branch(value.then)
    if value.otherwise is not ABSENT:
        yield f"{pad}{{{{- else }}}}"
        yield from print_branch(value.otherwise)
    yield f"{pad}{{{{- end }}}}"


def _scalar(value: Tree) -> str:
    if isinstance(value, Expression):
        return f"{{{{ {value.text} }}}}"
    plain = str(value) if isinstance(value, Template) else value
    text = (
        yaml.safe_dump(plain, width=WIDE, default_flow_style=True)
        .removesuffix("\n")
        .removesuffix("\n...")
    )
    return text if isinstance(value, Template) else _escaped(text)


def _escaped(text: str) -> str:
    return text.replace("{{", '{{ "{{" }}')
