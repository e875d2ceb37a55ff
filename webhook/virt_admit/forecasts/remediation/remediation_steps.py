"""The remediation plan of a health check, for the rules and for ``virt-admit explain``.

For a health check of any of the three kinds and the objects that it watches, this module computes
the limit on unhealthy objects, what makes an object unhealthy, and the steps of a remediation. The
unhealthy objects themselves are in ``targets``, the reasons why a check does not act in
``obstacles``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import remediation_agents
from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.int_or_percent import LimitKind, allowed_unhealthy
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.units import (
    DURATION,
    MINUTE,
    format_duration,
    parse_duration,
    show,
)
from virt_admit.model.remediation import (
    fence_agents,
    health_checks,
    machine_deletion,
    remediators,
    selected_nodes,
)
from virt_admit.model.remediation.health_checks import TERMINATING, Condition, HealthCheck

NHC_TIME: Final = 5 * MINUTE
"""The time for which Ready must be False or Unknown if a NodeHealthCheck sets none (the schema's
default).
"""

TEMPLATE: Final = "Template"
"""The suffix of a template's kind; without it, the kind of the remediation request."""


# --- the limit ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Budget:
    """The numbers of unhealthy objects on which a check acts: from ``least`` to ``most``."""

    limit: str
    """The setting as written: ``maxUnhealthy 40%``."""
    total: int | None
    """The number of selected objects; None if some are unknown."""
    most: int | None
    """None if it cannot be determined: the limit is not valid,
    or the total of a percentage is unknown.
    """
    least: int = 1
    share: int | None = None
    """The allowed percentage if the total is unknown. 0 and 100 are conclusive without it."""
    one_by_one: int = 0
    """The number of selected control-plane Nodes:
    a NodeHealthCheck remediates only one of them at a time.
    """

    @property
    def never(self) -> bool:
        """Whether the check acts on no number of unhealthy objects."""
        if self.most is None:
            return self.share == 0
        reachable = self.most if self.total is None else min(self.most, self.total)
        return reachable < max(1, self.least) and self.total != 0

    @property
    def limit_text(self) -> str:
        """Why the check never acts: ``allows 0 of 2 to be unhealthy``; empty if it can act."""
        if not self.never:
            return ""
        if (
            self.total is not None
            and self.most is not None
            and self.total < self.least <= self.most
        ):
            return f"requires {self.least} unhealthy, but selects only {self.total}"
        return f"allows {'none' if self.total is None else f'0 of {self.total}'} to be unhealthy"

    def refuses(self, down: int) -> str:
        """Return why the check remediates none of so many unhealthy objects; empty: it does,
        or that is not known.
        """
        if self.never:
            return f"{self.limit} {self.limit_text}"
        if self.most is not None and down > self.most:
            selected = f" of {self.total}" if self.total is not None else ""
            return f"{self.limit} allows {self.most}{selected} to be unhealthy, and {down} are"
        if down < self.least:
            return f"{self.limit} requires {self.least} unhealthy, and {down} are"
        return ""

    @property
    def everything(self) -> bool:
        """Whether the check can remediate all selected objects at once."""
        if self.most is None:
            return self.share == 100 and self.one_by_one < 2
        if self.one_by_one > 1:
            return False
        return not self.never and bool(self.total) and self.most >= (self.total or 0)


def budget(check: HealthCheck, selection: Selection) -> Budget:
    """Return the limit on unhealthy objects, rounded as the controller of the check does.

    A NodeHealthCheck also waits for the remediation of one control-plane Node before it begins that
    of another (medik8s/node-healthcheck-operator:
    nodehealthcheck_controller.go#isControlPlaneRemediationAllowed).
    """
    one_by_one = len(selected_nodes.control_plane(selection)) if check.kind is kinds.NHC else 0
    return replace(_limit(check, selection), one_by_one=one_by_one)


def _limit(check: HealthCheck, selection: Selection) -> Budget:
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
        return Budget(
            limit, total, None, share=share if share is None or not healthy else 100 - share
        )
    return Budget(
        limit,
        total,
        known.number if total is None else allowed_unhealthy(known, total, check.limit_of),
    )


# --- unhealthy objects ----------------------------------------------------------------------------


class Symptom(NamedTuple):
    """A condition that makes a node or machine unhealthy after a time in nanoseconds (None:
    not valid).
    """

    type: str
    status: str
    time: int | None


def symptoms(check: HealthCheck) -> tuple[Symptom, ...]:
    """Return the node conditions that a check treats as unhealthy; for a NodeHealthCheck,
    with the schema's default.
    """
    if check.kind is kinds.NHC and not check.conditions.present:
        return (Symptom("Ready", "False", NHC_TIME), Symptom("Ready", "Unknown", NHC_TIME))
    return _symptoms(check.entries())


def machine_symptoms(check: HealthCheck) -> tuple[Symptom, ...]:
    """Return the Machine conditions that a Cluster API check treats as unhealthy."""
    return _symptoms(check.machine_entries())


def _symptoms(entries: Iterable[Condition]) -> tuple[Symptom, ...]:
    return tuple(Symptom(entry.type, entry.status, entry.known_nanoseconds()) for entry in entries)


def nodes_of(check: HealthCheck, selection: Selection, cluster: Cluster) -> Iterator[str]:
    """Yield the names of the nodes that a check watches, directly or through their Machines."""
    for obj in selection.objects:
        name = obj.name if check.kind is kinds.NHC else machine_nodes.node_name(obj, cluster)
        if name:
            yield name


# --- conflicts between checks ---------------------------------------------------------------------


def conflicting(cluster: Cluster) -> list[Object]:
    """Return the MachineHealthChecks that make the operator disable every NodeHealthCheck.

    The built-in termination handler does not conflict if it is the only one
    (mhc/checker.go#UpdateStatus).

    Raises:
        Unseen: no conflict is known, but one may exist.
    """
    found, unseen = gather(cluster.list(kinds.MHC))
    custom = [
        mhc
        for mhc in found
        if [entry.type for entry in health_checks.view(mhc).entries()] != [TERMINATING]
    ]
    if not custom and len(found) > 1:
        return found
    if not custom and unseen:
        raise Unseen(unseen)
    return custom


# --- the steps of a remediation -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """One remediator that a health check calls: the only one, or an entry of the escalation."""

    reference: Field
    """The reference to the remediator's template."""
    order: Field
    timeout: Field
    """The time after which the next step begins; absent if there is only one step."""
    fixed_namespace: str | None = None
    """The namespace of the template regardless of the reference;
    None to use that of the reference.
    """

    @property
    def kind_name(self) -> str:
        """The template's kind as written."""
        return self.reference["kind"].text or ""

    @property
    def kind(self) -> Kind | None:
        """The template's kind, if it is in the table of kinds."""
        group, slash, _ = (self.reference["apiVersion"].text or "").rpartition("/")
        return kinds.find(group if slash else "", self.kind_name)

    @property
    def namespace(self) -> str:
        return (
            self.fixed_namespace
            if self.fixed_namespace is not None
            else self.reference["namespace"].text or ""
        )

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
        """The kind of the remediation requests that use the template."""
        return (self.kind_name or "?").removesuffix(TEMPLATE)

    @property
    def known_timeout(self) -> int | None:
        """The timeout in nanoseconds, or None if it is not valid."""
        try:
            return parse_duration(self.timeout.value, DURATION)
        except ValueError:
            return None

    def template(self, cluster: Cluster) -> Object | None:
        """Return the template, or None if it is known not to exist.

        Raises:
            Unseen: it cannot be read, or its kind is unknown, so the guessed plural may be wrong.
        """
        found = cluster.get(self._lookup_kind, self.namespace, self.reference["name"].text or "")
        if found is None and self.kind is None:
            raise Unseen(self.title)
        return found

    def templates(self, cluster: Cluster) -> Iterator[Object]:
        """Yield all templates of that kind, in every namespace.

        Raises:
            Unseen: after the known templates, if more may exist.
        """
        return cluster.list(self._lookup_kind)

    @property
    def _lookup_kind(self) -> Kind:
        return self.kind or kinds.guess(self.reference["apiVersion"].text or "", self.kind_name)

    def refers_to(self, template: Object) -> bool:
        """Return whether this step refers to the template."""
        return (
            self.kind is not None
            and self.kind is kinds.of(template)
            and self.reference["name"].text == template.name
            and self.namespace == template.namespace
        )


def escalation(check: Object) -> tuple[Step, ...]:
    """Return the entries of a NodeHealthCheck's escalation in list order."""
    return tuple(
        Step(entry["remediationTemplate"], entry["order"], entry["timeout"])
        for entry in check.at("spec", "escalatingRemediations").items()
    )


def mentioned(check: HealthCheck) -> tuple[Step, ...]:
    """Return every remediator that a check mentions, even if it may have only one.

    Entries without template do not count.
    """
    entries = escalation(check.obj) if check.kind is kinds.NHC else ()
    return tuple(step for step in (_only(check), *entries) if step.reference.present)


def steps(check: HealthCheck) -> tuple[Step, ...]:
    """Return the remediators that a check calls, in the order of the calls.

    Empty for a MachineHealthCheck without a template, which deletes the Machine itself.
    """
    if check.template.present:
        return (_only(check),)
    return tuple(sorted(escalation(check.obj), key=lambda step: step.order.integer or 0))


def _only(check: HealthCheck) -> Step:
    """Return the remediator without escalation.

    MachineHealthChecks look up its template in their own namespace.
    """
    absent = check.template["-"]
    return Step(
        check.template, absent, absent, None if check.kind is kinds.NHC else check.obj.namespace
    )


class Span(NamedTuple):
    """A range of nanoseconds; ``most`` is None if it has no known upper bound."""

    least: int
    most: int | None

    def after(self, start: int) -> Span:
        """Return the span shifted by a start time."""
        return Span(start + self.least, None if self.most is None else start + self.most)

    def __str__(self) -> str:
        if self.most is None:
            return f"{format_duration(self.least)} or later"
        least, most = format_duration(self.least), format_duration(self.most)
        return least if least == most else f"{least} to {most}"


def exactly(nanoseconds: int) -> Span:
    """Return a span of one exact length."""
    return Span(nanoseconds, nanoseconds)


def takes(step: Step, cluster: Cluster, nodes: Iterable[Object] | None = None) -> Span:
    """Return how long the remediator of a step acts on one of these nodes until it succeeds or
    gives up.

    Self Node Remediation waits for its safe time. A fence agent takes seconds or is retried. The
    duration of other remediators is unknown, as is that of a template that does not exist or is not
    valid.

    Args:
        step: the step of the remediation.
        cluster: the cluster with the template and the settings of the remediators.
        nodes: the nodes to remediate; None for any node.

    Raises:
        Unseen: the template of the remediator cannot be read.
    """
    if step.kind is kinds.SNR_TEMPLATE:
        return exactly(remediators.snr_duration(cluster, nodes))
    template = step.template(cluster) if step.kind is kinds.FAR_TEMPLATE else None
    try:
        return Span(0, None if template is None else remediators.far_duration(template))
    except ValueError:
        return Span(0, None)


def refusal(step: Step, node: Object, cluster: Cluster) -> str:
    """Return why the remediator of a NodeHealthCheck's step leaves a node alone; empty:
    it acts on it.

    Raises:
        Unseen: what decides that cannot be read.
    """
    if step.kind is kinds.MDR_TEMPLATE:
        return machine_deletion.refusal(node, cluster)
    if step.kind is kinds.FAR_TEMPLATE and (template := step.template(cluster)) is not None:
        return fence_agents.refusal(template, node.name)
    return remediation_agents.reason(node.name, cluster) if step.kind is kinds.SNR_TEMPLATE else ""
