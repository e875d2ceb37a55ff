"""The replacement of nodes by Cluster API: old Machines are drained and deleted,
new ones take their place.

Sources: kubernetes-sigs/cluster-api:core/reconcilers/machine/machine_controller.go#reconcileDelete;
:api/core/v1beta2/machine_types.go#MachineDeletionStatus;
:core/reconcilers/machinedeployment/mdutil/util.go#FindNewMachineSet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from virt_admit.model import machine_nodes, machine_pools
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    CAPI_MACHINE_SET,
    MACHINE_DEPLOYMENT,
    NODE,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.node_updates import node_phases
from virt_admit.model.node_updates.node_phases import NodeUpdate, Phase, PoolUpdate
from virt_admit.model.remediation import machine_drain, machine_starts, machines
from virt_admit.model.remediation.machine_starts import OverdueMachine

_REVISION: Final = "machinedeployment.clusters.x-k8s.io/revision"

READS: Final[Reads] = union(
    machine_starts.READS,
    {
        MACHINE_DEPLOYMENT: (),
        CAPI_MACHINE: ("status.deletion",),
        CAPI_MACHINE_SET: ("metadata.labels", f"metadata.annotations.{_REVISION}"),
        NODE: CONDITIONS,
    },
)
"""The fields that say how far the replacement of a node is."""


def pools(cluster: Cluster) -> Iterator[PoolUpdate]:
    """Yield the roll-out of each MachineDeployment, as far as its Machines are known."""
    revisions = _revisions(cluster)
    ready = {
        node.name: node.condition("Ready")["status"].text == "True" for node in cluster.known(NODE)
    }
    by_deployment = _by_deployment(cluster)
    for deployment in sorted(cluster.known(MACHINE_DEPLOYMENT), key=lambda found: found.full_name):
        key = deployment.namespace, deployment.name
        yield _pool(deployment, by_deployment.get(key, []), revisions.get(key, {}), ready, cluster)


def _by_deployment(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    """Return the Machines of each MachineDeployment by its namespace and name,
    in the order of their names.
    """
    found: dict[tuple[str, str], list[Object]] = {}
    for machine in sorted(cluster.known(CAPI_MACHINE), key=lambda machine: machine.name):
        found.setdefault(machine_pools.owner_key(machine), []).append(machine)
    return found


class HeldRollout(NamedTuple):
    """A roll-out that deletes no old Machine before a new one is available."""

    waits_for: OverdueMachine
    unavailable: int
    """The ``maxUnavailable`` with which it would delete one."""


def held(deployment: Object, cluster: Cluster) -> HeldRollout | None:
    """Return why a roll-out does not go on by itself. None: it does, or that is not certain.

    Of all Machines as many are kept as have to be available, and the new ones that are not
    available (…/machinedeployment_rollout_rollingupdate.go#reconcileOldMachineSetsRollingUpdate).
    """
    key = deployment.namespace, deployment.name
    own, revisions = _by_deployment(cluster).get(key, ()), _revisions(cluster).get(key, {})
    starting = {machine.full_name: machine for machine in own if not machines.node_name(machine)}
    waiting = [
        each for each in machine_starts.overdue(cluster) if each.machine.full_name in starting
    ]
    current = [_is_current(machine, revisions) for machine in own]
    certain = (
        None not in current and False in current and not any(machine.deleted for machine in own)
    )
    is_new = all(_is_current(machine, revisions) for machine in starting.values())
    if (
        not waiting
        or len(waiting) < len(starting)
        or not all(each.certain for each in waiting)
        or not certain
        or not is_new
    ):
        return None
    spare = len(own) - machine_pools.kept(deployment, len(own) - len(starting)) - len(waiting)
    return (
        HeldRollout(waiting[0], machine_pools.may_be_missing(deployment, len(own)) + 1 - spare)
        if spare <= 0
        else None
    )


def _revisions(cluster: Cluster) -> Mapping[tuple[str, str], Mapping[str, int]]:
    """Return the revision of each MachineSet, by namespace and name of its MachineDeployment."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for each in cluster.known(CAPI_MACHINE_SET):
        text = each.annotations.get(_REVISION, "")
        revision = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        found.setdefault(machine_pools.owner_key(each), {})[each.name] = revision
    return found


def _pool(
    deployment: Object,
    own: Sequence[Object],
    revisions: Mapping[str, int],
    ready: Mapping[str, bool],
    cluster: Cluster,
) -> PoolUpdate:
    """Return a roll-out.

    A management cluster has the Machines of other clusters, whose nodes are not known here.
    """
    current = {machine.name: _is_current(machine, revisions) for machine in own}
    rolling = _is_rolling(deployment) or False in current.values()
    nodes: dict[str, NodeUpdate] = {}
    for machine in own:
        node = machine_nodes.node_name(machine, cluster)
        if node in ready:
            waits = rolling and not ready[node]  # else it failed later
            known = current[machine.name]
            nodes[node] = _update(
                machine, deployment, not rolling if known is None else known, waits
            )
    unknown = rolling and None in current.values()
    chosen = frozenset() if unknown else _next(deployment, nodes)
    nodes = {name: _chosen(update) if name in chosen else update for name, update in nodes.items()}
    condition = machine_drain.condition(deployment, "RollingOut")
    began = (
        clock.instant(condition["lastTransitionTime"].text)
        if condition["status"].text == "True"
        else None
    )
    return PoolUpdate(MACHINE_DEPLOYMENT.kind, deployment.name, nodes, began, rolling, unknown)


def _is_rolling(deployment: Object) -> bool:
    """Return whether a MachineDeployment says that some of its Machines are of an older
    template.
    """
    if machine_drain.condition(deployment, "RollingOut")["status"].text == "True":
        return True
    status = deployment["status"]
    every, updated = status["replicas"].integer, status["upToDateReplicas"].integer
    updated = status["updatedReplicas"].integer if updated is None else updated
    return every is not None and updated is not None and updated < every


def _chosen(update: NodeUpdate) -> NodeUpdate:
    return NodeUpdate(update.kind, update.name, Phase.NEXT)


def _next(deployment: Object, nodes: Mapping[str, NodeUpdate]) -> frozenset[str]:
    """Return the old nodes that are deleted as soon as the roll-out has a place.

    A paused one has none.
    """
    if deployment.at("spec", "paused").boolean:
        return frozenset()
    taken = sum(update.phase in node_phases.IN_FLIGHT for update in nodes.values())
    waiting = [name for name, update in nodes.items() if update.phase is Phase.WAITING]
    return frozenset(waiting[: max(machine_pools.at_once(deployment, len(nodes)) - taken, 0)])


def _is_current(machine: Object, revisions: Mapping[str, int]) -> bool | None:
    """Return whether a Machine is made from the newest template; None: nothing says so."""
    said = machine_drain.condition(machine, "UpToDate")["status"].text
    if said in ("True", "False"):
        return said == "True"
    owners = [owner["name"].text or "" for owner in machine.metadata["ownerReferences"].items()]
    own = max((revisions[name] for name in owners if name in revisions), default=None)
    return None if own is None else own == max(revisions.values())


def _update(machine: Object, deployment: Object, current: bool, waits: bool) -> NodeUpdate:
    kind, name = MACHINE_DEPLOYMENT.kind, deployment.name
    if machine.deleted:
        phase, words = _deletion(machine)
        return NodeUpdate(
            kind, name, phase, _deletion_began(machine), phase is Phase.DRAINING, words
        )
    if not current:
        return NodeUpdate(kind, name, Phase.WAITING)
    return NodeUpdate(kind, name, Phase.RETURNING if waits else Phase.DONE)


def _deletion(machine: Object) -> tuple[Phase, str]:
    """Return how far the deletion of a Machine is, and the words of its controller."""
    phase = Phase.UPDATING if machine_drain.is_drained(machine) else Phase.DRAINING
    deleting = machine_drain.condition(machine, "Deleting")
    steps = (machine.condition(step) for step in machine_drain.STEPS)
    step = (
        deleting
        if deleting.present
        else next((each for each in steps if each["status"].text == "False"), deleting)
    )
    return phase, ": ".join(filter(None, (step["reason"].text, step["message"].text)))


def _deletion_began(machine: Object) -> datetime | None:
    started = machine.at("status", "deletion", "nodeDrainStartTime").text
    return clock.instant(started) or clock.instant(machine.metadata["deletionTimestamp"].text)
