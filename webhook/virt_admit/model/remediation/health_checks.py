"""One view over the three kinds of health checks.

``MachineHealthCheck`` of machine.openshift.io and of cluster.x-k8s.io, and ``NodeHealthCheck`` say the same things
in different places and units. Rules ask this view; where a finding stands comes from its fields.

A live cluster fills in the schema's defaults before a webhook is asked; files have none. The readers below fill
them in where that matters: no limit is 100%, no start-up timeout is 10 minutes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from virt_admit.model import kinds, selectors, units
from virt_admit.model.cluster import Cluster
from virt_admit.model.kinds import Kind
from virt_admit.model.objects import Field, Object
from virt_admit.model.selectors import Selector
from virt_admit.model.units import IntOrPercent, LimitKind, parse_duration, parse_int_or_percent

PAUSED: Final = "cluster.x-k8s.io/paused"
"""The annotation that pauses a check by being there, whatever its value."""

STRATEGY: Final = "machine.openshift.io/remediation-strategy"
EXTERNAL: Final = "external-baremetal"
"""The annotation that hands remediation to the bare metal operator, and the only value that does so."""

HEALTHY: Final = {
    "Ready": "True",
    "MemoryPressure": "False",
    "DiskPressure": "False",
    "PIDPressure": "False",
    "NetworkUnavailable": "False",
}
"""The well-known node conditions and their healthy status. Every other type is custom."""

STATUSES: Final = ("True", "False", "Unknown")

TERMINATING: Final = "Terminating"
"""The condition of a node whose cloud instance is about to be taken away."""

_INERT: Final = "nonexistent"
"""How the type of a condition begins that is meant to match nothing
(openshift/managed-cluster-config: deploy/osd-machine-api/management-clusters)."""

_NODE_POOL: Final = "hypershift.openshift.io/nodePool"
"""The annotation of what belongs to a node pool of a hosted control plane."""

_NO: Final = frozenset(("false", "0", "no", "off"))

DEFAULT_STARTUP: Final = 10 * units.MINUTE
DEFAULT_LIMIT: Final = IntOrPercent(100, percent=True)


class _Layout(NamedTuple):
    """Where one kind and version keeps things; the empty path: nowhere."""

    limit_of: LimitKind
    conditions: tuple[str, ...] = ("spec", "unhealthyConditions")
    time: str = "timeout"
    schema: re.Pattern[str] | None = None
    """The schema's pattern for the time of a condition."""
    startup: tuple[str, ...] = ("spec", "nodeStartupTimeout")
    startup_schema: re.Pattern[str] | None = None
    seconds: bool = False
    """Whether times are integers, in seconds, instead of texts such as ``5m``."""
    limit: tuple[str, ...] = ("spec", "maxUnhealthy")
    range: tuple[str, ...] = ()
    machine_conditions: tuple[str, ...] = ()
    template: tuple[str, ...] = ("spec", "remediationTemplate")


_MACHINE_API: Final = _Layout(LimitKind.MACHINE_API, schema=units.DURATION, startup_schema=units.NODE_STARTUP_TIMEOUT)
_NODE_MAX: Final = _Layout(LimitKind.NODE_MAX_UNHEALTHY, time="duration", schema=units.DURATION, startup=())
_NODE_MIN: Final = _NODE_MAX._replace(limit_of=LimitKind.NODE_MIN_HEALTHY, limit=("spec", "minHealthy"))
_CLUSTER_API: Final = _Layout(
    LimitKind.CLUSTER_API,
    range=("spec", "unhealthyRange"),
    machine_conditions=("spec", "unhealthyMachineConditions"),
)
_CLUSTER_API_V1BETA2: Final = _Layout(
    LimitKind.CLUSTER_API,
    conditions=("spec", "checks", "unhealthyNodeConditions"),
    time="timeoutSeconds",
    startup=("spec", "checks", "nodeStartupTimeoutSeconds"),
    seconds=True,
    limit=("spec", "remediation", "triggerIf", "unhealthyLessThanOrEqualTo"),
    range=("spec", "remediation", "triggerIf", "unhealthyInRange"),
    machine_conditions=("spec", "checks", "unhealthyMachineConditions"),
    template=("spec", "remediation", "templateRef"),
)
_BEFORE_V1BETA2: Final = ("v1beta1", "v1alpha4", "v1alpha3")


class NegativeTime(ValueError):
    """A time that can be read, but is below zero."""


def is_falsy_text(value: str) -> bool:
    """Whether a value of an annotation reads as "no", where its presence alone means yes."""
    return value.strip().lower() in _NO


@dataclass(frozen=True, slots=True)
class Condition:
    """One entry of a condition list: a node in this state for this time is unhealthy."""

    entry: Field
    type: str
    """Empty where there is no such text; then the entry never matches."""
    status: str
    time: Field
    _layout: _Layout

    @property
    def well_known(self) -> bool:
        return self.type in HEALTHY

    @property
    def inert(self) -> bool:
        """Whether it is there to match nothing, ``NonexistentCondition``."""
        return self.type.lower().startswith(_INERT)

    def nanoseconds(self) -> int:
        """How long the condition must last.

        Raises:
            ValueError: the time is missing, negative, or cannot be read.
        """
        return _time(self.time, self._layout.schema, self._layout.seconds)

    def known_nanoseconds(self) -> int | None:
        """How long the condition must last, or None where that cannot be read."""
        try:
            return self.nanoseconds()
        except ValueError:
            return None


def _time(field: Field, schema: re.Pattern[str] | None, seconds: bool) -> int:
    if not seconds:
        parsed = parse_duration(field.value, schema)
    elif field.integer is None or field.integer > units.MAX_INT32:
        raise ValueError(f"{units.show(field.value)} is not a number of seconds: write an integer such as 300")
    else:
        parsed = field.integer * units.SECOND
    if parsed < 0:
        raise NegativeTime(f"{units.show(field.value)} is negative")
    return parsed


_RANGE: Final = re.compile(r"\[([0-9]+)-([0-9]+)\]")
_MAX_UINT32: Final = 2**32 - 1


def _read_range(value: object) -> tuple[int, int]:
    matched = _RANGE.fullmatch(value) if isinstance(value, str) and len(value) <= units.LONGEST else None
    if matched is None:
        raise ValueError(f"{units.show(value)} is not a range")
    low, high = map(int, matched.groups())
    if high > _MAX_UINT32:
        raise ValueError(f"{units.show(value)} has a number above {_MAX_UINT32}")
    if low > high:
        raise ValueError(f"{units.show(value)} begins after its end")
    return low, high


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A health check of any of the three kinds."""

    obj: Object
    kind: Kind
    conditions: Field
    """The list of node conditions."""
    entries: tuple[Condition, ...]
    """The items of that list, whatever their types."""
    selector: Selector
    _layout: _Layout

    @property
    def time_key(self) -> str:
        """What the time of a condition is called: ``timeout``, ``timeoutSeconds`` or ``duration``."""
        return self._layout.time

    @property
    def usual_time(self) -> str:
        """The recommended time of a condition, 5 minutes, in the notation of this kind and version."""
        return "300" if self._layout.seconds else "300s"

    @property
    def default_startup(self) -> str:
        """The schema's default start-up timeout, 10 minutes, in the notation of this kind and version."""
        return "600" if self._layout.seconds else "10m"

    @property
    def machine_conditions(self) -> Field:
        """The list of conditions of the Machine itself (Cluster API)."""
        return self._field(self._layout.machine_conditions)

    @property
    def machine_entries(self) -> tuple[Condition, ...]:
        return _entries(self.machine_conditions, self._layout)

    @property
    def startup(self) -> Field:
        """How long a Machine may take to become a Node; absent in a NodeHealthCheck."""
        return self._field(self._layout.startup)

    def startup_time(self) -> int:
        """Nanoseconds that a Machine may take to become a Node; 0: for ever. Ten minutes if nothing is said.

        Raises:
            ValueError: negative, or it cannot be read.
        """
        if not self.startup.present:
            return DEFAULT_STARTUP
        return _time(self.startup, self._layout.startup_schema, self._layout.seconds)

    def known_startup_time(self) -> int | None:
        """As ``startup_time``, or None where that cannot be read."""
        try:
            return self.startup_time()
        except ValueError:
            return None

    @property
    def limit(self) -> Field:
        """How many may be unhealthy: ``maxUnhealthy``; in a NodeHealthCheck that says so, ``minHealthy``."""
        return self._field(self._layout.limit)

    @property
    def limit_of(self) -> LimitKind:
        """What ``limit`` means."""
        return self._layout.limit_of

    def read_limit(self) -> IntOrPercent:
        """The limit; 100% if nothing is said.

        Raises:
            LimitError: no controller could use the value.
        """
        return parse_int_or_percent(self.limit.value, self.limit_of) if self.limit.present else DEFAULT_LIMIT

    def known_limit(self) -> IntOrPercent | None:
        """As ``read_limit``, or None where the limit cannot be read."""
        try:
            return self.read_limit()
        except ValueError:
            return None

    @property
    def range(self) -> Field:
        """``[low-high]``: the numbers of unhealthy machines at which remediation goes ahead. Wins over the limit."""
        return self._field(self._layout.range)

    def read_range(self) -> tuple[int, int]:
        """Both ends of the range.

        Raises:
            ValueError: it is absent, or no controller could use it.
        """
        return _read_range(self.range.value)

    @property
    def template(self) -> Field:
        """The reference to the one remediation template."""
        return self._field(self._layout.template)

    @property
    def selector_field(self) -> Field:
        return self.obj.at("spec", "selector")

    @property
    def cluster_name(self) -> str | None:
        """The cluster of Cluster API whose machines are checked; None in the other kinds."""
        return self.obj.at("spec", "clusterName").text if self.kind is kinds.CAPI_MHC else None

    @property
    def paused(self) -> Field:
        """The annotation that pauses a check; its presence decides, not its value."""
        return self.obj.annotation(PAUSED)

    @property
    def external(self) -> bool:
        """Whether an annotation hands remediation to the bare metal operator."""
        return self.kind is kinds.MHC and self.obj.annotation(STRATEGY).text == EXTERNAL

    @property
    def handler(self) -> bool:
        """Whether it only replaces machines that the cloud is taking away, as ``machine-api-termination-handler``."""
        return (
            self.kind is not kinds.NHC
            and bool(self.entries)
            and all(condition.type == TERMINATING for condition in self.entries)
        )

    @property
    def deliberate(self) -> bool:
        """Whether the cluster or its managers made it, and mean what would be a mistake of anybody else.

        The termination handler; a check with ``NonexistentCondition`` alone, which replaces machines whose node is
        gone; and the checks of hosted control planes for their node pools. Those carry an annotation; older ones only
        have one label that is its own value and begins with the name of the cluster
        (openshift/hypershift: hypershift-operator/controllers/nodepool/capi.go#reconcileMachineHealthCheck).
        """
        return self.handler or self._inert or self._hosted

    @property
    def _inert(self) -> bool:
        return bool(self.entries) and all(condition.inert for condition in self.entries)

    @property
    def _hosted(self) -> bool:
        if self.kind is not kinds.CAPI_MHC:
            return False
        if self.obj.annotation(_NODE_POOL).present:
            return True
        return len(self.selector.requirements) == 1 and all(
            each.operator == selectors.IN and each.values == {each.key} and each.key.startswith(f"{self.cluster_name}-")
            for each in self.selector.requirements
        )

    def _field(self, steps: tuple[str, ...]) -> Field:
        return self.obj.at(*steps) if steps else Field(None)


def view(obj: Object, cluster: Cluster | None = None) -> HealthCheck:  # noqa: ARG001 - the shape of a fact
    """The view on a health check. What is of none of the three kinds is read as one of machine.openshift.io.

    Version and layout are those of the object itself: a webhook that matches equivalent versions may get any.
    """
    kind = kinds.of(obj)
    if kind not in (kinds.CAPI_MHC, kinds.NHC):
        kind = kinds.MHC
    layout = _layout(kind, obj)
    conditions = obj.at(*layout.conditions)
    selector = selectors.parse(obj.at("spec", "selector").value)
    return HealthCheck(obj, kind, conditions, _entries(conditions, layout), selector, layout)


def _entries(conditions: Field, layout: _Layout) -> tuple[Condition, ...]:
    return tuple(
        Condition(item, item["type"].text or "", item["status"].text or "", item[layout.time], layout)
        for item in conditions.items()
    )


def _layout(kind: Kind, obj: Object) -> _Layout:
    if kind is kinds.NHC:
        only_minimum = obj.at("spec", "minHealthy").present and not obj.at("spec", "maxUnhealthy").present
        return _NODE_MIN if only_minimum else _NODE_MAX
    if kind is kinds.CAPI_MHC:
        return _CLUSTER_API if obj.version in _BEFORE_V1BETA2 else _CLUSTER_API_V1BETA2
    return _MACHINE_API
