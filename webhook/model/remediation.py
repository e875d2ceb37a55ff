"""What a health check would do: one model of remediation for the rules and for ``virt-admit explain``.

Given a health check of any of the three kinds and the cluster: which machines or nodes it selects, how many of them
may be unhealthy before it stops, which other checks select the same, through which steps a sick node goes, and when
the VMs of a lost node run again (node-and-machine-health.md 4, 11, 13, 15).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from webhook.model import health, kinds, machines, remediators
from webhook.model.cluster import Cluster, Unseen
from webhook.model.health import TERMINATING, HealthCheck
from webhook.model.kinds import Kind
from webhook.model.labels import LabelIndex
from webhook.model.machines import Selection, Watch, Watches
from webhook.model.objects import Field, Object
from webhook.model.selectors import EXISTS, Requirement, Selector
from webhook.model.texts import names
from webhook.model.units import DURATION, MINUTE, Limit, allowed_unhealthy, format_duration, parse_duration, show

CONTROL_PLANE_LABELS: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""Either one, with any value, makes a Node one of the control plane."""

NHC_TIME: Final = 5 * MINUTE
"""How long Ready must be False or Unknown where a NodeHealthCheck does not say (the schema's default)."""

_CONTROL_PLANE: Final = tuple(Selector(frozenset((Requirement(label, EXISTS),))) for label in CONTROL_PLANE_LABELS)

TEMPLATE: Final = "Template"
"""What a template's kind ends in; the rest is the kind of the request that is made from it."""


# --- what a check selects ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Nodes:
    index: LabelIndex
    unseen: str


def _nodes(cluster: Cluster) -> _Nodes:
    found: list[Object] = []
    unseen = ""
    try:
        found.extend(cluster.list(kinds.NODE))
    except Unseen as blind:
        unseen = blind.what
    return _Nodes(LabelIndex(found), unseen)


def selected_by(check: HealthCheck, cluster: Cluster) -> Selection:
    """The Machines, or for a NodeHealthCheck the Nodes, that a check watches, as far as they can be seen."""
    if check.kind is not kinds.NHC:
        return machines.selected_by(check, cluster)
    nodes = cluster.derive(_nodes)
    return Selection(nodes.index, nodes.index.select(check.selector), nodes.unseen)


def selected(obj: Object, cluster: Cluster) -> Selection:
    """What the health check ``obj`` watches: a fact for rules."""
    return selected_by(health.view(obj), cluster)


def control_plane(selection: Selection) -> frozenset[int]:
    """The positions of the selected Nodes that belong to the control plane."""
    masters = (selection.index.select(selector) for selector in _CONTROL_PLANE)
    return selection.positions & frozenset().union(*masters)


def node_watches(cluster: Cluster) -> Watches:
    """The NodeHealthChecks of the cluster, with what they select; they live in no namespace."""
    return cluster.derive(_node_watches)


def _node_watches(cluster: Cluster) -> Watches:
    found: list[Watch] = []
    unseen = ""
    try:
        for obj in cluster.list(kinds.NHC):
            check = health.view(obj)
            found.append(Watch(check, selected_by(check, cluster)))
    except Unseen as blind:
        unseen = blind.what
    return Watches({_NO_NAMESPACE: tuple(found)}, unseen)


_NO_NAMESPACE: Final = "default"
"""Where ``Watches`` keeps what has no namespace."""


def overlaps(check: HealthCheck, cluster: Cluster) -> Iterator[tuple[Object, frozenset[str]]]:
    """The other checks of the same kind that select some of the same machines or nodes, and the names of those.

    Checks that only replace machines which the cloud takes away are in nobody's way.

    Raises:
        Unseen: at the end, where there may be more.
    """
    watches = node_watches(cluster) if check.kind is kinds.NHC else machines.watches(cluster, check.kind)
    selection = selected_by(check, cluster)
    if not check.handler:
        for other in watches.of(check.obj.namespace):
            shared = selection.positions & other.selection.positions
            if shared and other.check.obj.name != check.obj.name and not other.check.handler:
                yield other.check.obj, frozenset(selection.index.objects[position].name for position in shared)
    selection.demand_all()
    watches.demand_all()


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

    @property
    def never(self) -> bool:
        """Whether there is no number of unhealthy ones on which the check acts."""
        return self.most is not None and self.most < max(1, self.least) and self.total != 0

    @property
    def everything(self) -> bool:
        """Whether it may take all that it selects at once."""
        return bool(self.total) and self.most is not None and self.most >= (self.total or 0)


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
    if known is None or (total is None and (known.percent or check.limit_of is Limit.NODE_MIN_HEALTHY)):
        return Budget(limit, total, None)
    return Budget(limit, total, known.number if total is None else allowed_unhealthy(known, total, check.limit_of))


# --- who is unhealthy --------------------------------------------------------------------------------------------


class Condition(NamedTuple):
    """A node in this state for this long (nanoseconds; None: unreadable) is unhealthy."""

    type: str
    status: str
    time: int | None


def conditions(check: HealthCheck) -> tuple[Condition, ...]:
    """The conditions of a check; those of the schema where a NodeHealthCheck has no list."""
    if check.kind is kinds.NHC and not check.conditions.present:
        return (Condition("Ready", "False", NHC_TIME), Condition("Ready", "Unknown", NHC_TIME))
    return tuple(Condition(each.type, each.status, each.known_nanoseconds()) for each in check.entries)


def unhealthy(check: HealthCheck, selection: Selection, cluster: Cluster) -> Iterator[tuple[str, str] | Unseen]:
    """What is selected and counts as unhealthy now, or will when its time is over: name and reason."""
    sick = {(each.type, each.status) for each in conditions(check)}
    for obj in selection.machines:
        node: Object | None = obj
        if check.kind is not kinds.NHC:
            name = machines.node_name(obj)
            if obj.at("status", "phase").text == "Failed" or not name:
                yield obj.name, "Failed" if name else "has no node"
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
    for obj in selection.machines:
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
    found: list[Object] = []
    blind: Unseen | None = None
    try:
        found.extend(cluster.list(kinds.MHC))
    except Unseen as unseen:
        blind = unseen
    custom = [mhc for mhc in found if [each.type for each in health.view(mhc).entries] != [TERMINATING]]
    if not custom and len(found) > 1:
        return found
    if not custom and blind:
        raise blind
    return custom


def obstacles(check: HealthCheck, cluster: Cluster) -> Iterator[str | Unseen]:
    """Why a check does nothing at all just now."""
    if check.selector.errors:
        yield "its selector is malformed"
    if check.kind is not kinds.NHC and check.paused.present:
        yield f"it is paused by the annotation {health.PAUSED}"
    if check.kind is kinds.NHC:
        yield from _disabled(check, cluster)
    for step in steps(check):
        try:
            if step.template(cluster) is None:
                yield f"there is no {step.reference['kind'].text} {step.name}"
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
    def kind(self) -> Kind | None:
        """The template's kind, if the table knows it."""
        group, slash, _ = (self.reference["apiVersion"].text or "").partition("/")
        return kinds.find(group if slash else "", self.reference["kind"].text or "")

    @property
    def namespace(self) -> str:
        return self.home if self.home is not None else self.reference["namespace"].text or ""

    @property
    def name(self) -> str:
        """``namespace/name`` of the template."""
        return "/".join(filter(None, (self.namespace, self.reference["name"].text)))

    @property
    def remediator(self) -> str:
        """The kind of the requests that are made from the template."""
        return (self.reference["kind"].text or "?").removesuffix(TEMPLATE)

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
            Unseen: it, or its kind, cannot be seen.
        """
        kind = self.kind
        if kind is None:
            raise Unseen(f"{self.reference['kind'].text or 'a template'} {self.name}".rstrip())
        return cluster.get(kind, self.namespace, self.reference["name"].text or "")

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


def steps(check: HealthCheck) -> tuple[Step, ...]:
    """The remediators that a check calls, in the order in which it does.

    None: a MachineHealthCheck without a template deletes the Machine.
    """
    if check.template.present:
        nothing = check.template["-"]
        home = None if check.kind is kinds.NHC else check.obj.namespace
        return (Step(check.template, nothing, nothing, home),)
    return tuple(sorted(escalation(check.obj), key=lambda step: step.order.integer or 0))


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
