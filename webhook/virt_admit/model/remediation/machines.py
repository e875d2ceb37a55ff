"""Machines and MachineSets: selection and ownership.

Work that is linear in the machines of a cluster is done once per cluster state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from virt_admit.model.kubernetes import clock, kinds, selectors
from virt_admit.model.kubernetes.cluster import Cluster, gather
from virt_admit.model.kubernetes.kinds import Kind
from virt_admit.model.kubernetes.labels import NO_POSITIONS, LabelIndex, Selection
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.selectors import Selector

ROLE_LABELS: Final = (
    "machine.openshift.io/cluster-api-machine-role",
    "machine.openshift.io/cluster-api-machine-type",
)
MASTER: Final = "master"
"""The value of either label on a control-plane machine
(machine_webhook.go#isControlPlaneMachine).
"""

CAPI_CONTROL_PLANE_LABEL: Final = "cluster.x-k8s.io/control-plane"
CAPI_CLUSTER_LABEL: Final = "cluster.x-k8s.io/cluster-name"
CAPI_SKIPPED: Final = ("cluster.x-k8s.io/skip-remediation", "cluster.x-k8s.io/paused")
"""Either annotation, with any value, removes a Machine from its health checks
(kubernetes-sigs/cluster-api: machinehealthcheck_targets.go#shouldSkipRemediation)."""

DELETE_ANNOTATIONS: Final = (
    "machine.openshift.io/delete-machine",
    "machine.openshift.io/cluster-api-delete-machine",
)
"""Any value except the empty one makes a machine the first to be deleted on scale-down
(machineset/delete_policy.go).
"""

UNDRAINED: Final = "machine.openshift.io/exclude-node-draining"
"""The annotation that skips the drain of the node, with any value (machine/drain_controller.go)."""

SELECT_READS: Final[Reads] = {
    kinds.MACHINE: ("metadata.labels",),
    kinds.CAPI_MACHINE: (
        "metadata.labels",
        *(f"metadata.annotations.{key}" for key in CAPI_SKIPPED),
    ),
}
"""The fields that ``select`` reads."""

OWNER_READS: Final = union(
    SELECT_READS, dict.fromkeys((kinds.MACHINE, kinds.CAPI_MACHINE), ("metadata.ownerReferences",))
)
"""The fields that ``select`` and the owners of the selected Machines read."""

SET_READS: Final[Reads] = {
    kinds.MACHINE: (
        *("metadata.labels", "metadata.ownerReferences"),
        *(f"metadata.annotations.{key}" for key in (*DELETE_ANNOTATIONS, UNDRAINED)),
        *("status.nodeRef", "status.errorReason", "status.errorMessage"),
    ),
    kinds.MACHINE_SET: (),
}
"""The fields of Machines and their sets that ``scale_down``, ``of_set``, ``goes_first`` and
``machine_vms`` read.
"""

CONTROL_PLANE_SIZE: Final = 3
"""The assumed number of control-plane machines if they cannot be read."""

_MASTERS: Final = frozenset((MASTER,))


def node_name(machine: Object) -> str:
    """Return the name of the Machine's Node; empty until the Node exists."""
    return machine.at("status", "nodeRef", "name").text or ""


def goes_first(machine: Object) -> bool:
    """Return whether scale-down deletes this Machine first: it is marked, already being deleted,
    or failed.
    """
    annotations = machine.annotations
    return (
        any(annotations.get(key) for key in DELETE_ANNOTATIONS)
        or machine.deleted
        or machine.at("status", "errorReason").present
        or machine.at("status", "errorMessage").present
    )


# --- machines by label ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Namespace:
    """The Machines of one namespace."""

    index: LabelIndex
    clusters: Mapping[str, frozenset[int]]
    """Positions by the label with the name of the Cluster API cluster,
    without the machines that are skipped.
    """

    def of(self, cluster_name: str) -> frozenset[int]:
        """Return the machines that the health checks of a cluster count
        (…targets.go#getMachinesFromMHC).
        """
        return self.clusters.get(cluster_name, NO_POSITIONS)


_EMPTY: Final = _Namespace(LabelIndex(()), {})


@dataclass(frozen=True, slots=True)
class _Machines:
    """All Machines of one kind."""

    by_namespace: Mapping[str, _Namespace]
    unseen: str

    def at(self, namespace: str) -> _Namespace:
        return self.by_namespace.get(namespace or "default", _EMPTY)


def select(
    cluster: Cluster,
    kind: Kind,
    namespace: str,
    selector: Selector,
    cluster_name: str | None = None,
) -> Selection:
    """Return the Machines that a selector matches in a namespace,
    optionally of one Cluster API cluster.
    """
    all_machines = cluster.cached(_MACHINES[kind])
    machines = all_machines.at(namespace)
    selection = Selection(machines.index, machines.index.select(selector), all_machines.unseen)
    return selection if cluster_name is None else selection.among(machines.of(cluster_name))


def _machines(cluster: Cluster, kind: Kind) -> _Machines:
    found, unseen = gather(cluster.list(kind))
    by_namespace: dict[str, list[Object]] = {}
    for machine in found:
        by_namespace.setdefault(machine.namespace or "default", []).append(machine)
    clusters = _by_cluster if kind is kinds.CAPI_MACHINE else lambda _: {}
    indexed = {
        namespace: _Namespace(LabelIndex(machines), clusters(machines))
        for namespace, machines in by_namespace.items()
    }
    return _Machines(indexed, unseen)


_MACHINES: Final[Mapping[Kind, Callable[[Cluster], _Machines]]] = {
    kind: functools.partial(_machines, kind=kind) for kind in (kinds.MACHINE, kinds.CAPI_MACHINE)
}


def _by_cluster(machines: Sequence[Object]) -> Mapping[str, frozenset[int]]:
    clusters: dict[str, set[int]] = {}
    for position, machine in enumerate(machines):
        if not any(machine.annotation(key).present for key in CAPI_SKIPPED):
            clusters.setdefault(machine.label(CAPI_CLUSTER_LABEL).text or "", set()).add(position)
    return {name: frozenset(positions) for name, positions in clusters.items()}


def control_plane(machines: Selection) -> Selection:
    """Return the control-plane machines (machine.openshift.io)."""
    return machines.among(
        NO_POSITIONS.union(*(machines.index.having(label, MASTER) for label in ROLE_LABELS))
    )


def selects_control_plane(selector: Selector) -> bool:
    """Return whether the selector matches only control-plane machines of a machine.openshift.io
    cluster.
    """
    return any(selector.allowed_values(key) == _MASTERS for key in ROLE_LABELS)


# --- machine sets ---------------------------------------------------------------------------------


def of_set(machine_set: Object, cluster: Cluster) -> Selection:
    """Return the Machines of a MachineSet: its selector matches them and no other object controls
    them.
    """
    selector = selectors.parse_custom(machine_set.at("spec", "selector").value)
    matched = select(cluster, kinds.MACHINE, machine_set.namespace, selector)
    return matched.among(
        frozenset(
            position
            for position in matched.positions
            if _may_own(machine_set, matched.index.objects[position])
        )
    )


def _may_own(machine_set: Object, machine: Object) -> bool:
    owner = machine.controller
    return owner is None or (
        owner["kind"].text == "MachineSet" and owner["name"].text == machine_set.name
    )


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """A MachineSet update that removes Machines."""

    machine_set: Object
    before: int
    after: int

    @property
    def fewer(self) -> int:
        return self.before - self.after


def scale_down(
    obj: Object, old: Object | None, subresource: str, cluster: Cluster
) -> ScaleDown | None:
    """Return the scale-down of a MachineSet update or of its ``scale`` subresource;
    None if it removes no Machine.

    A ``Scale`` without replicas means 0, because Go omits zeros. A MachineSet without replicas
    means 1, the schema's default.

    Raises:
        Unseen: the MachineSet of the ``Scale`` cannot be read.
    """
    if old is None:
        return None
    default = 0 if subresource else 1
    before, after = (
        default if replicas is None else replicas
        for replicas in (old.at("spec", "replicas").integer, obj.at("spec", "replicas").integer)
    )
    if after >= before:
        return None
    machine_set = cluster.get(kinds.MACHINE_SET, obj.namespace, obj.name) if subresource else obj
    return ScaleDown(machine_set, before, after) if machine_set is not None else None


def platform(cluster: Cluster) -> str:
    """Return the platform of an OpenShift cluster, such as ``BareMetal`` or ``None``;
    empty if it is not set.

    Raises:
        Unseen: the cluster's Infrastructure cannot be read.
    """
    infrastructure = cluster.get(kinds.INFRASTRUCTURE, "", "cluster")
    if infrastructure is None:
        return ""
    status = infrastructure["status"]
    return status.at("platformStatus", "type").text or status["platform"].text or ""


# --- deletions ------------------------------------------------------------------------------------

TURN_FIELDS: Final = (
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "metadata.ownerReferences",
)
"""The fields of Machines that ``deleted_in_turn`` reads besides their node."""


def deleted_in_turn(
    every: Iterable[Object], least: timedelta, most: timedelta
) -> tuple[Object, Object] | None:
    """Return a Machine whose deletion began at such an age, and the one that its owner has made
    since then, both without a node; None: there are none.

    The first one is there as long as its instance ends.
    """
    without = [each for each in every if not node_name(each)]
    for gone in filter(lambda each: each.deleted, without):
        begun = clock.instant(gone.created)
        ended = clock.instant(gone.metadata["deletionTimestamp"].text)
        if begun is None or ended is None or not least <= ended - begun < most:
            continue
        for each in without:
            made = clock.instant(each.created)
            is_next = not each.deleted and made is not None and made >= ended
            if is_next and _owners(gone) & _owners(each):
                return gone, each
    return None


def _owners(machine: Object) -> set[str]:
    owners = machine.metadata["ownerReferences"].items()
    return {owner["uid"].text or f"{owner['kind'].text}/{owner['name'].text}" for owner in owners}
