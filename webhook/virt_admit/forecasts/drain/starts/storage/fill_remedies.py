"""What ends a failure to fill a disk, by the words of CDI and of Kubernetes about it."""

from __future__ import annotations

import re
from typing import Final

CERTIFICATE: Final = "give the source of the disk the CA of that server (certConfigMap)"
ADDRESS: Final = "correct the address of the source of the disk"
_SAID: Final = (
    (r"^ErrResourceExists", "give the disk another name, or use the claim that exists"),
    (
        r"^(?:ErrClaimNotValid|ErrIncompatiblePVC|CloneValidationFailed)",
        "correct what the disk asks for (storage)",
    ),
    (r"^(?:NotFound|CloneWithoutSource)\b", "correct the source of the disk"),
    (
        r"storageclass\S* \S+ not found",
        "create that StorageClass, or let the disk name another one (storageClassName)",
    ),
    (r"forbidden: User ", "let the operator of CDI restore what this account may do"),
    (r"violates PodSecurity", "label its namespace pod-security.kubernetes.io/enforce=privileged"),
    (r"is forbidden: ", "correct what the API server refuses"),
)
"""What ends a failure, by the reasons of events and the words of Kubernetes;
the first that fits.
"""
_OF_SOURCE: Final = (
    (
        r"certificate has expired",
        "renew the certificate of that server, or correct the time of the node",
    ),
    (r"x509|certificate", CERTIFICATE),
    (
        r"no space left|larger than|smaller than|is too small|insufficient space",
        "let the disk ask for more storage",
    ),
    (
        r"unauthorized|forbidden|\b40[13]\b",
        "correct the Secret with the credentials of the source (secretRef)",
    ),
    (r"not found|\b404\b|manifest unknown", ADDRESS),
    (
        r"no such host|connection refused|no route to host|timeout|timed out|unreachable",
        "let the pods of CDI reach that server, or correct the address of the source of the disk",
    ),
)
"""The same by the words of CDI's pods about the source (pkg/importer), which events do not use."""


def of_words(why: str, *, of_pod: bool = False) -> str:
    """Return what ends a failure of CDI, as far as its words tell it.

    ``of_pod``: whether a pod that fills it says them.
    """
    ways = (*_SAID, *_OF_SOURCE) if of_pod else _SAID
    found = (way for words, way in ways if re.search(words, why, re.IGNORECASE))
    return next(found, "correct the source of the disk" if of_pod else "correct what it says")
