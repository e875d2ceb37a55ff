"""When the VMs of a lost node run again.

A node falls silent; the node controller notices after its grace period; the health check waits for its condition's
time; remediators are called one after the other until one has made sure that the node is down. Only then are the
node's pods gone for Kubernetes, and each VM does what its run strategy says.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from virt_admit.model import kinds
from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.kubevirt import vmis
from virt_admit.model.objects import Object
from virt_admit.model.remediation import plan, watching
from virt_admit.model.remediation.health_checks import HealthCheck
from virt_admit.model.remediation.plan import Span, Step, exactly
from virt_admit.model.units import MINUTE, SECOND, format_duration

DEFAULT_GRACE: Final = 50 * SECOND
"""``node-monitor-grace-period`` of kube-controller-manager; 40 s in older releases and by OpenShift's own constant."""

GRACE: Final[Mapping[str, int]] = {
    "MediumUpdateAverageReaction": 2 * MINUTE,
    "LowUpdateSlowReaction": 5 * MINUTE,
}
"""The same by the cluster's worker latency profile (openshift/api: config/v1/types_node.go)."""


class Event(enum.StrEnum):
    """What can happen on the way."""

    SILENT = "silent"
    NOTICED = "noticed"
    ACTS = "acts"
    STEP = "step"
    CANCELLED = "cancelled"
    DOWN = "down"
    EXHAUSTED = "exhausted"


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happens, and when: counted from the moment in which the node falls silent."""

    at: Span
    event: Event
    what: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One remediator at work."""

    name: str
    """What is done, by whom."""
    takes: Span
    done: str
    """What is true afterwards."""
    timeout: int | None = None
    """After this long the next one begins, done or not; None: it has all the time in the world."""

    @property
    def cut_off(self) -> bool:
        """Whether it is cancelled before it can be done."""
        return self.timeout is not None and self.takes.least > self.timeout


class Restart(NamedTuple):
    """When the VMs of a silent node can start elsewhere, and what that time is made of, in nanoseconds."""

    grace: int
    """Until anybody notices."""
    patience: int
    """Until the check acts."""
    wasted: int
    """On remediators that are cancelled half-way."""
    takes: Span
    """What the first remediator takes that has enough time."""

    @property
    def at(self) -> Span:
        return self.takes.after(self.grace + self.patience + self.wasted)


@dataclass(frozen=True, slots=True)
class Timeline:
    """What happens after a node fell silent, in order."""

    moments: tuple[Moment, ...]
    restart: Restart | None
    """If that remediator succeeds; None: never."""
    never: str = ""
    """Why never; empty if there is a restart."""
    unseen: tuple[str, ...] = ()


# --- until the check acts ----------------------------------------------------------------------------------------


def latency_profile(cluster: Cluster) -> str:
    """The worker latency profile of an OpenShift cluster; empty for the default, and elsewhere.

    Raises:
        Unseen: it cannot be told.
    """
    config = cluster.get(kinds.CONFIG_NODE, "", "cluster")
    return (config.at("spec", "workerLatencyProfile").text or "") if config else ""


def patience(check: HealthCheck) -> int | None:
    """How long Ready must be Unknown until the check acts; None: it never acts on a silent node."""
    silent = [each.time for each in plan.symptoms(check) if (each.type, each.status) == ("Ready", "Unknown")]
    return min((time for time in silent if time is not None), default=None)


def _never_acts(check: HealthCheck, cluster: Cluster) -> str:
    """Why a check acts on no silent node, whatever happens; empty if it may."""
    selection = watching.selected_by(check, cluster)
    if check.selector.errors:
        return "the selector is malformed"
    if not selection and not selection.unseen:
        return "nothing is selected"
    budget = plan.budget(check, selection)
    if budget.never:
        return f"{budget.limit} {budget.limit_text}"
    return "" if patience(check) is not None else "no condition is Ready=Unknown for a time that can be read"


# --- what the check does -----------------------------------------------------------------------------------------

_PODS_GONE: Final = "the node is down for certain; its pods are removed, its VMs may start elsewhere"
_DELETED: Final = "machine and node are gone; its VMs may start elsewhere"


def stages(check: HealthCheck, cluster: Cluster) -> Iterator[Stage | Unseen]:
    """The remediators that a check calls, in order."""
    steps = plan.steps(check)
    nodes = watching.selected_by(check, cluster).objects if check.kind is kinds.NHC else None
    for step in steps:
        yield from _stage(step, cluster, nodes)
    if not steps and check.kind is not kinds.NHC:
        if check.external:
            yield Stage("the bare metal operator power-cycles the host", Span(0, None), _PODS_GONE)
        else:
            yield Stage("the Machine is deleted, its owner makes another", Span(0, None), _DELETED)


def _stage(step: Step, cluster: Cluster, nodes: Iterable[Object] | None) -> Iterator[Stage | Unseen]:
    takes = Span(0, None)
    try:
        takes = plan.takes(step, cluster, nodes)
    except Unseen as blind:
        yield blind
    done = _DELETED if step.kind is kinds.MDR_TEMPLATE else _PODS_GONE
    yield Stage(f"{step.remediator} {step.name}".rstrip(), takes, done, step.known_timeout)


# --- the whole ---------------------------------------------------------------------------------------------------


def timeline(check: HealthCheck, cluster: Cluster) -> Timeline:
    """What happens after a node that the check selects fell silent, if the check's limit lets it act."""
    unseen: list[str] = []
    profile = ""
    try:
        profile = latency_profile(cluster)
    except Unseen as blind:
        unseen.append(blind.what)
    grace = GRACE.get(profile, DEFAULT_GRACE)
    said = f" of {profile}" if profile in GRACE else ""
    moments = [
        Moment(exactly(0), Event.SILENT, "the node falls silent"),
        Moment(exactly(grace), Event.NOTICED, f"Ready becomes Unknown, at the end of the grace period{said}"),
    ]
    never, wait = _never_acts(check, cluster), patience(check)
    if never or wait is None:
        return Timeline(tuple(moments), None, never, tuple(unseen))
    found = list(stages(check, cluster))
    unseen += [each.what for each in found if isinstance(each, Unseen)]
    steps = [each for each in found if isinstance(each, Stage)]
    acts = f"{check.obj.kind} {check.obj.name} acts: Ready was Unknown for {format_duration(wait)}"
    moments.append(Moment(exactly(grace + wait), Event.ACTS, acts))
    restart, begin = None, grace + wait
    for number, stage in enumerate(steps, 1):
        condition = f"step {number}, if the node is still not healthy: " if number > 1 else ""
        moments.append(Moment(exactly(begin), Event.STEP, f"{condition}{stage.name}"))
        moments.append(_end(stage, begin))
        if restart is None and not stage.cut_off:
            restart = Restart(grace, wait, begin - grace - wait, stage.takes)
        if stage.timeout is None:
            break
        begin += stage.timeout
        if number == len(steps):
            moments.append(Moment(exactly(begin), Event.EXHAUSTED, "nothing more is tried"))
    if restart is None:
        never = "no step has enough time" if steps else "no remediator is named"
    return Timeline(tuple(moments), restart, never, tuple(dict.fromkeys(unseen)))


def _end(stage: Stage, begin: int) -> Moment:
    if stage.cut_off:
        what = f"cancelled half-way: it would need {stage.takes}"
        return Moment(exactly(begin + (stage.timeout or 0)), Event.CANCELLED, what)
    return Moment(stage.takes.after(begin), Event.DOWN, stage.done)


# --- the VMs -----------------------------------------------------------------------------------------------------


class VmOutcome(NamedTuple):
    """Whether a VM runs again once its lost node is down for certain, and why."""

    vmi: Object
    comes: bool | None
    """None: it cannot be told."""
    why: str


def fates(nodes: Iterable[str], cluster: Cluster) -> Iterator[VmOutcome | Unseen]:
    """What becomes of the VMs on these nodes once their node is lost."""
    for node in nodes:
        try:
            for vmi in vmis.on_node(cluster, node):
                yield _fate(vmi, cluster)
        except Unseen as blind:
            yield blind


def _fate(vmi: Object, cluster: Cluster) -> VmOutcome:
    try:
        after = vmis.comes_back(vmi, cluster, lost=True)
    except Unseen as blind:
        return VmOutcome(vmi, None, f"cannot see {blind.what}")
    return VmOutcome(vmi, after.comes, after.why)
