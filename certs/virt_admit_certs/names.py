"""The names in certificates: DNS names, IP addresses and the name constraints of signers."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from cryptography import x509

_LABEL: Final = r"[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?"

_DNS_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z)(\*\.)?{_LABEL}(\.{_LABEL})*\Z")


def canonical_name(name: str) -> str:
    """Return a DNS name in lower case, or an IP address without a zone in its shortest form.

    Raise ValueError.
    """
    lower = name.lower()
    # a name that ends in a number is an address
    if _DNS_NAME.match(lower) and not lower.rpartition(".")[2].isdigit():
        return lower
    with contextlib.suppress(ValueError):
        if "%" not in name:
            return str(ipaddress.ip_address(name))
    raise ValueError(f"{name!r} is neither a DNS name nor an IP address")


def general_name(name: str) -> x509.GeneralName:
    canonical = canonical_name(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(canonical))
    except ValueError:
        return x509.DNSName(canonical)


def name_constraints(names: Iterable[str]) -> x509.NameConstraints:
    """Return constraints that permit only these names.

    X.509 always permits the subdomains of a DNS name too.
    """
    permitted = [_subtree(name) for name in names]
    addressed = any(isinstance(tree, x509.IPAddress) for tree in permitted)
    return x509.NameConstraints(permitted, None if addressed else _ALL_ADDRESSES)


def _subtree(name: str) -> x509.GeneralName:
    found = general_name(name.removeprefix("*."))
    return (
        x509.IPAddress(ipaddress.ip_network(found.value))
        if isinstance(found, x509.IPAddress)
        else found
    )


_ALL_ADDRESSES: Final = tuple(
    x509.IPAddress(ipaddress.ip_network(block)) for block in ("0.0.0.0/0", "::/0")
)
"""Excluded if no address is permitted: X.509 allows every name of a kind that no constraint
mentions.
"""


@functools.lru_cache(maxsize=64)
def name_constraints_of(signer: x509.Certificate) -> x509.NameConstraints | None:
    """Return the name constraints of a signer, or None."""
    try:
        return signer.extensions.get_extension_for_class(x509.NameConstraints).value
    except (x509.ExtensionNotFound, ValueError):
        return None


def permits(signer: x509.Certificate, name: str) -> bool:
    """Return whether verifiers accept a certificate of this signer for a name in canonical form."""
    constraints = name_constraints_of(signer)
    if constraints is None:
        return True
    expected = general_name(name)
    permitted = [
        tree for tree in constraints.permitted_subtrees or () if isinstance(tree, type(expected))
    ]
    excluded = [
        tree for tree in constraints.excluded_subtrees or () if isinstance(tree, type(expected))
    ]
    return (not permitted or any(_within(expected, tree) for tree in permitted)) and not any(
        _within(expected, tree) for tree in excluded
    )


def _within(name: x509.GeneralName, tree: x509.GeneralName) -> bool:
    if isinstance(name, x509.IPAddress):
        return name.value in tree.value
    return f".{name.value.removeprefix('*.')}".endswith(f".{tree.value.lower().lstrip('.')}")


def names_of(cert: x509.Certificate) -> tuple[str, ...]:
    """Return the DNS names and IP addresses of a certificate, in its own order."""
    try:
        extension = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return tuple(
        str(name.value).lower()
        for name in extension.value
        if isinstance(name, x509.DNSName | x509.IPAddress)
    )


def good_for(cert: x509.Certificate, name: str) -> bool:
    """Return whether a certificate is valid for a name: it has the name,
    or ``*`` for the first label.
    """
    return not {name, f"*.{name.partition('.')[2]}"}.isdisjoint(names_of(cert))
