"""The parts of the time line from the loss of a node to the restart of its VMs, in seconds."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.remediation import timeline
from virt_admit.forecasts.remediation.remediation_steps import Span
from virt_admit.model.kubernetes.units import SECOND

DETECTED: Final = "detected"
"""The first part of every time line that counts from the loss."""
ELSEWHERE: Final = " started elsewhere"
"""How the part ends that waits for pods which a controller creates again."""


class Seconds(NamedTuple):
    """A range of whole seconds. ``high`` is None if nothing bounds it."""

    low: int
    high: int | None


def seconds(span: Span) -> Seconds:
    """Return a span of nanoseconds in whole seconds, rounded outwards."""
    return Seconds(span.least // SECOND, None if span.most is None else -(-span.most // SECOND))


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the time line of a VM, in the order of time."""

    what: str
    low: int
    high: int | None


class Detach(enum.Enum):
    """When volumes that one node alone may attach leave the lost node."""

    AT_ONCE = "the out-of-service taint detaches them"
    FORCED = "kube-controller-manager detaches them by force 6 minutes after the pod is gone"
    UNKNOWN = "not known"


def length(span: Seconds | None) -> tuple[bool, int, int]:
    """Return a key that sorts spans by their upper end: none first, unbounded ones last."""
    return (False, -1, -1) if span is None else (span.high is None, span.high or 0, span.low)


def total(parts: Iterable[Part]) -> Seconds:
    """Return when all parts are over."""
    low, high = 0, 0
    bounded = True
    for part in parts:
        low += part.low
        high += part.high or 0
        bounded = bounded and part.high is not None
    return Seconds(low, high if bounded else None)


def from_now(parts: Sequence[Part]) -> bool:
    """Return whether a time line begins now: a node that was lost before is being freed already."""
    return bool(parts) and parts[0].what != DETECTED


def detection(loss: Loss) -> Part:
    """Return how long it takes until Ready is Unknown.

    Counted from the last renewal of the node's Lease, at most 10 s before the loss.
    kube-controller-manager looks every 5 s. A new leader counts from its own first look
    (node_lifecycle_controller.go#updateNodeHealth), after the Lease of the old one. All parts that
    kube-controller-manager decides are checked against its own controllers:
    ``tests/upstream/clocks.py``.
    """
    grace = timeline.grace_period(loss.cluster) // SECOND
    return Part(DETECTED, grace, grace + _PERIOD + (_LEASE if loss.leader_moves else 0))


_PERIOD: Final = 5
_LEASE: Final = 27
"""``leader-elect-lease-duration`` of 15 s, a retry after 2 s, and up to 10 s from the last renewal
of the node to the loss.
"""
POD_GONE: Final = Part("pod gone", 0, 20)
"""PodGC looks every 20 s (podgc/gc_controller.go#gcTerminating)."""
NODE_GONE: Final = Part("pod gone", 40, 60)
"""After the Node was deleted PodGC waits for 40 s (…#gcOrphaned)."""
