"""Machines: what selects them, what owns them, what they run (node-and-machine-health.md 1, 7, 8, 10).

Everything that is linear in the machines or in the health checks of a cluster is computed once per cluster state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.model import drain, health, kinds, selectors
from webhook.model.cluster import Cluster, Unseen
from webhook.model.health import HealthCheck
from webhook.model.kinds import Kind
from webhook.model.labels import LabelIndex
from webhook.model.lifecycle import Eviction
from webhook.model.objects import Object

ROLE_LABELS: Final = ("machine.openshift.io/cluster-api-machine-role", "machine.openshift.io/cluster-api-machine-type")
MASTER: Final = "master"
"""The value of either label on a machine of the control plane (machine_webhook.go#isControlPlaneMachine)."""

CAPI_CONTROL_PLANE_LABEL: Final = "cluster.x-k8s.io/control-plane"
CAPI_CLUSTER_LABEL: Final = "cluster.x-k8s.io/cluster-name"

DELETE_ANNOTATIONS: Final = (
    "machine.openshift.io/delete-machine",
    "machine.openshift.io/cluster-api-delete-machine",
)
"""Any value but the empty one puts a machine first when its set scales down (machineset/delete_policy.go)."""

UNDRAINED: Final = "machine.openshift.io/exclude-node-draining"
"""The annotation whose presence lets a node be switched off without a drain (machine/drain_controller.go)."""

CONTROL_PLANE_SIZE: Final = 3
"""Machines of a control plane that cannot be seen."""

_MASTERS: Final = frozenset((MASTER,))


def node_name(machine: Object) -> str:
    """The Node that a Machine became; empty as long as there is none."""
    return machine.at("status", "nodeRef", "name").text or ""


def goes_first(machine: Object) -> bool:
    """Whether a Machine is among the first to go when its set scales down: marked, deleted already, or failed."""
    annotations = machine.annotations
    return (
        any(annotations.get(key) for key in DELETE_ANNOTATIONS)
        or machine.deleted
        or machine.at("status", "errorReason").present
        or machine.at("status", "errorMessage").present
    )


def blockers(machine: Object, cluster: Cluster) -> Iterator[Object | Unseen]:
    """The VMIs for which the deletion of a Machine waits in vain, since it drains the node first; and what of them
    could not be seen."""
    if node_name(machine) and not machine.annotation(UNDRAINED).present:
        for each in drain.evictions(cluster, node_name(machine)):
            if isinstance(each, Unseen):
                yield each
            elif each[1] in (Eviction.REFUSED, Eviction.WAITS):
                yield each[0]


@dataclass(frozen=True, slots=True)
class Selection:
    """The Machines that something selects in its namespace, as far as they can be seen."""

    index: LabelIndex
    positions: frozenset[int]
    unseen: str
    """What could not be seen; empty if these are all."""

    @property
    def machines(self) -> tuple[Object, ...]:
        """In the order in which the cluster lists them."""
        return tuple(self.index.objects[position] for position in sorted(self.positions))

    @property
    def control_plane(self) -> Selection:
        """Those of the control plane (machine.openshift.io)."""
        masters = frozenset[int]().union(*(self.index.having(label, MASTER) for label in ROLE_LABELS))
        return Selection(self.index, self.positions & masters, self.unseen)

    def __len__(self) -> int:
        return len(self.positions)

    def demand_all(self) -> None:
        """Go on only if every Machine is seen.

        Raises:
            Unseen: there may be more.
        """
        if self.unseen:
            raise Unseen(self.unseen)


_Home = tuple[str, str | None]
"""A namespace, and within it a cluster of Cluster API: what a check can select from."""


@dataclass(frozen=True, slots=True)
class _Fleet:
    """All Machines of one kind, by where they are at home."""

    homes: Mapping[_Home, LabelIndex]
    unseen: str

    def at(self, namespace: str, cluster_name: str | None = None) -> LabelIndex:
        return self.homes.get((namespace or "default", cluster_name), _NOWHERE)


_NOWHERE: Final = LabelIndex(())


def _machine_api(cluster: Cluster) -> _Fleet:
    return _fleet(cluster, kinds.MACHINE, lambda _: None)


def _cluster_api(cluster: Cluster) -> _Fleet:
    return _fleet(cluster, kinds.CAPI_MACHINE, _capi_cluster)


def _fleet(cluster: Cluster, kind: Kind, cluster_of: Callable[[Object], str | None]) -> _Fleet:
    homes: dict[_Home, list[Object]] = {}
    unseen = ""
    try:
        for machine in cluster.list(kind):
            homes.setdefault((machine.namespace or "default", cluster_of(machine)), []).append(machine)
    except Unseen as blind:
        unseen = blind.what
    return _Fleet({home: LabelIndex(machines) for home, machines in homes.items()}, unseen)


def _capi_cluster(machine: Object) -> str | None:
    return machine.label(CAPI_CLUSTER_LABEL).text or machine.at("spec", "clusterName").text


def selected_by(check: HealthCheck, cluster: Cluster) -> Selection:
    """``M``, the Machines of its own namespace that a MachineHealthCheck selects; in Cluster API, of its cluster."""
    fleet = cluster.derive(_cluster_api if check.kind is kinds.CAPI_MHC else _machine_api)
    index = fleet.at(check.obj.namespace, check.cluster_name)
    return Selection(index, index.select(check.selector), fleet.unseen)


def selected(obj: Object, cluster: Cluster) -> Selection:
    """``M`` of the MachineHealthCheck ``obj``: a fact for rules."""
    return selected_by(health.view(obj), cluster)


def selects_control_plane(check: HealthCheck) -> bool:
    """Whether the selector alone says that a check is about the control plane of a machine.openshift.io cluster."""
    return any(check.selector.allowed_values(key) == _MASTERS for key in ROLE_LABELS)


@dataclass(frozen=True, slots=True)
class Watch:
    """A MachineHealthCheck of the cluster, and what it selects."""

    check: HealthCheck
    selection: Selection


@dataclass(frozen=True, slots=True)
class Watches:
    """All MachineHealthChecks of one kind, by namespace."""

    homes: Mapping[str, tuple[Watch, ...]]
    unseen: str
    """What could not be seen; empty if these are all."""

    def of(self, namespace: str) -> tuple[Watch, ...]:
        return self.homes.get(namespace or "default", ())

    def demand_all(self) -> None:
        """Go on only if every check is seen.

        Raises:
            Unseen: there may be more.
        """
        if self.unseen:
            raise Unseen(self.unseen)


def watches(cluster: Cluster, kind: Kind = kinds.MHC) -> Watches:
    """The MachineHealthChecks of the cluster, of either kind, with what they select."""
    return cluster.derive(_WATCHES[kind])


def _watches(cluster: Cluster, kind: Kind) -> Watches:
    homes: dict[str, list[Watch]] = {}
    unseen = ""
    try:
        for obj in cluster.list(kind):
            check = health.view(obj)
            homes.setdefault(obj.namespace or "default", []).append(Watch(check, selected_by(check, cluster)))
    except Unseen as blind:
        unseen = blind.what
    return Watches({namespace: tuple(some) for namespace, some in homes.items()}, unseen)


_WATCHES: Final[Mapping[Kind, Callable[[Cluster], Watches]]] = {
    kinds.MHC: lambda cluster: _watches(cluster, kinds.MHC),
    kinds.CAPI_MHC: lambda cluster: _watches(cluster, kinds.CAPI_MHC),
}


def of_set(machine_set: Object, cluster: Cluster) -> Selection:
    """The Machines of a MachineSet: those that its selector matches and that nothing else controls."""
    fleet = cluster.derive(_machine_api)
    index = fleet.at(machine_set.namespace)
    chosen = index.select(selectors.parse(machine_set.at("spec", "selector").value))
    mine = frozenset(position for position in chosen if _may_own(machine_set, index.objects[position]))
    return Selection(index, mine, fleet.unseen)


def _may_own(machine_set: Object, machine: Object) -> bool:
    owner = machine.controller
    return owner is None or (owner["kind"].text == "MachineSet" and owner["name"].text == machine_set.name)


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """A MachineSet that is to lose Machines."""

    machine_set: Object
    before: int
    after: int

    @property
    def fewer(self) -> int:
        return self.before - self.after


def scale_down(obj: Object, old: Object | None, subresource: str, cluster: Cluster) -> ScaleDown | None:
    """What an update of a MachineSet, or of its ``scale``, takes away; None if nothing.

    A ``Scale`` without replicas means 0 (Go leaves zeros out), a MachineSet without means 1 (the schema's default).

    Raises:
        Unseen: the MachineSet behind the ``Scale`` cannot be seen.
    """
    if old is None:
        return None
    default = 0 if subresource else 1
    before, after = (
        default if each is None else each
        for each in (old.at("spec", "replicas").integer, obj.at("spec", "replicas").integer)
    )
    if after >= before:
        return None
    machine_set = cluster.get(kinds.MACHINE_SET, obj.namespace, obj.name) if subresource else obj
    return ScaleDown(machine_set, before, after) if machine_set is not None else None


def platform(cluster: Cluster) -> str:
    """What an OpenShift cluster runs on, such as ``BareMetal`` or ``None``; empty where that is not said.

    Raises:
        Unseen: the cluster's Infrastructure cannot be seen.
    """
    infrastructure = cluster.get(kinds.INFRASTRUCTURE, "", "cluster")
    if infrastructure is None:
        return ""
    status = infrastructure["status"]
    return status.at("platformStatus", "type").text or status["platform"].text or ""
