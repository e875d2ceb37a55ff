"""Errors of libvirt in the words of KubeVirt: quoted repeatedly, with options of QEMU in JSON.

Source: kubevirt/kubevirt:pkg/virt-handler/cmd-client/client.go#handleError; the text of a libvirt
error is that of go-libvirt (``LibvirtError(Code=1, Domain=10, Message='…')``).
"""

from __future__ import annotations

import re
from typing import Final

_MARKS: Final = re.compile(r'(?<!\\)\\{1,32}(["\'])')
_BREAKS: Final = re.compile(r"(?<!\\)\\{1,32}[nrt]")
"""An error that is quoted six times has 31 or 32 marks, and the search of a longer row would take
quadratic time."""
_WRAPPED: Final = re.compile(
    r""""?(?:LibvirtError|virError)\(Code=\d+, Domain=\d+, Message='(.*)'\)"?""", re.DOTALL
)
_OPTION: Final = re.compile(r" -(?:blockdev|chardev|device|netdev|object) \{[^{}]*\}(?=:)")
"""A device as QEMU was told: its error follows."""


def legible(said: str) -> str:
    """Return an error without the marks of quoting and without the JSON of a device."""
    if _WRAPPED.search(said) is None:
        return said
    plain = _BREAKS.sub(" ", _MARKS.sub(r"\1", _WRAPPED.sub(r"\1", said)))
    return " ".join(_OPTION.sub(_named, plain).split())


def _named(option: re.Match[str]) -> str:
    """Return the name of a device."""
    name = _ID.search(option[0])
    return f" device {name[1]}" if name is not None else ""


_ID: Final = re.compile(r'"id": ?"([\w.-]{1,253})"')
