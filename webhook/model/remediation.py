"""What a health check would do: one model of remediation for the rules and for ``virt-admit explain``.

Given a health check of any of the three kinds and the cluster: which machines or nodes it selects, how many of them
may be unhealthy before it stops, which other checks select the same, through which steps a sick node goes, and when
the VMs of a lost node run again (node-and-machine-health.md 4, 11, 13, 15).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from webhook.model import health, kinds, machines, remediators
from webhook.model.cluster import Cluster, Unseen
from webhook.model.health import HealthCheck
from webhook.model.kinds import Kind
from webhook.model.labels import LabelIndex
from webhook.model.machines import Selection, Watch, Watches
from webhook.model.objects import Field, Object
from webhook.model.units import DURATION, IntOrPercent, allowed_unhealthy, parse_duration

CONTROL_PLANE_LABELS: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""Either one, with any value, makes a Node one of the control plane."""

TEMPLATE: Final = "Template"
"""What a template's kind ends in; the rest is the kind of the request that is made from it."""


# --- what a check selects ----------------------------------------------------------------------------------------


def is_control_plane(node: Object) -> bool:
    labels = node.labels
    return any(label in labels for label in CONTROL_PLANE_LABELS)


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


def allowed(limit: IntOrPercent | None, check: HealthCheck, total: int) -> int | None:
    """How many of ``total`` may be unhealthy while the check still acts; None where nobody can read the limit."""
    return None if limit is None else allowed_unhealthy(limit, total, check.limit_of)


# --- the steps of a remediation ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """One remediator that a NodeHealthCheck calls: the only one, or an entry of the escalation."""

    reference: Field
    """The reference to the remediator's template."""
    order: Field
    timeout: Field
    """After this long without success the next step begins; absent where there is only one."""

    @property
    def kind(self) -> Kind | None:
        """The template's kind, if the table knows it."""
        group, slash, _ = (self.reference["apiVersion"].text or "").partition("/")
        return kinds.find(group if slash else "", self.reference["kind"].text or "")

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
            raise Unseen(f"{self.reference['kind'].text or 'a template'} {self.reference['name'].text or ''}".rstrip())
        return cluster.get(kind, self.reference["namespace"].text or "", self.reference["name"].text or "")

    def refers_to(self, template: Object) -> bool:
        """Whether this is a reference to that template."""
        return (
            self.kind is not None
            and self.kind is kinds.of(template)
            and self.reference["name"].text == template.name
            and (self.reference["namespace"].text or "") == template.namespace
        )


def escalation(check: Object) -> tuple[Step, ...]:
    """The entries of a NodeHealthCheck's escalation, as they stand in the list."""
    return tuple(
        Step(entry["remediationTemplate"], entry["order"], entry["timeout"])
        for entry in check.at("spec", "escalatingRemediations").items()
    )


def steps(check: Object) -> tuple[Step, ...]:
    """The steps of a NodeHealthCheck in the order in which they are taken."""
    spec = check["spec"]
    if spec["remediationTemplate"].present:
        return (Step(spec["remediationTemplate"], spec["-"], spec["-"]),)
    return tuple(sorted(escalation(check), key=lambda step: step.order.integer or 0))


def longest(step: Step, cluster: Cluster, nodes: Selection) -> int | None:
    """Nanoseconds that the remediator of a step may take to succeed or fail; None where there is no telling.

    Raises:
        Unseen: the remediator's template cannot be seen.
    """
    if step.kind is kinds.SNR_TEMPLATE:
        return remediators.snr_duration(cluster, nodes.machines)
    if step.kind is not kinds.FAR_TEMPLATE:
        return None
    template = step.template(cluster)
    try:
        return None if template is None else remediators.far_duration(template)
    except ValueError:
        return None
