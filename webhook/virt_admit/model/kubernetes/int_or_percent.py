"""Limits that are a count or a percentage of machines or nodes.

See ``units`` for what Go and Python read differently.
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass
from typing import Final

from virt_admit.model.kubernetes.units import admits, show

INT_OR_PERCENT: Final = r"\A(?:(?:100|[0-9]{1,2})%|[0-9]+)\Z"
"""The schema of ``maxUnhealthy`` and ``minHealthy`` (not in Cluster API).
It applies to strings only.
"""

MAX_INT32: Final = 2**31 - 1
"""The largest int-or-string integer. A larger one makes the whole list of objects impossible to
decode.
"""

_PERCENT: Final = r"[0-9]+%"
_DIGITS: Final = r"[0-9]+"
_NEGATIVE: Final = r"-[0-9]+%?"


class LimitKind(enum.Enum):
    """The controller that reads the limit: the same text means different numbers to different
    controllers.

    Sources: openshift/machine-api-operator, kubernetes-sigs/cluster-api:
    …machinehealthcheck_controller.go#getMaxUnhealthy; medik8s/node-healthcheck-operator:
    internal/controller/nodehealthcheck_controller.go#getMinHealthy.
    """

    MACHINE_API = (
        "maxUnhealthy of machine.openshift.io: a percentage is rounded down; digits in a string "
        "are a count"
    )
    CLUSTER_API = "maxUnhealthy of cluster.x-k8s.io: a percentage is rounded down"
    NODE_MAX_UNHEALTHY = "maxUnhealthy of remediation.medik8s.io: a percentage is rounded up"
    NODE_MIN_HEALTHY = "minHealthy of remediation.medik8s.io: a percentage is rounded up"


class Fault(enum.Enum):
    """Why a value is not a valid limit."""

    TYPE = "neither an integer nor a string"
    FORM = "a string that is not a percentage"
    DIGITS = "an integer in quotes, which this controller cannot read"
    NEGATIVE = "below zero"
    TOO_LARGE = "beyond 32 bits"
    ABOVE_100 = "more than 100 percent"


class LimitError(ValueError):
    """A value that is not a valid limit."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class IntOrPercent:
    """A limit: ``number`` machines or nodes,
    or ``number`` percent of those that the selector matches.
    """

    number: int
    percent: bool = False

    def __str__(self) -> str:
        return f"{self.number}%" if self.percent else str(self.number)


def parse_int_or_percent(value: object, limit: LimitKind) -> IntOrPercent:
    """Parse a limit as its controller does: ``3``, ``"40%"`` and, only in the Machine API, ``"3"``.

    Raises:
        LimitError: the schema or the controller rejects the value, or accepts it and then never
            remediates.
    """
    if isinstance(value, str):
        return _limit_in_text(value, limit)
    if not isinstance(value, int) or isinstance(value, bool):
        raise LimitError(
            Fault.TYPE, f'{show(value)} is neither an integer nor a percentage such as "40%"'
        )
    if value < 0:
        raise LimitError(Fault.NEGATIVE, f"{value} is below zero")
    if value > MAX_INT32:
        raise LimitError(Fault.TOO_LARGE, f"{show(value)} is more than {MAX_INT32}")
    return IntOrPercent(value)


def _limit_in_text(text: str, limit: LimitKind) -> IntOrPercent:
    shown = show(text)
    if re.fullmatch(_NEGATIVE, text):
        raise LimitError(Fault.NEGATIVE, f"{shown} is below zero")
    digits = text.removesuffix("%").lstrip("0") or "0"
    if re.fullmatch(_PERCENT, text):
        if len(digits) > 3 or int(digits) > 100:
            raise LimitError(Fault.ABOVE_100, f"{shown} is more than 100 percent")
        if limit is not LimitKind.CLUSTER_API and not admits(INT_OR_PERCENT, text):
            raise LimitError(Fault.FORM, f"{shown} has too many digits: write '{digits}%'")
        return IntOrPercent(int(digits), percent=True)
    if not re.fullmatch(_DIGITS, text):
        raise LimitError(
            Fault.FORM, f'{shown} is neither an integer nor a percentage such as "40%"'
        )
    if len(digits) > 10 or int(digits) > MAX_INT32:
        raise LimitError(Fault.TOO_LARGE, f"{shown} is more than {MAX_INT32}")
    if limit is not LimitKind.MACHINE_API:
        raise LimitError(Fault.DIGITS, f"{shown} is a string: write {digits} without quotes")
    return IntOrPercent(int(digits))


def allowed_unhealthy(value: IntOrPercent, total: int, limit: LimitKind) -> int:
    """Return how many of ``total`` machines or nodes may be unhealthy while their controller still
    remediates.

    0 means that the controller never remediates. This includes the case in which the
    NodeHealthCheck controller stops with an error because ``maxUnhealthy`` exceeds the number of
    nodes.
    """
    share = float(value.number) * float(total) / 100 if value.percent else float(value.number)
    match limit:
        case LimitKind.MACHINE_API | LimitKind.CLUSTER_API:
            return math.floor(share)
        case LimitKind.NODE_MAX_UNHEALTHY:
            return math.ceil(share) if share <= total else 0
        case LimitKind.NODE_MIN_HEALTHY:
            return max(0, total - math.ceil(share))
