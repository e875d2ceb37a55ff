"""Nodes that belong to no pool: what updates them instead,
and which Machines do not become nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

from virt_admit.forecasts.placement.components import stalled_machines
from virt_admit.forecasts.upgrade.pool_obstacles import Obstacle
from virt_admit.model import machine_nodes
from virt_admit.model.commands import about
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE_DEPLOYMENT, NODE
from virt_admit.model.lookups import grouped
from virt_admit.model.machine_pools import DEPLOYMENT
from virt_admit.model.messages import names
from virt_admit.model.node_updates.operators import standing_control_planes
from virt_admit.model.node_updates.operators.poolless_nodes import PoollessNode
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.model.remediation import machine_owners

_BY_PLAIN = "Use --by plain"


def unknown(driver: str, cluster: Cluster, *, of_machines: bool) -> Iterator[str]:
    """Yield why it cannot be determined how the nodes of a cluster are updated,
    where no pool has any.

    ``of_machines``: whether the driver replaces Machines of Cluster API.
    """
    owned = _by_owner(cluster) if of_machines else {}
    if not owned:
        yield f"no node belongs to a pool that {driver} updates. {_BY_PLAIN}"
        return
    for late in stalled_machines.waiting(cluster)[:1]:
        yield f"{late.why}. See: {about('describe', late.machine, CAPI_MACHINE)}"
    which = names(sorted(node for own in owned.values() for node in own))
    only = f"and only {MACHINE_DEPLOYMENT.kind}s are rehearsed"
    yield (
        f"how {which} are updated: their Machines belong to {names(sorted(owned))}, {only}. "
        f"{_BY_PLAIN}"
    )


def of_machine_pools(cluster: Cluster, *, counted: bool) -> Iterator[str]:
    """Yield which nodes the infrastructure provider of a MachinePool replaces.

    Cluster API has no roll-out for them, and drains a Machine only if the provider made one for the
    node (machinepool_controller_phases.go#reconcileMachines). ``counted``: whether the rehearsal
    has these nodes.
    """
    by_pool = grouped(cluster.known(NODE), machine_nodes.machine_pool)
    for pool, own in sorted(
        (each for each in by_pool.items() if each[0]), key=lambda each: each[0]
    ):
        which = names(sorted(node.name for node in own), 80)
        are, them = ("is", "it") if len(own) == 1 else ("are", "them")
        by = f"the infrastructure provider of {machine_nodes.MACHINE_POOL} {pool}"
        decides = f"{by} decides on the order of {which}, and whether it drains {them}"
        yield decides if counted else f"{which} {are} not counted: {by} replaces {them}"


def left_out(found: PoollessNode) -> Obstacle:
    """Return that an upgrade leaves a node out: the operator passes over one without a pool as over
    one of two custom pools (helpers.go#GetNodesForPool).
    """
    cause = ProblemCause.POOL_AMBIGUOUS if found.custom else ProblemCause.POOL_MISSING
    problem = problem_of(cause, found.node)
    return Obstacle(found.reason, found.remedy, problem, node=found.node.name)


def not_rehearsed(cluster: Cluster) -> Iterator[str]:
    """Yield which nodes no MachineDeployment replaces, so that their updates are not counted.

    A roll-out of a control plane leaves its new Machines as they are.
    """
    rolling = _outdated(cluster)
    for owner, own in sorted(_by_owner(cluster).items()):
        if owner.startswith(f"{machine_nodes.MACHINE_POOL} "):
            continue  # of_machine_pools names them
        still = "still " if owner in rolling else ""
        left = rolling.get(owner) or own
        yield (
            f"the nodes of {MACHINE_DEPLOYMENT.kind}s alone: {owner} {still}replaces "
            f"{names(sorted(left), 60)} besides, which is not rehearsed"
        )


def _by_owner(cluster: Cluster) -> dict[str, list[str]]:
    """Return the nodes of this cluster whose Machines belong to no MachineDeployment,
    by the owner of these.
    """
    here = {node.name for node in cluster.known(NODE)}
    found: dict[str, list[str]] = {}
    for machine in cluster.known(CAPI_MACHINE):
        node, owner = machine_nodes.node_name(machine, cluster), machine_owners.title(machine)
        if node in here and owner and DEPLOYMENT not in machine.labels:
            found.setdefault(owner, []).append(node)
    return found


def _outdated(cluster: Cluster) -> dict[str, list[str]]:
    """Return the nodes that a roll-out of a control plane still replaces, by the control plane."""
    owners = {
        (owner.namespace, f"{owner.kind} {owner.name}"): owner
        for kind in standing_control_planes.KINDS
        for owner in cluster.known(kind)
    }
    found: dict[str, list[str]] = {}
    for machine in cluster.known(CAPI_MACHINE):
        title = machine_owners.title(machine)
        owner, node = (
            owners.get((machine.namespace, title)),
            machine_nodes.node_name(machine, cluster),
        )
        if owner is not None and node and standing_control_planes.is_old(machine, owner):
            found.setdefault(title, []).append(node)
    return found
