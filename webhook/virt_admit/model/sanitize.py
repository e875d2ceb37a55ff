"""Make text from the outside safe to print: in terminals, CI logs, XML, Markdown,
and answers to the API server.

Names of files and objects, values and messages of parsers come from the author of a manifest. A
line break starts a new line in a CI log, where ``::error`` or ``##vso[`` is a command. An escape
sequence moves the cursor of a terminal, and a bidirectional mark reorders what a reader sees
(CVE-2021-42574).
"""

from __future__ import annotations

import re
from typing import Final

from virt_admit.model.messages import cut

MAX_NAME: Final = 512
"""Characters of a name. Kubernetes permits 253 for a name and 63 for a namespace,
Linux 255 bytes for a file name.
"""

MAX_CELL: Final = 2000
"""Characters of a cell of a table, which may list names."""

_ESCAPE: Final = (
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?)"
)
"""ECMA-48 control sequences and control strings: without their first byte,
``[31m`` would remain.
"""
_CONTROL: Final = r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+"
_INVISIBLE: Final = "[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
"""Marks that change the direction of text, and the byte order mark."""
_NO_CHARACTER: Final = "[\ud800-\udfff\ufffe\uffff]"
"""Halves of surrogate pairs, and the code points that XML 1.0 forbids besides control
characters.
"""


_UNESCAPED: Final = f"[\x7f-\x9f\u2028\u2029{_INVISIBLE[1:-1]}]"


def line(text: str) -> str:
    """Return a text as one printable line.

    The API server silently drops warnings with control characters.
    """
    if text.isascii() and text.isprintable():  # the common case
        return text.strip()
    text = re.sub(_CONTROL, " ", re.sub(_ESCAPE, "", text))
    return re.sub(_NO_CHARACTER, "\ufffd", re.sub(_INVISIBLE, "\ufffd", text)).strip()


_LOGIN: Final = re.compile(r"(?<=//)[^/\s\"']*@")


def without_login(text: str) -> str:
    """Return a text without the user and the password in its URLs."""
    return _LOGIN.sub("", text)


def name(text: str) -> str:
    """Return the name of a file or an object as one printable line of at most ``MAX_NAME``
    characters.
    """
    return cut(line(text), MAX_NAME)


def cell(text: str) -> str:
    """Return a text as one cell of a table on a terminal."""
    return cut(line(text), MAX_CELL)


def escape_json(text: str) -> str:
    """Return JSON text with escape sequences for characters that ``json.dumps(ensure_ascii=False)``
    leaves as they are.
    """
    return re.sub(_UNESCAPED, lambda found: f"\\u{ord(found[0]):04x}", text)


def indented(text: str) -> str:
    """Return a text as one printable line that keeps its indentation."""
    return text[: len(text) - len(text.lstrip(" "))] + line(text)


def lines(text: str) -> str:
    """Return a text of several lines with each line printable and its indentation kept."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "\n".join(map(indented, text.split("\n")))
