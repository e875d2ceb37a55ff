"""What the objects around some others report as wrong: evidence beside a verdict, in the words of their controllers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from virt_admit.model.evidence import complaints
from virt_admit.model.evidence.complaints import Complaint
from virt_admit.model.evidence.mentions import Mentions, Near
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, NODE, POD, PVC, VM, VMI, VMIM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import cut

MOST: Final = 6
"""Objects that are shown: an administrator reads them all."""
_LONGEST: Final = 300
"""Characters of what an object reports."""
_JUDGED: Final = frozenset(
    (VM.kind, VMI.kind, VMIM.kind, POD.kind, PVC.kind, DATA_VOLUME.kind, "ReplicaSet", NODE.kind)
)
"""Kinds of which virt-admit says itself what is wrong. Storage operators have nodes of their own."""
ANY_GROUP: Final = re.compile("")
"""Objects of every API group."""
_WORD: Final = re.compile(r"[\w.-]{5,}")
_ENOUGH: Final = 0.8
"""The share of the words of a complaint that, where they were said before, make it a repetition."""

_END: Final = 4
"""Words at the end of a message that make it the same message after another beginning."""


class WholeCluster(Cluster, Protocol):
    """A cluster whose objects can be gone through, whatever their kinds are."""

    def __iter__(self) -> Iterator[Object]:
        """All objects."""


Read = Callable[[Sequence[Object]], None]
"""Adds the events about some objects to a cluster that does not have them."""


def no_events(_: Sequence[Object]) -> None:
    """Read no events."""


@dataclass(frozen=True, slots=True)
class ReportedProblem:
    """What one object reports as wrong."""

    kind: str
    namespace: str
    """Empty: its kind has none."""
    name: str
    text: str
    """The words of the object or of the event about it, shortened."""
    at: str | None
    """When it was reported last (RFC 3339). None: the object does not say."""

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {place} reports: {self.text}{f' (at {self.at})' if self.at else ''}"


def around(
    start: Sequence[Object],
    cluster: WholeCluster,
    said: Collection[str],
    read: Read = no_events,
) -> tuple[ReportedProblem, ...]:
    """Return what the objects around some others report as wrong, the nearest first, each object once.

    Args:
        start: the objects to begin with.
        cluster: the cluster.
        said: the texts that stand beside it. What they say already is left out.
        read: adds the events about some objects to the cluster, where it does not have them.
    """
    mentions = Mentions(cluster, {obj.namespace for obj in start}, start)
    near = mentions.around(start)
    read([each.obj for each in near])
    return _reported(near, cluster, said)


def around_named(cluster: WholeCluster, said: Collection[str]) -> tuple[ReportedProblem, ...]:
    """Return what the objects that texts name, and those around them, report as wrong. Arguments as above."""
    mentions = Mentions(cluster, ())
    return _reported(mentions.around(mentions.named_in(said)), cluster, said)


def of_cluster(
    cluster: WholeCluster, said: Collection[str], groups: re.Pattern[str] = ANY_GROUP
) -> tuple[ReportedProblem, ...]:
    """Return what objects have reported as wrong for long, the newest first.

    Guests, their migrations, disks and pods are left out: virt-admit judges them itself. So are nodes.

    Args:
        cluster: the cluster.
        said: as above.
        groups: the API groups of the objects.
    """
    known = _Said(said)
    found = (
        complaint
        for obj in cluster
        if obj.kind not in _JUDGED and groups.search(obj.group)
        for complaint in islice(complaints.lasting(obj, cluster), 1)
    )
    shown: list[ReportedProblem] = []
    for complaint in sorted(found, key=lambda each: clock.stamp(each.time) or "", reverse=True):
        if not known.repeats(complaint):
            known.add(complaint.words)
            shown.append(_problem(complaint))
    return tuple(shown)


def _reported(near: Sequence[Near], cluster: Cluster, said: Collection[str]) -> tuple[ReportedProblem, ...]:
    known = _Said(said)
    found: list[ReportedProblem] = []
    for obj in (each.obj for each in near if kinds.of(each.obj) not in (VMIM, NODE)):
        new = (each for each in complaints.of(obj, cluster) if not known.repeats(each))
        if (first := next(new, None)) is not None:
            known.add(first.words)
            found.append(_problem(first))
    return tuple(found[:MOST])


class _Said:
    """The words that stand there already."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._words: set[str] = set()
        self._text = ""
        self.add(" ".join(texts))

    def add(self, text: str) -> None:
        """Count another text."""
        words = _words(text)
        self._words.update(words)
        self._text += f" {' '.join(words)} "

    def repeats(self, complaint: Complaint) -> bool:
        """Whether a complaint has nothing new: nearly all of its words, or its end, where errors have their cause."""
        words = _words(complaint.message or complaint.words)
        end = words[-_END:]
        told = len(end) == _END and f" {' '.join(end)} " in self._text
        return told or sum(word in self._words for word in words) >= _ENOUGH * len(words)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _problem(complaint: Complaint) -> ReportedProblem:
    obj = complaint.obj
    text = cut(complaint.words, _LONGEST)
    return ReportedProblem(obj.kind, obj.namespace, obj.name, text, clock.stamp(complaint.time))
