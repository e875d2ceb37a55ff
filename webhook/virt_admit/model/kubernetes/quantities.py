"""Quantities: numbers with a suffix, such as ``64Mi`` or ``100m``.

See ``units`` for what Go and Python read differently.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from virt_admit.model.kubernetes.units import LONGEST, show

_SUFFIXES: Final = {
    "": Fraction(1),
    **{suffix: Fraction(10) ** (3 * power) for power, suffix in enumerate("num", -3)},
    **{suffix: Fraction(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(2) ** (10 * power) for power, suffix in enumerate("KMGTPE", 1)},
}

QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]+))?"
)

_LARGEST_EXPONENT: Final = 1_000
"""Larger exponents are read as this one, which exceeds ``LARGEST``."""
LARGEST: Final = 2**63 - 1
"""What larger quantities mean (k8s.io/apimachinery pkg/api/resource/quantity.go#ParseQuantity,
maxAllowed).
"""


def parse_quantity(value: object, *, integers: bool = False) -> Fraction:
    """Return the exact number that a quantity such as ``64Mi``, ``1e3`` or ``100m`` (0.1) means.

    Args:
        value: the JSON value.
        integers: whether to accept JSON integers as well, for fields that the schema declares as
            int-or-string.

    Raises:
        ValueError: the value is not a valid quantity; the message has the problem and the remedy.
    """
    if integers and isinstance(value, int) and not isinstance(value, bool):
        return _bounded(Fraction(value))
    if not isinstance(value, str):
        raise ValueError(f'{show(value)} is not a quantity: write a string such as "64Mi" or "1G"')
    parsed = QUANTITY.fullmatch(value) if len(value) <= LONGEST else None
    if not parsed:
        raise ValueError(
            f"{show(value)} is not a quantity: write a number, and after it Ki Mi Gi Ti, k M G T, "
            "or nothing"
        )
    number, suffix, exponent = parsed.groups()
    if exponent:
        power = max(-_LARGEST_EXPONENT, min(_LARGEST_EXPONENT, float(exponent)))
        return _bounded(Fraction(number) * Fraction(10) ** int(power))
    return _bounded(Fraction(number) * _SUFFIXES[suffix or ""])


def _bounded(exact: Fraction) -> Fraction:
    return exact if -LARGEST <= exact <= LARGEST else Fraction(LARGEST if exact > 0 else -LARGEST)
