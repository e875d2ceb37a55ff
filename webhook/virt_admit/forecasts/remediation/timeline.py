"""The time line from a node failure to the restart of its VMs.

A node stops reporting. The node controller notices after its grace period. The health check waits
for the time of its condition. It then calls remediators one after the other until one confirms that
the node is down. Only then does Kubernetes delete the pods of the node, and the run strategy of
each VM decides whether it restarts.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from virt_admit.forecasts.remediation import remediation_steps
from virt_admit.forecasts.remediation.remediation_steps import Span, Step, exactly
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.kubernetes.units import MINUTE, SECOND, format_duration
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.messages import names
from virt_admit.model.remediation import check_scope, machine_owners, refused_nodes
from virt_admit.model.remediation.health_checks import HealthCheck

DEFAULT_GRACE: Final = 50 * SECOND
"""``node-monitor-grace-period`` of kube-controller-manager; OpenShift's own constant is 40 s."""
_OLDER_GRACE: Final = 40 * SECOND
"""Before Kubernetes 1.32 (kubernetes/kubernetes#126287)."""
_SINCE_LONGER_GRACE: Final = versions.Version(1, 32)

GRACE: Final[Mapping[str, int]] = {
    "MediumUpdateAverageReaction": 2 * MINUTE,
    "LowUpdateSlowReaction": 5 * MINUTE,
}
"""The grace period by worker latency profile (openshift/api: config/v1/types_node.go)."""


class Event(enum.StrEnum):
    """The events of a time line."""

    SILENT = "silent"
    NOTICED = "noticed"
    ACTS = "acts"
    STEP = "step"
    CANCELLED = "cancelled"
    FAILED = "failed"
    DOWN = "down"
    EXHAUSTED = "exhausted"


@dataclass(frozen=True, slots=True)
class Moment:
    """An event and its time, counted from the moment in which the node stops reporting."""

    at: Span
    event: Event
    what: str


@dataclass(frozen=True, slots=True)
class Stage:
    """The run of one remediator."""

    name: str
    """The remediator and its action."""
    takes: Span
    done: str
    """The state after success."""
    timeout: int | None = None
    """The time after which the next stage begins in any case;
    None if the stage has no time limit.
    """
    fails: str = ""
    """Why it can act on none of the selected nodes; empty if it can, or if that is unknown."""

    @property
    def cut_off(self) -> bool:
        """Whether the stage is cancelled before it can finish."""
        return self.timeout is not None and self.takes.least > self.timeout


class Restart(NamedTuple):
    """The time until the VMs of a failed node can start elsewhere, by its parts in nanoseconds."""

    grace: int
    """Until the node controller notices."""
    patience: int
    """Until the check acts."""
    wasted: int
    """Spent on remediators that are cancelled before they finish."""
    takes: Span
    """The duration of the first remediator that has enough time."""

    @property
    def at(self) -> Span:
        return self.takes.after(self.grace + self.patience + self.wasted)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The events after a node stops reporting, in order."""

    moments: tuple[Moment, ...]
    restart: Restart | None
    """The restart if the remediator succeeds; None if the VMs never restart."""
    never: str = ""
    """Why the VMs never restart; empty if they do."""
    unseen: tuple[str, ...] = ()


# --- until the check acts -------------------------------------------------------------------------


def latency_profile(cluster: Cluster) -> str:
    """Return the worker latency profile of an OpenShift cluster;
    empty for the default and on other platforms.

    Raises:
        Unseen: the profile cannot be determined.
    """
    config = cluster.get(kinds.CONFIG_NODE, "", "cluster")
    return (config.at("spec", "workerLatencyProfile").text or "") if config else ""


def grace_period(cluster: Cluster) -> int:
    """Return how long a node may be silent until Ready becomes Unknown, in nanoseconds.

    The flag of kube-controller-manager cannot be read, so its default is assumed, as is that of
    OpenShift.
    """
    try:
        profile = latency_profile(cluster)
    except Unseen:
        profile = ""
    release = versions.parse_version(cluster.server_version)
    older = release is not None and release < _SINCE_LONGER_GRACE
    return GRACE.get(profile, _OLDER_GRACE if older else DEFAULT_GRACE)


def patience(check: HealthCheck) -> int | None:
    """Return how long Ready must be Unknown until the check acts; None if it never acts on a node
    that stops reporting.
    """
    times = [
        symptom.time
        for symptom in remediation_steps.symptoms(check)
        if symptom[:2] == ("Ready", "Unknown")
    ]
    return min((time for time in times if time is not None), default=None)


def _never_acts(check: HealthCheck, cluster: Cluster) -> str:
    """Return why a check never acts on a node that stops reporting; empty if it can act."""
    selection = check_scope.selected_by(check, cluster)
    if check.selector.errors:
        return "the selector is malformed"
    if not selection and not selection.unseen:
        return "nothing is selected"
    budget = remediation_steps.budget(check, selection)
    if budget.never:
        return f"{budget.limit} {budget.limit_text}"
    return (
        ""
        if patience(check) is not None
        else "no condition Ready=Unknown with a valid time is listed"
    )


# --- what the check does --------------------------------------------------------------------------

_PODS_GONE: Final = (
    "the node is confirmed down and its pods are deleted; its VMs can start elsewhere"
)
_DELETED: Final = "machine and node are deleted; its VMs can start elsewhere"
_DELETED_IF: Final = (
    "machine and node are deleted if a Machine owns the node; then its VMs can start elsewhere"
)


def stages(check: HealthCheck, cluster: Cluster) -> Iterator[Stage | Unseen]:
    """Yield the runs of the remediators that a check calls, in order."""
    steps = remediation_steps.steps(check)
    nodes = check_scope.selected_by(check, cluster) if check.kind is kinds.NHC else None
    for step in steps:
        yield from _stage(step, cluster, nodes)
    if not steps and check.kind is not kinds.NHC:
        if check.external:
            yield Stage(
                "the bare metal operator power-cycles the host, or a Failed Machine is deleted",
                Span(0, None),
                _PODS_GONE,
            )
        else:
            yield _of_owners(check, check_scope.selected_by(check, cluster))


def _of_owners(check: HealthCheck, selection: Selection) -> Stage:
    """Return the deletion of a Machine, which its controller replaces."""
    kept = machine_owners.kept(check, selection)
    lasting = {machine.name for some in kept.values() for machine in some}
    owners = dict.fromkeys(
        machine_owners.title(each) for each in selection.objects if each.name not in lasting
    )
    everything = bool(selection) and not owners and not selection.unseen
    singly = " (one at a time)" if machine_owners.one_by_one(check, selection) else ""
    return Stage(
        f"the Machine is deleted{singly} and {names(owners) if owners else 'its owner'} creates a "
        "new one",
        Span(0, None),
        _DELETED,
        fails="; ".join(kept) if everything else "",
    )


def _stage(step: Step, cluster: Cluster, nodes: Selection | None) -> Iterator[Stage | Unseen]:
    takes, fails = Span(0, None), ""
    try:
        takes = remediation_steps.takes(step, cluster, None if nodes is None else nodes.objects)
    except Unseen as unseen:
        yield unseen
    deletes = step.kind is kinds.MDR_TEMPLATE
    done = _DELETED if deletes else _PODS_GONE
    if nodes is not None:  # the request of a MachineHealthCheck names the Machine
        refused = refused_nodes.refused(
            nodes, lambda node: remediation_steps.refusal(step, node, cluster)
        )
        fails = refused.text if refused.everything else ""
        if refused.unseen and deletes:
            done = _DELETED_IF
            yield Unseen(refused.unseen)
    yield Stage(f"{step.remediator} {step.name}".rstrip(), takes, done, step.known_timeout, fails)


# --- the time line --------------------------------------------------------------------------------


def timeline(check: HealthCheck, cluster: Cluster) -> Timeline:
    """Return the events after a selected node stops reporting,
    provided that the limit lets the check act.
    """
    unseen: list[str] = []
    profile = ""
    try:
        profile = latency_profile(cluster)
    except Unseen as error:
        unseen.append(error.what)
    grace = grace_period(cluster)
    source = f" of {profile}" if profile in GRACE else ""
    moments = [
        Moment(exactly(0), Event.SILENT, "the node stops reporting"),
        Moment(
            exactly(grace),
            Event.NOTICED,
            f"Ready becomes Unknown, at the end of the grace period{source}",
        ),
    ]
    never, wait = _never_acts(check, cluster), patience(check)
    if never or wait is None:
        return Timeline(tuple(moments), None, never, tuple(unseen))
    found = list(stages(check, cluster))
    unseen += [stage.what for stage in found if isinstance(stage, Unseen)]
    steps = [stage for stage in found if isinstance(stage, Stage)]
    acts = f"{check.obj.kind} {check.obj.name} acts: Ready was Unknown for {format_duration(wait)}"
    moments.append(Moment(exactly(grace + wait), Event.ACTS, acts))
    restart, begin = None, grace + wait
    for number, stage in enumerate(steps, 1):
        condition = f"step {number}, if the node is still unhealthy: " if number > 1 else ""
        moments.append(Moment(exactly(begin), Event.STEP, f"{condition}{stage.name}"))
        moments.append(_end(stage, begin))
        if restart is None and not stage.cut_off and not stage.fails:
            restart = Restart(grace, wait, begin - grace - wait, stage.takes)
        if stage.timeout is None:
            break
        begin += stage.timeout
        if number == len(steps):
            moments.append(Moment(exactly(begin), Event.EXHAUSTED, "no step is left"))
    if restart is None:
        fails = next((stage.fails for stage in steps if stage.fails), "")
        never = fails or ("no step has enough time" if steps else "no remediator is set")
    return Timeline(tuple(moments), restart, never, tuple(dict.fromkeys(unseen)))


def _end(stage: Stage, begin: int) -> Moment:
    if stage.fails:
        return Moment(exactly(begin), Event.FAILED, f"it does nothing: {stage.fails}")
    if stage.cut_off:
        what = f"cancelled before it finishes: it needs {stage.takes}"
        return Moment(exactly(begin + (stage.timeout or 0)), Event.CANCELLED, what)
    return Moment(stage.takes.after(begin), Event.DOWN, stage.done)
