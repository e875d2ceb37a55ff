"""The replacement of nodes by Cluster API: old Machines are drained and deleted,
new ones take their place.

Sources: kubernetes-sigs/cluster-api:core/reconcilers/machine/machine_controller.go#reconcileDelete;
:api/core/v1beta2/machine_types.go#MachineDeletionStatus;
:core/reconcilers/machinedeployment/mdutil/util.go#FindNewMachineSet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple

from virt_admit.model import machine_nodes, machine_pools
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    CAPI_MACHINE_SET,
    MACHINE_DEPLOYMENT,
    NODE,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import grouped
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
    ready = {node.name: node.is_true("Ready") for node in cluster.known(NODE)}
    by_deployment = _by_deployment(cluster)
    for deployment in sorted(cluster.known(MACHINE_DEPLOYMENT), key=lambda found: found.full_name):
        key = deployment.namespace, deployment.name
        yield _pool(deployment, by_deployment.get(key, []), revisions.get(key, {}), ready, cluster)


def machines_of(deployment: Object, cluster: Cluster) -> Sequence[Object]:
    """Return the known Machines of a MachineDeployment, in the order of their names."""
    return _by_deployment(cluster).get((deployment.namespace, deployment.name), ())


@cached
def _by_deployment(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    """Return the Machines of each MachineDeployment by its namespace and name,
    in the order of their names.
    """
    every = sorted(cluster.known(CAPI_MACHINE), key=lambda machine: machine.name)
    return grouped(every, machine_pools.owner_key)


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
    surge = _surge(deployment, cluster)
    if surge is None or surge.unsure:
        return None
    new = {machine.full_name for machine in surge.new}
    waiting = [each for each in machine_starts.overdue(cluster) if each.machine.full_name in new]
    if len(waiting) < len(new) or not all(each.certain for each in waiting):
        return None
    missing = machine_pools.may_be_missing(deployment, len(machines_of(deployment, cluster)))
    return HeldRollout(waiting[0], missing + 1 - surge.spare)


def starting(cluster: Cluster) -> Iterator[str]:
    """Yield which new Machines become Nodes before a roll-out deletes an old one."""
    for deployment in sorted(cluster.known(MACHINE_DEPLOYMENT), key=lambda found: found.full_name):
        surge = _surge(deployment, cluster)
        if surge is not None:
            first = surge.new[0]
            yield (
                f"Machine {first.name} starts{clock.lasts(clock.age(first, cluster))}, and "
                f"MachineDeployment {deployment.name} deletes no old Machine before it is a Node: "
                "times count from then"
            )


class _Surge(NamedTuple):
    """New Machines of a roll-out that deletes no old one before they are Nodes."""

    new: Sequence[Object]
    spare: int
    """How many old ones it could delete now, not above zero."""
    unsure: bool
    """Whether of some Machine it is not known if it is old."""


def _surge(deployment: Object, cluster: Cluster) -> _Surge | None:
    own = machines_of(deployment, cluster)
    revisions = _revisions(cluster).get((deployment.namespace, deployment.name), {})
    new = [machine for machine in own if not machines.node_name(machine)]
    current = [_is_current(machine, revisions) for machine in own]
    spare = len(own) - machine_pools.kept(deployment, len(own) - len(new)) - len(new)
    is_new = all(_is_current(machine, revisions) for machine in new)
    deletes = any(machine.deleted for machine in own)
    if not new or not is_new or False not in current or deletes or spare > 0:
        return None
    return _Surge(new, spare, None in current)


@cached
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
    rolling = is_rolling(deployment, cluster)
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
    for name in () if unknown else _next(deployment, nodes):
        nodes[name] = replace(nodes[name], phase=Phase.NEXT)
    began = node_phases.true_since(machine_drain.condition(deployment, "RollingOut"))
    return PoolUpdate(MACHINE_DEPLOYMENT.kind, deployment.name, nodes, began, rolling, unknown)


def is_rolling(deployment: Object, cluster: Cluster) -> bool:
    """Return whether some Machines of a MachineDeployment are of an older template."""
    revisions = _revisions(cluster).get((deployment.namespace, deployment.name), {})
    own = machines_of(deployment, cluster)
    return _says_so(deployment) or any(_is_current(each, revisions) is False for each in own)


def _says_so(deployment: Object) -> bool:
    """Return whether a MachineDeployment says that some of its Machines are of an older
    template.
    """
    if machine_drain.condition(deployment, "RollingOut")["status"].text == "True":
        return True
    status = deployment["status"]
    every, updated = status["replicas"].integer, status["upToDateReplicas"].integer
    updated = status["updatedReplicas"].integer if updated is None else updated
    return every is not None and updated is not None and updated < every


def _next(deployment: Object, nodes: Mapping[str, NodeUpdate]) -> Sequence[str]:
    """Return the old nodes that are deleted as soon as the roll-out has a place.

    A paused one has none.
    """
    if deployment.at("spec", "paused").boolean:
        return ()
    taken = sum(update.phase in node_phases.IN_FLIGHT for update in nodes.values())
    waiting = [name for name, update in nodes.items() if update.phase is Phase.WAITING]
    return waiting[: max(machine_pools.at_once(deployment, len(nodes)) - taken, 0)]


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
        since = (phase is Phase.UPDATING and _drained(machine)) or _deletion_began(machine)
        return NodeUpdate(kind, name, phase, since, phase is Phase.DRAINING, words)
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


def _drained(machine: Object) -> datetime | None:
    """Return when the last step that empties the node of a Machine has ended; None: not known."""
    steps = map(machine.condition, machine_drain.STEPS)
    ends = (clock.instant(each["lastTransitionTime"].text) for each in steps)
    return max(filter(None, ends), default=None)


def _deletion_began(machine: Object) -> datetime | None:
    started = machine.at("status", "deletion", "nodeDrainStartTime").text
    return clock.instant(started) or clock.instant(machine.metadata["deletionTimestamp"].text)
