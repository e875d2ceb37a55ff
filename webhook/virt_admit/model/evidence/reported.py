"""What the objects around some others report as wrong: evidence beside a verdict,
in the words of their controllers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain
from typing import Final, Protocol

from virt_admit.model.evidence import (
    complaints,
    container_states,
    demanding_quotas,
    forbidden_pods,
    unready_pods,
)
from virt_admit.model.evidence.complaints import Complaint
from virt_admit.model.evidence.mentions import Mentions
from virt_admit.model.evidence.writes import refused_writes
from virt_admit.model.kubernetes import clock, events, kinds, node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    DATA_SOURCE,
    NM,
    NM_KUBEVIRT,
    NODE,
    POD,
    REPLICA_SET,
    VM_CLONE,
    VM_RESTORE,
    VM_SNAPSHOT,
    VMI,
    VMIM,
)
from virt_admit.model.kubernetes.nodes import HOSTNAME
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import scheduler_words

MOST: Final = 6
"""Objects that are shown: an administrator reads them all."""
_LONGEST: Final = 300
"""Characters of what an object reports."""
_JUDGED: Final = frozenset((VMIM, VM_SNAPSHOT, VM_RESTORE, VM_CLONE, REPLICA_SET, DATA_SOURCE))
"""Kinds of which virt-admit says itself what is wrong. OpenShift makes data sources of images
that are never imported."""
REPORTING: Final[Reads] = union(
    {kind: complaints.FIELDS for kind in kinds.ALL if kind not in _JUDGED},
    {POD: (*container_states.FIELDS, "metadata.ownerReferences", "spec.nodeName")},
    node_health.READS,
    unready_pods.READS,
    demanding_quotas.READS,
    refused_writes.READS,
)
"""What ``of_cluster`` reads of the kinds that are read in any case."""
_WORD: Final = re.compile(r"[\w.-]{4,}\w")
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_ENOUGH: Final = 0.8
"""The share of the words of a complaint that make it a repetition of a text with these words."""
_END: Final = 4
"""Words at the end of a message that make it the same message after another beginning."""
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,}")
"""What differs in messages about several objects that have one cause."""
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


def any_object(_: Object) -> bool:
    """Ask every object."""
    return True


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
    group: str = ""
    """The API group, if objects of another one have this kind too; else empty."""

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        more = self.also[0] if len(self.also) == 1 else f"{len(self.also)} more"
        subject, verb = (f"{place} and {more}", "report") if self.also else (place, "reports")
        kind = f"{self.kind}.{self.group}" if self.group else self.kind
        return f"{kind} {subject} {verb}: {self.text}{f' (at {self.at})' if self.at else ''}"


def around(
    start: Sequence[Object],
    cluster: WholeCluster,
    said: Collection[str],
    read: Read = no_events,
    *,
    lasting: bool = False,
) -> tuple[ReportedProblem, ...]:
    """Return what the objects around some others report as wrong, the nearest first,
    each object once.

    Args:
        start: the objects to begin with.
        cluster: the cluster.
        said: the texts that stand beside it. What they say already is left out.
        read: adds the events about some objects to the cluster, where it does not have them.
        lasting: leave out what is usual while work is going on, and objects that only name others.
    """
    mentions = Mentions(cluster, {obj.namespace for obj in start}, start)
    near = [each.obj for each in mentions.around(start, forward=lasting)]
    read(near)
    return _around(near, cluster, said, complaints.lasting if lasting else complaints.of)


def around_named(
    cluster: WholeCluster,
    said: Collection[str],
    beside: Collection[str] = (),
    returning: Sequence[Object] = (),
) -> tuple[ReportedProblem, ...]:
    """Return what the objects that texts name, and those around them, report as wrong.

    Args:
        cluster: the cluster.
        said: as above.
        beside: what is said of these objects elsewhere.
        returning: the Machines of Cluster API that come back by themselves.
    """
    mentions = Mentions(cluster, ())
    near = [each.obj for each in mentions.around(mentions.named_in(said))]

    def standing(obj: Object, cluster: Cluster) -> Iterator[Complaint]:
        found = complaints.of(obj, cluster)
        return (each for each in found if not _tells_a_start(each, cluster, returning))

    return _around(near, cluster, (*said, *beside), standing)


def of_cluster(
    cluster: WholeCluster, said: Collection[str], counts: Callable[[Object], bool] = any_object
) -> tuple[ReportedProblem, ...]:
    """Return what objects have reported as wrong for long, the newest first.

    Migrations, snapshots, restores and clones of guests are left out: virt-admit judges them all.

    Args:
        cluster: the cluster.
        said: the texts that stand beside it. Objects that they name with their kinds are left out,
            as rules judge them. So is what one of them says of an object with its name.
        counts: whether an object of the cluster is asked.
    """
    texts: dict[str, list[_Text]] = {}  # by the names in them
    for text in map(_Text, said):
        for name in text.names:
            texts.setdefault(name, []).append(text)
    found = [
        first
        for obj in cluster
        if kinds.of(obj) not in _JUDGED and counts(obj)
        if (first := _lasting(obj, _about(obj, texts), said, cluster)) is not None
        and not (_tells_a_start(first, cluster) or _awaits_a_node(first, cluster))
    ]
    found.sort(key=lambda each: (each.obj.kind, each.obj.full_name))
    found.sort(key=lambda each: clock.stamp(each.time) or "", reverse=True)
    return _grouped(found, said, cluster)


_CAPI: Final = "cluster.x-k8s.io"
_STARTS: Final = timedelta(minutes=30)
"""A host of bare metal is a Node by then, and what starts longer is told."""
_FAILS: Final = re.compile(r"(?i)fail|error|cannot|denied|no available|unreachable")
_OWNERS: Final = {"Cluster": "cluster", "MachineDeployment": "deployment", "MachineSet": "set"}
"""The kinds that a Machine names in its labels."""


def _tells_a_start(
    complaint: Complaint, cluster: Cluster, returning: Sequence[Object] = ()
) -> bool:
    """Return whether Cluster API only says that a new Machine is not a Node yet, as one that an
    autoscaler or a health check has asked for, or that one comes back: with maxUnavailable 0 its
    owners are not Available
    (core/reconcilers/machinedeployment/machinedeployment_status.go#setAvailableCondition).
    """
    if not complaint.obj.group.endswith(_CAPI) or _FAILS.search(complaint.message):
        return False
    own = [each for each in cluster.cached(_starting) if _is_of_start(complaint, each)]
    if complaint.time and not clock.has_lasted(clock.stamp(complaint.time), _STARTS, cluster):
        own += [each for each in returning if _is_of_start(complaint, each)]
    counted = _COUNTED.search(complaint.message)
    return bool(own) and (counted is None or abs(int(counted[1]) - int(counted[2])) <= len(own))


def _awaits_a_node(complaint: Complaint, cluster: Cluster) -> bool:
    """Return whether a pod only says that no node takes it while the cluster-autoscaler adds one
    for it (kubernetes/autoscaler:cluster-autoscaler/processors/status/
    eventing_scale_up_processor.go).
    """
    pod, own = complaint.obj, complaint.obj.full_name
    if pod.kind != POD.kind or not complaint.words.startswith(_NO_NODE):
        return False
    asked = (each["involvedObject"] for each in events.known(POD.kind, _SCALES, cluster))
    added = any(f"{each['namespace'].text}/{each['name'].text}" == own for each in asked)
    return added and not clock.has_lasted(pod.created, _STARTS, cluster)


_NO_NODE, _SCALES = "FailedScheduling", "TriggeredScaleUp"
_COUNTED: Final = re.compile(
    r"\b(\d{1,6})(?: available replicas, at least | replicas, current )(\d{1,6})\b"
)
"""v1beta2 and v1beta1: machinedeployment_controller.go#reconcileV1Beta1Conditions."""


def _is_of_start(complaint: Complaint, machine: Object) -> bool:
    obj, created = complaint.obj, clock.instant(machine.created)
    if created is None or complaint.time is None or obj.namespace != machine.namespace:
        return False
    if complaint.time < created - timedelta(minutes=1):  # it began before
        return False
    if obj.kind == machine.kind:
        return obj.name == machine.name
    owners = {each: machine.labels.get(f"{_CAPI}/{each}-name") for each in _OWNERS.values()}
    made = (machine.name, owners["set"], owners["deployment"])
    names_it = obj.kind != "Cluster" or any(each and each in complaint.message for each in made)
    return names_it and owners.get(_OWNERS.get(obj.kind, "")) == obj.name


def _starting(cluster: Cluster) -> Sequence[Object]:
    """Return the Machines of Cluster API without a Node for a usual time that have not failed."""
    return [
        machine
        for machine in cluster.known(CAPI_MACHINE)
        if not machine.deleted
        and not machine.at("status", "nodeRef", "name").text
        and (age := clock.age(machine, cluster)) is not None
        and age < _STARTS
        and not any(_FAILS.search(each.message) for each in complaints.of(machine, cluster))
    ]


def _about(obj: Object, texts: Mapping[str, Sequence[_Text]]) -> Sequence[_Text]:
    """Return the texts that name an object, the VM of a pod, or the volume of an attachment."""
    of = obj.at("spec", "source", "persistentVolumeName").text or obj.owned_by(VMI.kind)
    return (*texts.get(obj.name, ()), *texts.get(of, ()))


def _lasting(
    obj: Object, texts: Sequence[_Text], said: Collection[str], cluster: Cluster
) -> Complaint | None:
    """Return what an object has reported for long; None: nothing, or a text that names it says
    it."""
    found = list(complaints.lasting(obj, cluster))
    if any(text.is_about(obj) for text in texts):
        return _unexplained(found, said, cluster)
    if any(_is_of_pods(each, said, cluster) for each in found):
        return None
    return _first_new(found, texts) or _unexplained(found, said, cluster)


def _is_of_pods(complaint: Complaint, said: Collection[str], cluster: Cluster) -> bool:
    """Return whether a Deployment only lacks pods, and a text names one of them with its cause."""
    pods = unready_pods.of(complaint.obj, cluster) if complaint.of_pods else ()
    told = ((pod.name, unready_pods.why(pod, cluster)) for pod in pods)
    return any(why and any(name in text and why in text for text in said) for name, why in told)


def _unexplained(
    found: Iterable[Complaint], said: Collection[str], cluster: Cluster
) -> Complaint | None:
    """Return the first write that was refused, if no text says why."""
    for each in found:
        refused = refused_writes.of(each.message, cluster, each.time)
        if refused is not None and not refused.is_said(said):
            return each
    return None


def _around(
    near: Iterable[Object],
    cluster: WholeCluster,
    said: Collection[str],
    complain: Callable[[Object, Cluster], Iterator[Complaint]],
) -> tuple[ReportedProblem, ...]:
    texts = [_Text(text) for text in said]
    others = (obj for obj in near if kinds.of(obj) is not VMIM)
    every = [list(complain(obj, cluster)) for obj in others]
    new = (_first_new(own, texts) or _unexplained(own, said, cluster) for own in every)
    found = [each for each in new if each is not None and not _is_state(each)]
    return _grouped(found, said, cluster)[:MOST]


def _is_state(complaint: Complaint) -> bool:
    """Whether a pod says that it has failed and nothing more: what it belongs to says that too."""
    return complaint.obj.kind == POD.kind and complaint.words == "phase Failed"


def _first_new(found: Iterable[Complaint], texts: Sequence[_Text]) -> Complaint | None:
    return next((each for each in found if not any(text.says(each) for text in texts)), None)


def _grouped(
    found: Iterable[Complaint], said: Collection[str], cluster: WholeCluster
) -> tuple[ReportedProblem, ...]:
    """Return each complaint once: with the objects of its kind that have it too,
    and without what follows from it.

    An owner repeats what its objects report: a MachineSet, a Deployment.
    """
    shown: dict[tuple[str, str], ReportedProblem] = {}
    first: dict[tuple[str, str], Complaint] = {}
    shared: frozenset[str] | None = None
    texts: dict[tuple[str, str], _Text] = {}
    for each in found:
        bound = _bound(each.obj, cluster)
        key = each.obj.kind, _ID.sub("", f"{each.words}{bound}")
        if key in shown:
            also = (*shown[key].also, each.obj.full_name)
            text = _of_both(shown[key].text, first[key], each)
            shown[key] = replace(shown[key], also=also, text=text)
            continue
        others = (text for (kind, _), text in texts.items() if kind != each.obj.kind)
        if not any(text.says(each) for text in others):
            shared = _shared_kinds(cluster) if shared is None else shared
            told = chain(said, (other.text for other in shown.values()))
            why = refused_writes.hint(each.message, cluster, each.time, told)
            own = _problem(each, bound, shared, cluster)
            shown[key], first[key] = replace(own, text=f"{own.text}{why}"), each
            if len(texts) < _COMPARED:
                texts[key] = _Text(scheduler_words(each.words, _LONGEST))
    return tuple(each for each in shown.values() if not _is_quoted(each, shown.values()))


def _is_quoted(problem: ReportedProblem, every: Iterable[ReportedProblem]) -> bool:
    """Return whether the owner of a pod is shown with the name and the words of that pod."""
    words = problem.text[:_QUOTED]
    others = (each.text for each in every if each.kind != problem.kind)
    is_pod = problem.kind == POD.kind and not problem.also
    return is_pod and any(problem.name in text and words in text for text in others)


_QUOTED: Final = 60
"""Characters of a complaint by which it is known again where an owner repeats it."""


def _of_both(text: str, first: Complaint, other: Complaint) -> str:
    """Return what stands for two complaints, without what only the first one names."""
    for own, its in zip(_ID.findall(first.words), _ID.findall(other.words), strict=False):
        if own != its:
            text = text.replace(own, "…")
    return text


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
        said = complaint.message or complaint.words
        return any(self._has(_words(each)) for each in (said, scheduler_words(said, _LONGEST)))

    def _has(self, words: Sequence[str]) -> bool:
        end = words[-_END:]
        told = len(end) == _END and f" {' '.join(end)} " in self._line
        return told or 0 < _ENOUGH * len(words) <= sum(word in self._words for word in words)


def _words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if not _ID.fullmatch(word)]


def _bound(obj: Object, cluster: Cluster) -> str:
    """Return that a workload can run on one node alone, which takes no pods now, as an insertion;
    empty: that is not so.
    """
    name = obj.at("spec", "template", "spec", "nodeSelector")[HOSTNAME].text
    node = find(cluster, NODE, "", name) if name else None
    if node is None:
        return ""
    kept = (each for kind in (NM, NM_KUBEVIRT) for each in cluster.known(kind))
    order = next((each for each in kept if each.at("spec", "nodeName").text == name), None)
    if order is not None:
        return f"; it runs on {name} alone, which is in {order.kind} {order.name}"
    if node.at("spec", "unschedulable").boolean:
        return f"; it runs on {name} alone, which is cordoned"
    ready = node.condition("Ready")["status"].text
    return f"; it runs on {name} alone, which is not Ready" if ready in ("False", "Unknown") else ""


def _problem(
    complaint: Complaint, bound: str, shared: Collection[str], cluster: Cluster
) -> ReportedProblem:
    """Return the first complaint of its group, of a Deployment with one pod as an example."""
    obj = complaint.obj
    said = complaint.message
    hint = forbidden_pods.hint(obj, said) or demanding_quotas.hint(obj, said)
    pods = unready_pods.words(obj, cluster) if complaint.of_pods else ""
    words = scheduler_words(pods or complaint.words, _LONGEST)
    text = f"{words.rstrip('.') if bound else words}{bound}{hint}"
    time, group = clock.stamp(complaint.time), obj.group if obj.kind in shared else ""
    return ReportedProblem(obj.kind, obj.namespace, obj.name, text, time, group=group)


def _shared_kinds(cluster: WholeCluster) -> frozenset[str]:
    """Return the kinds that objects of several API groups have."""
    groups: dict[str, set[str]] = {}
    for obj in cluster:
        groups.setdefault(obj.kind, set()).add(obj.group)
    return frozenset(kind for kind, some in groups.items() if len(some) > 1)
