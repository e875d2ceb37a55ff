"""A common view of the three kinds of health checks.

``MachineHealthCheck`` of machine.openshift.io and of cluster.x-k8s.io, and ``NodeHealthCheck`` hold
the same settings at different paths and in different units. Rules read this view; its fields know
their own paths.

The API server adds the schema's defaults before it calls a webhook, but files lack them. The
properties below apply the defaults that matter: a limit of 100% and a start-up timeout of 10
minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from virt_admit.model.kubernetes import kinds, selectors, units
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.int_or_percent import (
    MAX_INT32,
    IntOrPercent,
    LimitKind,
    parse_int_or_percent,
)
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.selectors import Selector
from virt_admit.model.kubernetes.units import parse_duration

PAUSED: Final = "cluster.x-k8s.io/paused"
"""The annotation that pauses a check with any value."""

STRATEGY: Final = "machine.openshift.io/remediation-strategy"
EXTERNAL: Final = "external-baremetal"
"""The annotation that leaves remediation to the bare metal operator, and its only valid value."""

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
"""The condition of a node whose cloud instance is about to be terminated."""

_INERT: Final = "nonexistent"
"""The lower-case prefix of condition types that intentionally match nothing, such as
``NonexistentCondition`` (openshift/managed-cluster-config:
deploy/osd-machine-api/management-clusters).
"""

NODE_POOL: Final = "hypershift.openshift.io/nodePool"
"""The annotation of objects that belong to a node pool of a hosted control plane."""

_FALSY_TEXTS: Final = frozenset(("false", "0", "no", "off"))

DEFAULT_STARTUP: Final = 10 * units.MINUTE
DEFAULT_LIMIT: Final = IntOrPercent(100, percent=True)


class _Layout(NamedTuple):
    """The paths of the settings in one kind and version;
    an empty path means that the setting does not exist.
    """

    limit_of: LimitKind
    conditions: tuple[str, ...] = ("spec", "unhealthyConditions")
    time: str = "timeout"
    schema: str | None = None
    """The schema's pattern for the time of a condition."""
    startup: tuple[str, ...] = ("spec", "nodeStartupTimeout")
    startup_schema: str | None = None
    seconds: bool = False
    """Whether times are integers in seconds instead of strings such as ``5m``."""
    limit: tuple[str, ...] = ("spec", "maxUnhealthy")
    range: tuple[str, ...] = ()
    machine_conditions: tuple[str, ...] = ()
    template: tuple[str, ...] = ("spec", "remediationTemplate")


_MACHINE_API: Final = _Layout(
    LimitKind.MACHINE_API, schema=units.DURATION, startup_schema=units.NODE_STARTUP_TIMEOUT
)
_NODE_MAX: Final = _Layout(
    LimitKind.NODE_MAX_UNHEALTHY, time="duration", schema=units.DURATION, startup=()
)
_NODE_MIN: Final = _NODE_MAX._replace(
    limit_of=LimitKind.NODE_MIN_HEALTHY, limit=("spec", "minHealthy")
)
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
    """A valid duration below zero."""


def is_falsy_text(value: str) -> bool:
    """Return whether a text reads as "no".

    The value of a presence-only annotation has no effect.
    """
    return value.strip().lower() in _FALSY_TEXTS


class Condition(NamedTuple):
    """One entry of a condition list: a node with this status for this time is unhealthy."""

    entry: Field
    layout: _Layout

    @property
    def type(self) -> str:
        """The type of the condition.

        Empty if the entry has no string here; such an entry never matches.
        """
        return self.entry["type"].text or ""

    @property
    def status(self) -> str:
        """The status of the condition, empty as ``type`` can be."""
        return self.entry["status"].text or ""

    @property
    def time(self) -> Field:
        """How long the condition must last."""
        return self.entry[self.layout.time]

    @property
    def well_known(self) -> bool:
        return self.type in HEALTHY

    @property
    def inert(self) -> bool:
        """Whether the entry intentionally matches nothing (``NonexistentCondition``)."""
        return self.type.lower().startswith(_INERT)

    def nanoseconds(self) -> int:
        """Return how long the condition must last.

        Raises:
            ValueError: the time is missing, negative, or not a valid duration.
        """
        return _time(self.time, self.layout.schema, self.layout.seconds)

    def known_nanoseconds(self) -> int | None:
        """Return how long the condition must last, or None if the time is not valid."""
        try:
            return self.nanoseconds()
        except ValueError:
            return None


def _time(field: Field, schema: str | None, seconds: bool) -> int:
    if not seconds:
        parsed = parse_duration(field.value, schema)
    elif field.integer is None or field.integer > MAX_INT32:
        raise ValueError(
            f"{units.show(field.value)} is not a number of seconds: write an integer such as 300"
        )
    else:
        parsed = field.integer * units.SECOND
    if parsed < 0:
        raise NegativeTime(f"{units.show(field.value)} is negative")
    return parsed


_RANGE: Final = re.compile(r"\[([0-9]+)-([0-9]+)\]")
MAX_UINT32: Final = 2**32 - 1


def _read_range(value: object) -> tuple[int, int]:
    matched = (
        _RANGE.fullmatch(value) if isinstance(value, str) and len(value) <= units.LONGEST else None
    )
    if matched is None:
        raise ValueError(f"{units.show(value)} is not a range")
    low, high = map(int, matched.groups())
    if high > MAX_UINT32:
        raise ValueError(f"{units.show(value)} has a number above {MAX_UINT32}")
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
    selector: Selector
    handler: bool
    """Whether this is a termination handler,
    which only replaces machines that the cloud is terminating.

    OpenShift ships one: ``machine-api-termination-handler``.
    """
    _layout: _Layout

    @property
    def time_key(self) -> str:
        """The field of a condition's time: ``timeout``, ``timeoutSeconds`` or ``duration``."""
        return self._layout.time

    @property
    def usual_time(self) -> str:
        """The recommended time of a condition, 5 minutes,
        in the notation of this kind and version.
        """
        return "300" if self._layout.seconds else "300s"

    @property
    def default_startup(self) -> str:
        """The schema's default start-up timeout, 10 minutes,
        in the notation of this kind and version.
        """
        return "600" if self._layout.seconds else "10m"

    @property
    def machine_conditions(self) -> Field:
        """The list of conditions of the Machine itself (Cluster API)."""
        return self._field(self._layout.machine_conditions)

    @property
    def has_entries(self) -> bool:
        """Whether the list of node conditions has items."""
        return _has_items(self.conditions)

    def entries(self) -> Iterator[Condition]:
        """Yield the items of the list of node conditions, including those that are not objects.

        They are never kept: a list may have tens of thousands.
        """
        return _entries(self.conditions, self._layout)

    def machine_entries(self) -> Iterator[Condition]:
        """Yield the items of the list of machine conditions,
        including those that are not objects.
        """
        return _entries(self.machine_conditions, self._layout)

    @property
    def startup(self) -> Field:
        """The time that a Machine has to become a Node; absent in a NodeHealthCheck."""
        return self._field(self._layout.startup)

    def startup_time(self) -> int:
        """Return the nanoseconds that a Machine has to become a Node; 0 means forever.

        The default is 10 minutes.

        Raises:
            ValueError: the time is negative or not a valid duration.
        """
        if not self.startup.present:
            return DEFAULT_STARTUP
        return _time(self.startup, self._layout.startup_schema, self._layout.seconds)

    def known_startup_time(self) -> int | None:
        """Return ``startup_time``, or None if it is not valid."""
        try:
            return self.startup_time()
        except ValueError:
            return None

    @property
    def limit(self) -> Field:
        """The limit on unhealthy objects: ``maxUnhealthy``,
        or ``minHealthy`` if a NodeHealthCheck sets only that.
        """
        return self._field(self._layout.limit)

    @property
    def limit_of(self) -> LimitKind:
        """The meaning of ``limit``."""
        return self._layout.limit_of

    def read_limit(self) -> IntOrPercent:
        """Return the limit; the default is 100%.

        Raises:
            LimitError: the controller cannot use the value.
        """
        if self.limit.present:
            return parse_int_or_percent(self.limit.value, self.limit_of)
        return DEFAULT_LIMIT

    def known_limit(self) -> IntOrPercent | None:
        """Return ``read_limit``, or None if the limit is not valid."""
        try:
            return self.read_limit()
        except ValueError:
            return None

    @property
    def range(self) -> Field:
        """``[low-high]``: remediation requires this many unhealthy machines.

        It takes precedence over the limit.
        """
        return self._field(self._layout.range)

    def read_range(self) -> tuple[int, int]:
        """Return both ends of the range.

        Raises:
            ValueError: the range is absent or not valid.
        """
        return _read_range(self.range.value)

    @property
    def template(self) -> Field:
        """The reference to the single remediation template."""
        return self._field(self._layout.template)

    @property
    def selector_field(self) -> Field:
        return self.obj.at("spec", "selector")

    @property
    def cluster_name(self) -> str | None:
        """The name of the Cluster API cluster whose machines are checked;
        None for the other kinds.
        """
        return self.obj.at("spec", "clusterName").text if self.kind is kinds.CAPI_MHC else None

    @property
    def paused(self) -> Field:
        """The annotation that pauses a check with any value."""
        return self.obj.annotation(PAUSED)

    @property
    def external(self) -> bool:
        """Whether an annotation leaves remediation to the bare metal operator."""
        return self.kind is kinds.MHC and self.obj.annotation(STRATEGY).text == EXTERNAL

    @property
    def deliberate(self) -> bool:
        """Whether unusual settings are intended,
        because the platform created the check or uses a known pattern.

        This covers termination handlers, checks with ``NonexistentCondition`` alone (they replace
        machines whose node was deleted), and the checks of hosted control planes for their node
        pools. The latter have an annotation. Older ones select a single label whose value equals
        its key and begins with the cluster name (openshift/hypershift:
        hypershift-operator/controllers/nodepool/capi.go#reconcileMachineHealthCheck).
        """
        return self.handler or self._inert or self._hosted

    @property
    def _inert(self) -> bool:
        return self.has_entries and all(condition.inert for condition in self.entries())

    @property
    def _hosted(self) -> bool:
        if self.kind is not kinds.CAPI_MHC:
            return False
        if self.obj.annotation(NODE_POOL).present:
            return True
        return len(self.selector.requirements) == 1 and all(
            label.operator == selectors.IN
            and label.values == {label.key}
            and label.key.startswith(f"{self.cluster_name}-")
            for label in self.selector.requirements
        )

    def _field(self, steps: tuple[str, ...]) -> Field:
        return self.obj.at(*steps) if steps else Field(None)


# Context.cached passes it
def view(obj: Object, cluster: Cluster | None = None) -> HealthCheck:  # noqa: ARG001
    """Return the view of a health check.

    Other kinds are read like a MachineHealthCheck of machine.openshift.io.

    The layout follows the version of the object, because a webhook with ``matchPolicy: Equivalent``
    can receive any version.
    """
    kind = kinds.of(obj)
    if kind not in (kinds.CAPI_MHC, kinds.NHC):
        kind = kinds.MHC
    layout = _layout(kind, obj)
    conditions = obj.at(*layout.conditions)
    selector = selectors.parse_custom(obj.at("spec", "selector").value)
    handler = (
        kind is not kinds.NHC
        and _has_items(conditions)
        and all(condition.type == TERMINATING for condition in _entries(conditions, layout))
    )
    return HealthCheck(obj, kind, conditions, selector, handler, layout)


def _has_items(conditions: Field) -> bool:
    return conditions.is_list and bool(conditions.value)


def _entries(conditions: Field, layout: _Layout) -> Iterator[Condition]:
    return (Condition(item, layout) for item in conditions.items())


def _layout(kind: Kind, obj: Object) -> _Layout:
    if kind is kinds.NHC:
        only_minimum = (
            obj.at("spec", "minHealthy").present and not obj.at("spec", "maxUnhealthy").present
        )
        return _NODE_MIN if only_minimum else _NODE_MAX
    if kind is kinds.CAPI_MHC:
        return _CLUSTER_API if obj.version in _BEFORE_V1BETA2 else _CLUSTER_API_V1BETA2
    return _MACHINE_API
