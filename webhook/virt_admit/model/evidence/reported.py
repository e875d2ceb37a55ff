"""What the objects around some others report as wrong: evidence beside a verdict,
in the words of their controllers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from virt_admit.model.evidence import complaints, forbidden_pods
from virt_admit.model.evidence.complaints import Complaint
from virt_admit.model.evidence.mentions import Mentions
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    DATA_SOURCE,
    DATA_VOLUME,
    NODE,
    POD,
    PVC,
    REPLICA_SET,
    VM,
    VM_CLONE,
    VM_RESTORE,
    VM_SNAPSHOT,
    VMI,
    VMIM,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.messages import cut

MOST: Final = 6
"""Objects that are shown: an administrator reads them all."""
_LONGEST: Final = 300
"""Characters of what an object reports."""
_JUDGED: Final = frozenset(
    (
        *(VM, VMI, VMIM, VM_SNAPSHOT, VM_RESTORE, VM_CLONE),
        *(DATA_VOLUME, DATA_SOURCE, PVC, POD, REPLICA_SET, NODE),
    )
)
"""Kinds of which virt-admit says itself what is wrong."""
REPORTING: Final[Reads] = {kind: complaints.FIELDS for kind in kinds.ALL if kind not in _JUDGED}
"""What ``of_cluster`` reads of the kinds that are read in any case."""
ANY_GROUP: Final = re.compile("")
"""Objects of every API group."""
_WORD: Final = re.compile(r"[\w.-]{4,}\w")
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_ENOUGH: Final = 0.8
"""The share of the words of a complaint that make it a repetition of a text with these words."""
_END: Final = 4
"""Words at the end of a message that make it the same message after another beginning."""
_COMPARED: Final = 100
"""Complaints that later ones are compared with."""


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
    also: tuple[str, ...] = ()
    """Other objects of the kind that report the same, as ``namespace/name``."""

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        subject, verb = (
            (f"{place} and {len(self.also)} more", "report") if self.also else (place, "reports")
        )
        return f"{self.kind} {subject} {verb}: {self.text}{f' (at {self.at})' if self.at else ''}"


def around(
    start: Sequence[Object],
    cluster: WholeCluster,
    said: Collection[str],
    read: Read = no_events,
) -> tuple[ReportedProblem, ...]:
    """Return what the objects around some others report as wrong, the nearest first,
    each object once.

    Args:
        start: the objects to begin with.
        cluster: the cluster.
        said: the texts that stand beside it. What they say already is left out.
        read: adds the events about some objects to the cluster, where it does not have them.
    """
    mentions = Mentions(cluster, {obj.namespace for obj in start}, start)
    near = [each.obj for each in mentions.around(start)]
    read(near)
    return _around(near, cluster, said)


def around_named(cluster: WholeCluster, said: Collection[str]) -> tuple[ReportedProblem, ...]:
    """Return what the objects that texts name, and those around them, report as wrong.

    Arguments as above.
    """
    mentions = Mentions(cluster, ())
    near = [each.obj for each in mentions.around(mentions.named_in(said))]
    return _around(near, cluster, said)


def of_cluster(
    cluster: WholeCluster, said: Collection[str], groups: re.Pattern[str] = ANY_GROUP
) -> tuple[ReportedProblem, ...]:
    """Return what objects have reported as wrong for long, the newest first.

    Guests, their migrations, disks and pods are left out: virt-admit judges them itself. So are
    nodes.

    Args:
        cluster: the cluster.
        said: the texts that stand beside it. Objects that they name with their kinds are left out,
            as rules judge them. So is what one of them says of an object with its name.
        groups: the API groups of the objects.
    """
    texts = [_Text(text) for text in said]
    found = [
        first
        for obj in cluster
        if kinds.of(obj) not in _JUDGED and groups.search(obj.group)
        if (first := _lasting(obj, texts, cluster)) is not None
    ]
    found.sort(key=lambda each: (each.obj.kind, each.obj.full_name))
    found.sort(key=lambda each: clock.stamp(each.time) or "", reverse=True)
    return _grouped(found)


def _lasting(obj: Object, texts: Sequence[_Text], cluster: Cluster) -> Complaint | None:
    """Return what an object has reported for long; None: nothing, or a text says it."""
    found = list(complaints.lasting(obj, cluster))
    # few objects report anything, but texts may be many
    if not found or any(text.is_about(obj) for text in texts):
        return None
    return _first_new(found, [each for each in texts if obj.name in each.names])


def _around(
    near: Iterable[Object], cluster: Cluster, said: Collection[str]
) -> tuple[ReportedProblem, ...]:
    texts = [_Text(text) for text in said]
    judged = (obj for obj in near if kinds.of(obj) not in (VMIM, NODE))
    new = (_first_new(complaints.of(obj, cluster), texts) for obj in judged)
    return _grouped([each for each in new if each is not None])[:MOST]


def _first_new(found: Iterable[Complaint], texts: Sequence[_Text]) -> Complaint | None:
    return next((each for each in found if not any(text.says(each) for text in texts)), None)


def _grouped(found: Iterable[Complaint]) -> tuple[ReportedProblem, ...]:
    """Return each complaint once: with the objects of its kind that have it too,
    and without what follows from it.

    An owner repeats what its objects report: a MachineSet, a Deployment.
    """
    shown: dict[tuple[str, str], ReportedProblem] = {}
    texts: dict[tuple[str, str], _Text] = {}
    for each in found:
        key = each.obj.kind, each.words
        if key in shown:
            shown[key] = replace(shown[key], also=(*shown[key].also, each.obj.full_name))
        elif not any(text.says(each) for (kind, _), text in texts.items() if kind != each.obj.kind):
            shown[key] = _problem(each)
            if len(texts) < _COMPARED:
                texts[key] = _Text(each.words)
    return tuple(shown.values())


class _Text:
    """A text that stands there already."""

    def __init__(self, whole: str) -> None:
        self._whole = whole
        self.names = frozenset(_NAME.findall(whole))
        words = _words(whole)
        self._words, self._line = frozenset(words), f" {' '.join(words)} "

    def is_about(self, obj: Object) -> bool:
        """Whether the text names an object with its kind."""
        return obj.name in self.names and (
            f"{obj.kind} {obj.full_name}" in self._whole or f"{obj.kind} {obj.name}" in self._whole
        )

    def says(self, complaint: Complaint) -> bool:
        """Whether a complaint has nothing new: nearly all of its words, or its end,
        where errors have their cause.
        """
        words = _words(complaint.message or complaint.words)
        end = words[-_END:]
        told = len(end) == _END and f" {' '.join(end)} " in self._line
        return told or 0 < _ENOUGH * len(words) <= sum(word in self._words for word in words)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _problem(complaint: Complaint) -> ReportedProblem:
    obj = complaint.obj
    text = f"{cut(complaint.words, _LONGEST)}{forbidden_pods.hint(obj, complaint.message)}"
    return ReportedProblem(obj.kind, obj.namespace, obj.name, text, clock.stamp(complaint.time))
