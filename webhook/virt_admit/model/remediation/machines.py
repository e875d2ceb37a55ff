"""Machines: what selects them, what owns them, what they run.

What is linear in the machines of a cluster is computed once per cluster state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from virt_admit.model import kinds, selectors
from virt_admit.model.cluster import Cluster, gather
from virt_admit.model.kinds import Kind
from virt_admit.model.kubevirt import drain
from virt_admit.model.kubevirt.drain import Evictions
from virt_admit.model.labels import NO_POSITIONS, LabelIndex, Selection
from virt_admit.model.objects import Object
from virt_admit.model.reads import Reads, union
from virt_admit.model.selectors import Selector

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

SELECT_READS: Final[Reads] = {
    kinds.MACHINE: ("metadata.labels",),
    kinds.CAPI_MACHINE: ("metadata.labels", "spec.clusterName"),
}
"""What ``select`` looks up."""

OWNER_READS: Final = union(
    SELECT_READS, dict.fromkeys((kinds.MACHINE, kinds.CAPI_MACHINE), ("metadata.ownerReferences",))
)
"""What ``select`` and the owners of the selected Machines need."""

SET_READS: Final[Reads] = {
    kinds.MACHINE: (
        *("metadata.labels", "metadata.ownerReferences"),
        *(f"metadata.annotations.{key}" for key in (*DELETE_ANNOTATIONS, UNDRAINED)),
        *("status.nodeRef", "status.errorReason", "status.errorMessage"),
    ),
    kinds.MACHINE_SET: (),
}
"""What ``scale_down``, ``of_set``, ``goes_first`` and ``evictions`` need of Machines and their sets."""

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


def evictions(machine: Object, cluster: Cluster) -> Evictions:
    """What the deletion of a Machine does to the VMIs on its node: nothing is evicted where it goes without a drain."""
    name = node_name(machine)
    return drain.evictions(cluster, name) if name and not machine.annotation(UNDRAINED).present else Evictions()


# --- which machines there are ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Home:
    """The Machines of one namespace."""

    index: LabelIndex
    clusters: Mapping[str, frozenset[int]]
    """By the cluster of Cluster API that they are part of; empty: they do not say."""

    def of(self, cluster_name: str) -> frozenset[int]:
        """Those of a cluster, and those that do not say of which they are."""
        named, nameless = self.clusters.get(cluster_name, NO_POSITIONS), self.clusters.get("", NO_POSITIONS)
        return named | nameless if nameless else named


_NOWHERE: Final = _Home(LabelIndex(()), {})


@dataclass(frozen=True, slots=True)
class _Fleet:
    """All Machines of one kind."""

    homes: Mapping[str, _Home]
    unseen: str

    def at(self, namespace: str) -> _Home:
        return self.homes.get(namespace or "default", _NOWHERE)


def select(
    cluster: Cluster, kind: Kind, namespace: str, selector: Selector, cluster_name: str | None = None
) -> Selection:
    """The Machines of either kind that a selector matches in a namespace, and in a cluster of Cluster API."""
    fleet = cluster.cached(_FLEETS[kind])
    home = fleet.at(namespace)
    selection = Selection(home.index, home.index.select(selector), fleet.unseen)
    return selection if cluster_name is None else selection.among(home.of(cluster_name))


def _fleet(cluster: Cluster, kind: Kind) -> _Fleet:
    found, unseen = gather(cluster.list(kind))
    homes: dict[str, list[Object]] = {}
    for machine in found:
        homes.setdefault(machine.namespace or "default", []).append(machine)
    clusters = _by_cluster if kind is kinds.CAPI_MACHINE else lambda _: {}
    return _Fleet({home: _Home(LabelIndex(some), clusters(some)) for home, some in homes.items()}, unseen)


_FLEETS: Final[Mapping[Kind, Callable[[Cluster], _Fleet]]] = {
    kind: functools.partial(_fleet, kind=kind) for kind in (kinds.MACHINE, kinds.CAPI_MACHINE)
}


def _by_cluster(machines: Sequence[Object]) -> Mapping[str, frozenset[int]]:
    clusters: dict[str, set[int]] = {}
    for position, machine in enumerate(machines):
        name = machine.label(CAPI_CLUSTER_LABEL).text or machine.at("spec", "clusterName").text or ""
        clusters.setdefault(name, set()).add(position)
    return {name: frozenset(some) for name, some in clusters.items()}


def control_plane(machines: Selection) -> Selection:
    """Those of the control plane (machine.openshift.io)."""
    return machines.among(NO_POSITIONS.union(*(machines.index.having(label, MASTER) for label in ROLE_LABELS)))


def selects_control_plane(selector: Selector) -> bool:
    """Whether the selector alone says that it is about the control plane of a machine.openshift.io cluster."""
    return any(selector.allowed_values(key) == _MASTERS for key in ROLE_LABELS)


# --- machine sets ------------------------------------------------------------------------------------------------


def of_set(machine_set: Object, cluster: Cluster) -> Selection:
    """The Machines of a MachineSet: those that its selector matches and that nothing else controls."""
    selector = selectors.parse(machine_set.at("spec", "selector").value)
    matched = select(cluster, kinds.MACHINE, machine_set.namespace, selector)
    return matched.among(
        frozenset(position for position in matched.positions if _may_own(machine_set, matched.index.objects[position]))
    )


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
