"""What a health check would do: one model of remediation for the rules and for ``virt-admit explain``.

Given a health check of any of the three kinds and what it watches: how many of them may be unhealthy before it stops,
which are, what keeps it from acting, and through which steps a sick node goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from virt_admit.model import kinds
from virt_admit.model.cluster import Cluster, Unseen, gather
from virt_admit.model.kinds import Kind
from virt_admit.model.labels import Selection
from virt_admit.model.messages import names
from virt_admit.model.objects import Field, Object
from virt_admit.model.remediation import health_checks, machines, remediators
from virt_admit.model.remediation.health_checks import TERMINATING, Condition, HealthCheck
from virt_admit.model.units import DURATION, MINUTE, LimitKind, allowed_unhealthy, format_duration, parse_duration, show

NHC_TIME: Final = 5 * MINUTE
"""How long Ready must be False or Unknown where a NodeHealthCheck does not say (the schema's default)."""

TEMPLATE: Final = "Template"
"""What a template's kind ends in; the rest is the kind of the request that is made from it."""


# --- how many may be unhealthy -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Budget:
    """How many of what a check selects may be unhealthy while it still acts: from ``least`` to ``most``."""

    limit: str
    """As it is written: ``maxUnhealthy 40%``."""
    total: int | None
    """How many are selected; None: not all of them can be seen."""
    most: int | None
    """None: nobody can tell, for the limit cannot be read, or the number of which it is a share cannot be seen."""
    least: int = 1
    share: int | None = None
    """The percentage of unhealthy ones that is a limit of its own where their number is not known: 0 and 100 are."""

    @property
    def never(self) -> bool:
        """Whether there is no number of unhealthy ones on which the check acts."""
        if self.most is None:
            return self.share == 0
        reachable = self.most if self.total is None else min(self.most, self.total)
        return reachable < max(1, self.least) and self.total != 0

    @property
    def limit_text(self) -> str:
        """What the limit does that the check never acts: ``lets none of 2 be unhealthy``; empty if it may act."""
        if not self.never:
            return ""
        if self.total is not None and self.most is not None and self.total < self.least <= self.most:
            return f"waits until {self.least} are unhealthy, of only {self.total}"
        return f"lets none{'' if self.total is None else f' of {self.total}'} be unhealthy"

    @property
    def everything(self) -> bool:
        """Whether it may take all that it selects at once."""
        if self.most is None:
            return self.share == 100
        return not self.never and bool(self.total) and self.most >= (self.total or 0)


def budget(check: HealthCheck, selection: Selection) -> Budget:
    """How many of the selected may be unhealthy, with the rounding of the check's own controller."""
    total = None if selection.unseen else len(selection)
    if check.range.present:
        limit = f"{check.range.path[-1]} {check.range.text or ''}".rstrip()
        try:
            low, high = check.read_range()
        except ValueError:
            return Budget(limit, total, None)
        return Budget(limit, total, high, low)
    known = check.known_limit()
    limit = f"{check.limit.path[-1]} {known if known is not None else show(check.limit.value)}"
    healthy = check.limit_of is LimitKind.NODE_MIN_HEALTHY
    if known is None or (total is None and (known.percent or healthy)):
        share = known.number if known is not None and known.percent else None
        return Budget(limit, total, None, share=share if share is None or not healthy else 100 - share)
    return Budget(limit, total, known.number if total is None else allowed_unhealthy(known, total, check.limit_of))


# --- who is unhealthy --------------------------------------------------------------------------------------------


class Symptom(NamedTuple):
    """A node or machine in this state for this long (nanoseconds; None: unreadable) is unhealthy."""

    type: str
    status: str
    time: int | None


def symptoms(check: HealthCheck) -> tuple[Symptom, ...]:
    """What a check takes for unhealthy; what the schema says where a NodeHealthCheck has no list."""
    if check.kind is kinds.NHC and not check.conditions.present:
        return (Symptom("Ready", "False", NHC_TIME), Symptom("Ready", "Unknown", NHC_TIME))
    return _symptoms(check.entries)


def machine_symptoms(check: HealthCheck) -> tuple[Symptom, ...]:
    """What a check of Cluster API takes for unhealthy in the Machine itself."""
    return _symptoms(check.machine_entries)


def _symptoms(entries: Iterable[Condition]) -> tuple[Symptom, ...]:
    return tuple(Symptom(each.type, each.status, each.known_nanoseconds()) for each in entries)


def unhealthy(check: HealthCheck, selection: Selection, cluster: Cluster) -> Iterator[tuple[str, str] | Unseen]:
    """What is selected and counts as unhealthy now, or will when its time is over: name and reason."""
    sick = {(each.type, each.status) for each in symptoms(check)}
    for obj in selection.objects:
        node: Object | None = obj
        if check.kind is not kinds.NHC:
            name = machines.node_name(obj)
            failed = obj.at("status", "phase").text == "Failed"
            if failed or not name:
                yield obj.name, "Failed" if failed else "has no node"
                continue
            try:
                node = cluster.get(kinds.NODE, "", name)
            except Unseen as blind:
                yield blind
                continue
        if node is None:
            yield obj.name, "its node is gone"
            continue
        for condition in node.at("status", "conditions").items():
            if (condition["type"].text, condition["status"].text) in sick:
                yield obj.name, f"{condition['type'].text}={condition['status'].text}"
                break


def nodes_of(check: HealthCheck, selection: Selection) -> Iterator[str]:
    """The names of the nodes that a check watches, be it directly or through their machines."""
    for obj in selection.objects:
        name = obj.name if check.kind is kinds.NHC else machines.node_name(obj)
        if name:
            yield name


# --- what keeps a check from acting at all -----------------------------------------------------------------------


def conflicting(cluster: Cluster) -> list[Object]:
    """The MachineHealthChecks because of which the operator disables every NodeHealthCheck.

    Only the built-in termination handler is in nobody's way, as long as it is alone (mhc/checker.go#UpdateStatus).

    Raises:
        Unseen: none is known, but there may be some.
    """
    found, unseen = gather(cluster.list(kinds.MHC))
    custom = [mhc for mhc in found if [each.type for each in health_checks.view(mhc).entries] != [TERMINATING]]
    if not custom and len(found) > 1:
        return found
    if not custom and unseen:
        raise Unseen(unseen)
    return custom


def obstacles(check: HealthCheck, cluster: Cluster) -> Iterator[str | Unseen]:
    """Why a check does nothing at all just now."""
    if check.selector.errors:
        yield "its selector is malformed"
    if check.kind is not kinds.NHC and check.paused.present:
        yield f"it is paused by the annotation {health_checks.PAUSED}"
    if check.kind is kinds.NHC:
        yield from _disabled(check, cluster)
    for step in steps(check):
        try:
            if step.template(cluster) is None:
                yield f"there is no {step.title}"
        except Unseen as blind:
            yield blind


def _disabled(check: HealthCheck, cluster: Cluster) -> Iterator[str | Unseen]:
    reasons = [item.text or "?" for item in check.obj.at("spec", "pauseRequests").items()]
    if reasons:
        yield f"it is paused: {names(reasons)}"
    try:
        others = conflicting(cluster)
        if others:
            yield f"it is disabled as long as there are MachineHealthChecks: {names(mhc.full_name for mhc in others)}"
    except Unseen as blind:
        yield blind


# --- the steps of a remediation ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """One remediator that a NodeHealthCheck calls: the only one, or an entry of the escalation."""

    reference: Field
    """The reference to the remediator's template."""
    order: Field
    timeout: Field
    """After this long without success the next step begins; absent where there is only one."""
    home: str | None = None
    """Where the template is looked up, whatever the reference says; None: the reference says it."""

    @property
    def kind_name(self) -> str:
        """The template's kind as it is written."""
        return self.reference["kind"].text or ""

    @property
    def kind(self) -> Kind | None:
        """The template's kind, if the table knows it."""
        group, slash, _ = (self.reference["apiVersion"].text or "").rpartition("/")
        return kinds.find(group if slash else "", self.kind_name)

    @property
    def namespace(self) -> str:
        return self.home if self.home is not None else self.reference["namespace"].text or ""

    @property
    def name(self) -> str:
        """``namespace/name`` of the template."""
        return "/".join(filter(None, (self.namespace, self.reference["name"].text)))

    @property
    def title(self) -> str:
        """Kind and name of the template."""
        return f"{self.kind_name or 'template'} {self.name}".rstrip()

    @property
    def remediator(self) -> str:
        """The kind of the requests that are made from the template."""
        return (self.kind_name or "?").removesuffix(TEMPLATE)

    @property
    def known_timeout(self) -> int | None:
        """Nanoseconds, or None where they cannot be read."""
        try:
            return parse_duration(self.timeout.value, DURATION)
        except ValueError:
            return None

    def template(self, cluster: Cluster) -> Object | None:
        """The template, or None if it is known not to exist.

        Raises:
            Unseen: it cannot be seen, or is of a kind that nobody knows and so may be looked for in the wrong place.
        """
        found = cluster.get(self._looked_up, self.namespace, self.reference["name"].text or "")
        if found is None and self.kind is None:
            raise Unseen(self.title)
        return found

    def templates(self, cluster: Cluster) -> Iterator[Object]:
        """All templates of that kind, in every namespace.

        Raises:
            Unseen: after those that are known, if there may be more.
        """
        return cluster.list(self._looked_up)

    @property
    def _looked_up(self) -> Kind:
        return self.kind or kinds.guess(self.reference["apiVersion"].text or "", self.kind_name)

    def refers_to(self, template: Object) -> bool:
        """Whether this is a reference to that template."""
        return (
            self.kind is not None
            and self.kind is kinds.of(template)
            and self.reference["name"].text == template.name
            and self.namespace == template.namespace
        )


def escalation(check: Object) -> tuple[Step, ...]:
    """The entries of a NodeHealthCheck's escalation, as they stand in the list."""
    return tuple(
        Step(entry["remediationTemplate"], entry["order"], entry["timeout"])
        for entry in check.at("spec", "escalatingRemediations").items()
    )


def mentioned(check: HealthCheck) -> tuple[Step, ...]:
    """Every remediator that a check mentions, also where it mentions too many; an entry without template is none."""
    entries = escalation(check.obj) if check.kind is kinds.NHC else ()
    return tuple(step for step in (_only(check), *entries) if step.reference.present)


def steps(check: HealthCheck) -> tuple[Step, ...]:
    """The remediators that a check calls, in the order in which it does.

    None: a MachineHealthCheck without a template deletes the Machine.
    """
    if check.template.present:
        return (_only(check),)
    return tuple(sorted(escalation(check.obj), key=lambda step: step.order.integer or 0))


def _only(check: HealthCheck) -> Step:
    """The remediator that stands alone. MachineHealthChecks look for its template in their own namespace."""
    nothing = check.template["-"]
    return Step(check.template, nothing, nothing, None if check.kind is kinds.NHC else check.obj.namespace)


class Span(NamedTuple):
    """Nanoseconds, at the least and at the most; None: no telling."""

    least: int
    most: int | None

    def after(self, start: int) -> Span:
        """This long, from a start on."""
        return Span(start + self.least, None if self.most is None else start + self.most)

    def __str__(self) -> str:
        if self.most is None:
            return f"{format_duration(self.least)} or later"
        least, most = format_duration(self.least), format_duration(self.most)
        return least if least == most else f"{least} to {most}"


def exactly(nanoseconds: int) -> Span:
    return Span(nanoseconds, nanoseconds)


def takes(step: Step, cluster: Cluster, nodes: Iterable[Object] | None = None) -> Span:
    """How long the remediator of a step works on one of these nodes (None: any) until it succeeds or gives up.

    Self node remediation waits for its safe time, a fence agent takes seconds or is tried again and again. Of other
    remediators nothing is known, nor of one whose template does not exist or cannot be read.

    Raises:
        Unseen: the remediator's template cannot be seen.
    """
    if step.kind is kinds.SNR_TEMPLATE:
        return exactly(remediators.snr_duration(cluster, nodes))
    template = step.template(cluster) if step.kind is kinds.FAR_TEMPLATE else None
    try:
        return Span(0, None if template is None else remediators.far_duration(template))
    except ValueError:
        return Span(0, None)
