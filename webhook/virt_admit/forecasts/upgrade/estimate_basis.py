"""What the estimate of an upgrade rests on: limits, durations,
and what nodes and pools leave out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from virt_admit.forecasts.drain.control import kubevirt_updates
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.drain.states.vm_states_kinds import Flag, State
from virt_admit.forecasts.drain.targets import rebuilt_volumes
from virt_admit.forecasts.drain.vm_outcomes import SHUT_DOWN
from virt_admit.forecasts.remediation import awaited_return, hand_reboots, machine_notes
from virt_admit.forecasts.upgrade import drain_waits, rollouts, upgrade_progress
from virt_admit.forecasts.upgrade.drains import undrained_nodes
from virt_admit.forecasts.upgrade.durations import Estimate
from virt_admit.forecasts.upgrade.pools import (
    leaving_machines,
    replacement_times,
    unpooled_nodes,
    upgrade_refusals,
)
from virt_admit.forecasts.upgrade.rollouts import Driver, Pool
from virt_admit.forecasts.upgrade.simulated_world import Start
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubevirt.settings.migration_limits import PER_CLUSTER, PER_NODE
from virt_admit.model.messages import names
from virt_admit.model.node_updates import kured
from virt_admit.model.node_updates.rancher import cpu_manager_jobs
from virt_admit.model.remediation import control_plane


def node_minutes(driver: Driver | None, cluster: Cluster) -> int:
    """Return the minutes that the update of a node takes, unless an administrator says another
    number.
    """
    used = driver or rollouts.default_driver(cluster)
    return replacement_times.node_minutes(cluster, replaced=used is Driver.CLUSTER_API)


def rests_on(
    driver: Driver, start: Start, estimates: Iterable[Estimate], cluster: Cluster
) -> Iterator[str]:
    """Yield each thing that would change the estimate if it were different."""
    left_out = [node for pool in start.pools for node in pool.left_out]
    if left_out:
        yield (
            "nodes that are cordoned or not Ready are not updated before that ends: "
            f"{names(left_out)}"
        )
    measured = dict.fromkeys(estimate.basis for estimate in estimates)
    limits = start.limits
    rows = (row for node in start.plan.nodes for row in node.forecasts)
    if measured and any(row.outcome not in SHUT_DOWN for row in rows):
        yield f"{PER_CLUSTER} {limits.cluster} and {PER_NODE} {limits.node} ({limits.source})"
    replaced = driver is Driver.CLUSTER_API
    yield replacement_times.words(start.reboot // 60, cluster, replaced=replaced)
    if replaced:
        yield from unpooled_nodes.not_rehearsed(cluster)
        yield from leaving_machines.words(cluster)
    if driver is Driver.MACHINE_CONFIG:
        yield from leaving_machines.words_of_openshift(cluster)
    if driver is Driver.PLAIN:
        yield from upgrade_refusals.rests_on(cluster)
        if any(not pool.kind for pool in start.begun):  # else an object tells who is done
            yield from hand_reboots.counted(cluster)
        yield from hand_reboots.newer(
            {node for pool in start.pools for node in pool.nodes}, cluster
        )
    else:
        yield from awaited_return.all_fenced(cluster)
    yield from (f"durations by {each}" for each in measured)
    yield from _copies(start, cluster)
    yield from undrained_nodes.not_drained(driver, start.pools, cluster)
    yield from _without_api(start.pools, cluster)
    yield from upgrade_progress.rests_on(start.begun, cluster)
    if update := kubevirt_updates.under_way(cluster):
        yield f"{update}, which may move VMs too, ends first"
    # the progress says the words
    yield from kured.unmarked(cluster) if start.begun else kured.words(cluster)
    yield from rollouts.rests_on(driver, cluster)
    yield from _machines(driver, cluster)
    yield from rebuilt_volumes.notes(cluster)
    yield from cpu_manager_jobs.rests_on(cluster)
    yield from drain_waits.rests_on(driver, start.pools, cluster)
    yield from drain_waits.awaited(start.plan, start.pools)
    yield from drain_waits.refusals(start.plan, start.begun)
    yield from drain_waits.ending(start.plan)


def _copies(start: Start, cluster: Cluster) -> Iterator[str]:
    """Yield the copies of disks whose limit the longest run takes as their end: it is many hours
    for large disks, however soon they are copied.
    """
    copied = [
        (row.vmi.full_name, row.state.until)
        for node in start.plan.nodes
        for row in node.forecasts
        if start.continued
        and row.state.state is State.RUNNING
        and Flag.COPYING in row.state.flags
        and row.state.until is not None
        and row.outcome not in SHUT_DOWN
    ]
    if copied:
        current = clock.now(cluster)  # who asks for it is asked again all the time
        limits = (
            f"{name} until {vm_states_times.moment(until, current)}" for name, until in copied
        )
        yield f"the longest run takes the limits of copies of disks: {names(sorted(limits))}"


def _machines(driver: Driver, cluster: Cluster) -> Iterator[str]:
    if driver is Driver.CLUSTER_API:
        yield from machine_notes.of_cluster_api(cluster)
    elif driver is Driver.MACHINE_CONFIG:
        yield from machine_notes.of_openshift(cluster)


def _without_api(pools: Sequence[Pool], cluster: Cluster) -> Iterator[str]:
    """Yield that the API does not answer while a control-plane node is rebooted: one or two have no
    majority without it.
    """
    members = control_plane.members(cluster)
    rebooted = sorted(members.keys() & {node for pool in pools for node in pool.to_do})
    if rebooted and len(members) - 1 < control_plane.majority(len(members)):
        every = f"each reboot of {names(rebooted)}, of {len(members)} control-plane nodes"
        only = f"the reboot of {names(rebooted)}, the only control-plane node"
        yield f"the API answers again after {only if len(members) == 1 else every}"
