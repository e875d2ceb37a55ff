"""What else concerns a drain of a node, without a change of its verdict: pools, time-outs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain import harvester_maintenance
from virt_admit.forecasts.drain.access import awaited_certificates, unavailable_apis
from virt_admit.forecasts.drain.budgets import mutual_drains
from virt_admit.forecasts.drain.budgets.rook import rook_osds
from virt_admit.forecasts.drain.changes import readiness
from virt_admit.forecasts.drain.control import (
    component_states,
    control_path,
    kept_volumes,
    kubevirt_updates,
    machine_twins,
    px_updates,
)
from virt_admit.forecasts.drain.endless import given_time_outs, returning_pods, unasked_vms
from virt_admit.forecasts.drain.external import hosted_strategies
from virt_admit.forecasts.drain.failures import failed_starts
from virt_admit.forecasts.drain.starts import rejected_pods
from virt_admit.forecasts.drain.starts.devices import kept_off_plugins
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.placement import running_launchers, volume_attachments
from virt_admit.forecasts.placement.agents import standing_agents
from virt_admit.forecasts.placement.refusals import dying_claims
from virt_admit.forecasts.placement.starts import priority_classes
from virt_admit.forecasts.remediation import awaited_return
from virt_admit.forecasts.remediation.ends import left_power_offs, stale_verdicts
from virt_admit.model import deschedulers, machine_nodes, machine_pools
from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, cached, gather
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    MACHINE,
    MACHINE_CONFIG_POOL,
    NM,
    NM_KUBEVIRT,
    NODE,
)
from virt_admit.model.kubernetes.nodes import is_control_plane
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.instances.vmis import on_node
from virt_admit.model.kubevirt.settings import removed_operators
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, count, cut_middle, names
from virt_admit.model.node_updates import (
    config_pool_updates,
    cordoners,
    kured,
    maintenance_updates,
    node_phases,
    sriov_drains,
    updaters,
)
from virt_admit.model.node_updates.operators import poolless_nodes
from virt_admit.model.remediation import control_plane, etcd_guard, machine_drain, maintenance
from virt_admit.model.remediation.by_hand import hand_fences

READS: Final[Reads] = union(
    cordoners.READS,
    hand_fences.READS,
    given_time_outs.READS,
    mutual_drains.READS,
    rook_osds.READS,
    harvester_maintenance.READS,
    harvester_maintenance.STOPPED_READS,
    etcd_guard.HOOK_READS,
    component_states.READS,
    failed_starts.READS,
    px_updates.READS,
    kept_off_plugins.READS,
    deschedulers.READS,
    dying_claims.READS,
    poolless_nodes.READS,
    priority_classes.READS,
    returning_pods.READS,
    hosted_strategies.READS,
    unavailable_apis.READS,
    awaited_certificates.READS,
    unasked_vms.READS,
    left_power_offs.READS,
    stale_verdicts.READS,
    standing_agents.READS,
    {
        CAPI_MACHINE: ("spec.clusterName",),
        MACHINE_CONFIG_POOL: (),
        NM: (),
        NM_KUBEVIRT: (),
        NODE: (*CONDITIONS, "status.conditions.lastTransitionTime", "metadata.labels"),
    },
)


def notes(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield the notes about one node, as far as maintenances, pools and APIServices are known."""
    yield from unavailable_apis.notes(cluster)
    yield from awaited_certificates.notes(node.name, cluster)
    yield from _kubevirt_held(node, cluster)
    yield from left_power_offs.notes(node, cluster)
    yield from stale_verdicts.notes(node, cluster)
    if next(iter(gather(on_node(cluster, node.name))[0]), None) is not None:
        yield from control_path.leaves_too(node.name, cluster)
    yield from px_updates.of_node(node.name, cluster)
    yield from standing_agents.notes(node, cluster)
    yield from mutual_drains.faults(node, cluster)
    yield from filter(None, (rook_osds.exposed(cluster).get(node.name),))
    # else nothing reports devices, and that is the cause
    if removed_operators.kubevirt(cluster) is None:
        yield from filter(None, (kept_off_plugins.note(node, cluster),))
    yield from rejected_pods.notes(node, cluster)
    yield from priority_classes.notes(node.name, cluster)
    yield from failed_starts.notes(node, cluster)
    yield from hosted_strategies.notes(node.name, cluster)
    for found in (each for kind in maintenance.KINDS for each in cluster.known(kind)):
        if maintenance.node(found).text == node.name:
            yield from _hanging(found)
    yield from unasked_vms.note(node, cluster)
    yield from _descheduled(node, cluster)
    yield from _shut_down_instead(node, cluster)
    yield from harvester_maintenance.note(node, cluster)
    yield from _left_in_maintenance(node, cluster)
    yield from _not_detached(node, cluster)
    yield from _awaited_elsewhere(node, cluster)
    yield from (claim.warning(cluster) for claim in dying_claims.lost_with(node.name, cluster))
    yield from _needed_by_etcd(node, cluster)
    yield from _locked(node, cluster)
    yield from (each.note for each in machine_twins.of_node(node.name, cluster))
    yield from _held(node, cluster)
    yield from returning_pods.note(node, cluster)
    yield from filter(None, (cluster.cached(time_outs).get(node.name),))
    yield from cluster.cached(_config_pools).get(node.name, ())


def _kubevirt_held(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that an update of KubeVirt does not end. It keeps no node from being drained."""
    if (held := kubevirt_updates.held(cluster)) is not None:
        yield held.note
    elif update := kubevirt_updates.under_way(cluster):
        yield f"{capital(update)} goes on and may move VMs: it is better to wait for its end."
    told = [
        each.note
        for each in component_states.held(cluster)
        if (node.name in each.nodes or each.refused) and not each.silent
    ]
    yield from told
    if not told:
        yield from component_states.leaving(node, cluster)


def _hanging(found: Object) -> Iterator[str]:
    """Yield why a NodeMaintenance has not completed (node-maintenance-operator: api/v1beta1
    NodeMaintenanceStatus).
    """
    status = found["status"]
    pending = [item.text for item in status["pendingPods"].items() if item.text]
    error = " ".join((status["lastError"].text or "").split())
    if status["phase"].text == "Succeeded" or not (pending or error):
        return
    waits = (
        f" waits for {count(len(pending), 'pod')} ({names(pending, 80)})"
        if pending
        else " has not completed"
    )
    if (several := _ENTRIES.fullmatch(error)) is not None:  # a list, which a cut would garble
        first, *more = several[1].split(f", {_ENTRY}")
        error = f"{first}{f' and {count(len(more), _MORE)}' if more else ''}"
    ends = ". It tries again in rounds of 30 seconds" if _ROUND in error else ""
    said = f": {cut_middle(error, 300)}{ends}" if error else ""
    yield f"NodeMaintenance {found.name}{waits}{said}"


_ENTRY: Final = "error when evicting "
_ENTRIES: Final = re.compile(rf"\[({_ENTRY}.*)\]")
"""How kubectl's drain joins the errors of several pods (staging/src/k8s.io/kubectl/pkg/drain/
drain.go#evictPods, an aggregate)."""
_MORE: Final = "more such error"
_ROUND: Final = "global timeout reached: 30s"
"""The end of a round of the operator, which begins the next one at once
(medik8s/node-maintenance-operator:controllers/nodemaintenance_controller.go#DrainerTimeout)."""


def _descheduled(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that a descheduler evicts the VMs of a node that nothing drains."""
    here, _ = gather(on_node(cluster, node.name))
    moved = [vmi for vmi in here if vmi.at("status", "evacuationNodeName").text == node.name]
    if not moved or node.at("spec", "unschedulable").boolean:
        return
    pods = (running_launchers.launchers(cluster).on_node(vmi) for vmi in moved)
    strategies = sorted(
        {deschedulers.evicted(pod, cluster) for pod in pods if pod is not None} - {""}
    )
    why = deschedulers.remedy(cluster)
    if strategies or why:
        by = (
            f"by a descheduler ({names(strategies)})" if strategies else "probably by a descheduler"
        )
        few = "VM of it is" if len(moved) == 1 else "VMs of it are"
        yield f"No drain of this node is under way: {len(moved)} {few} evicted {by}. {why}".rstrip()


def _shut_down_instead(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield which VMs Harvester's maintenance mode shuts down,
    although kubectl drain would migrate them.
    """
    if node.annotation(maintenance_updates.REQUESTED).present:
        return  # then the forecast of each VM says it
    here, _ = gather(on_node(cluster, node.name))
    shut = sorted(vmi.full_name for vmi in here if harvester_maintenance.strategy(vmi))
    if shut:
        yield (
            f"Harvester's maintenance mode of this node shuts {names(shut, 120)} down instead, as "
            f"the label {harvester_maintenance.LABEL} asks."
        )


def _left_in_maintenance(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that Harvester cordons a node again and again:
    to uncordon it does not end its maintenance mode.
    """
    if not node.annotation(maintenance_updates.REQUESTED).present:
        return
    cordoned = node.at("spec", "unschedulable").boolean
    again = maintenance_updates.cordoned_again(node, cluster)
    words = maintenance_updates.way_back(node)
    asked = f"annotation {maintenance_updates.REQUESTED}"
    if cordoned and not again:
        yield (
            f"This node is cordoned since Harvester was asked for its maintenance ({asked}), and "
            "its drain has not ended."
        )
    else:
        shown = f" ({again})" if again else ""
        marked = "" if maintenance_updates.REQUESTED in again else f" ({asked})"
        why = (
            f"Harvester cordons this node again and again{shown}, as it has not recorded the end "
            f"of the drain that was asked for{marked}"
        )
        yield f"{why}. {capital(typed(*words))}"


def _not_detached(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield which volumes do not leave a node: pods that need them elsewhere do not start."""
    for found in volume_attachments.stuck(node.name, cluster):
        since = clock.lasting(found.metadata["deletionTimestamp"].text, cluster)
        name = volume_attachments.volume(found)
        remedy = volume_attachments.detach_remedy(found, cluster)
        error = cut_middle(volume_attachments.detach_error(found), 200)
        yield (
            f"Volume {name or found.name} cannot be detached from this node{since}: {error}. Pods "
            "that need it do not start elsewhere, and Cluster API keeps a Machine until it is "
            f"detached. {capital(remedy)}"
        )


def _awaited_elsewhere(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield which volumes of a node that does not report keep pods of other nodes from starting."""
    for found in volume_attachments.awaited(node.name, cluster):
        on = found.pod.at("spec", "nodeName").text
        yield (
            f"Pod {found.pod.full_name} on {on} does not start: {found.fault.what}. To free it, "
            f"{found.fault.remedy}"
        )
    for left in volume_attachments.left_in_use(node.name, cluster):
        yield f"{capital(left.words(node.name))}. {capital(hand_fences.way(node.name, cluster))}"


def _locked(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that kured reboots a node, or reboots it later, and what waits for that."""
    if node.name in kured.updates(cluster) or node.name in kured.waiting(cluster):
        yield from (f"{each}." for each in kured.words(cluster))


def _needed_by_etcd(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that a control-plane node must not be rebooted after its drain,
    which leaves its static pods alone.
    """
    risk = control_plane.reboot_risk(node.name, cluster)
    if risk is not None:
        remedy = _until_back(node.name, cluster) or risk.remedy
        yield f"{risk.reason}; a drain alone does not stop it. {remedy}"


def _until_back(name: str, cluster: Cluster) -> str:
    """Return that nodes which are being rebooted are to be waited for before the reboot of another
    one; empty: more has to be done.
    """
    back = readiness.awaited_reboots(name, cluster)
    if not back:
        return ""
    wait = f"Wait until {names(back)} {'are' if len(back) > 1 else 'is'} back from the reboot first"
    return typed(wait, kubectl("describe", NODE, back[0]))


class HeldDeletion(NamedTuple):
    """A Machine that is being deleted and waits for hooks, which no time-out ends."""

    machine: Object
    hooks: tuple[str, ...]
    """Each as ``NAME of OWNER``."""
    waits: str
    """``its controller does not drain the node while the pre-drain hook X is set``."""
    why: str
    """How the hook goes away, if that is known."""
    remedy: str
    brief: str = ""
    """The remedy in about 130 characters; empty: there is no short form."""


@cached
def held_deletions(cluster: Cluster) -> Mapping[str, Sequence[HeldDeletion]]:
    """Return for nodes whose Machine is being deleted the hooks for which its controller waits."""
    found: dict[str, list[HeldDeletion]] = {}
    for kind, machine in (
        (each, obj) for each in (CAPI_MACHINE, MACHINE) for obj in cluster.known(each)
    ):
        hooks, last = machine_drain.holding_hooks(machine), machine_drain.terminating_hooks(machine)
        if hooks or last:
            kept = (
                "its node was drained, and it "
                f"stays{clock.lasting(machine_drain.terminate_wait(machine), cluster)}"
            )
            waits, step = (
                ("its controller does not drain the node", "pre-drain")
                if hooks
                else (kept, "pre-terminate")
            )
            several = len(hooks or last) > 1
            which = (
                f"the {step} hook{'s' * several} {names(hooks or last, 120)} "
                f"{'are' if several else 'is'} set"
            )
            see = f"Check the owner of each hook: {about('describe', machine, kind)}"
            end = (None if hooks else machine_twins.rancher_wait(machine, cluster)) or ("", see, "")
            if etcd_guard.is_held(machine):
                end = (*etcd_guard.replacement(machine, cluster), "")
            held = HeldDeletion(machine, hooks or last, f"{waits} while {which}", *end)
            found.setdefault(machine_nodes.emptied_node(machine, cluster), []).append(held)
    return found


def _held(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield why the Machine of a node stays, and what to do: two notes, so that each is short."""
    for held in held_deletions(cluster).get(node.name, ()):
        yield (
            f"Machine {held.machine.full_name} is being deleted, but {held.waits}, and no time-out "
            f"ends this wait. {'' if held.why else held.remedy}"
        ).rstrip()
        if held.why:
            yield f"{held.why}. {held.remedy}"


def time_outs(cluster: Cluster) -> Mapping[str, str]:
    """Return for nodes whose Machine is being deleted what Cluster API does when its drain time-out
    passes.
    """
    found: dict[str, str] = {}
    for machine in cluster.known(CAPI_MACHINE):
        if not machine.deleted:
            continue
        node = machine_nodes.node_name(machine, cluster)
        if kept := kept_volumes.note(machine, node, cluster):
            found[node] = kept
        elif machine_drain.is_drained(machine):
            continue
        elif machine_drain.timeout(machine) is None:
            found[node] = (
                f"Cluster API drains the node for Machine {machine.name} without a limit, as "
                f"{given_time_outs.lack(machine, cluster)}: "
                f"{_drain_waits(machine, cluster) or _KEEP}."
                f"{_IGNORED if node_health.silence_now(node, cluster) else ''}"
                f"{given_time_outs.way(machine, cluster)}"
            )
        elif (end := machine_drain.ends(machine)) is not None:
            after = _after_time_out(machine, node, cluster)
            over = vm_states_times.is_over(end, cluster)
            begin = "The time of Cluster API's" if over else "Cluster API ends the"
            at = vm_states_times.moment(end, clock.now(cluster))
            ends = f"was over at {at}" if over else f"at {at}"
            found[node] = f"{begin} drain for Machine {machine.name} {ends}: {after}."
    return found


def _after_time_out(machine: Object, node: str, cluster: Cluster) -> str:
    detach = machine_drain.detach_timeout(machine)
    own, here = find(cluster, NODE, "", node), gather(on_node(cluster, node))
    if own is not None and is_control_plane(own) and not any(here):
        return "no VM is there, and pods that still run then end with it"
    if detach == 0 or not kept_volumes.may_wait(node, cluster):
        return "VMs that still run then are lost with the node"
    if detach is not None:
        later = clock.duration(timedelta(seconds=detach))
        return f"VMs that still run {later} later are lost with the node, sooner without volumes"
    return (
        "VMs with attached volumes that still run then keep the node waiting without limit, others "
        "are lost with it"
    )


_IGNORED: Final = (
    " It waits for a pod of this silent node that is being deleted until its grace period is over, "
    "before Cluster API 1.7.4 for 5 min more. A nodeDrainTimeout would end its wait."
)
"""machine_controller.go#drainNode: of an unreachable node it skips it then
(SkipWaitForDeleteTimeoutSeconds).
"""


_KEEP: Final = "VMs and pods that cannot leave keep the Machine"


def _drain_waits(machine: Object, cluster: Cluster) -> str:
    """Return for what a Machine says that its drain waits; empty: it does not."""
    words, began = machine_drain.reported(machine)
    since = f" has waited for {age}" if (age := vm_states_times.age(began, cluster)) else " waits"
    return f"by its words it{since}: {machine_drain.brief(words, 200)}" if words else ""


def _config_pools(cluster: Cluster) -> Mapping[str, Sequence[str]]:
    """Return for each node what is to be known of the MachineConfigPools that select it."""
    pools, every = cluster.known(MACHINE_CONFIG_POOL), cluster.known(NODE)
    members = machine_pools.members(pools, every)
    found: dict[str, list[str]] = {}
    for pool, own in members:
        away = filter(node_phases.is_away, own)
        going = {node.name for node in away if cordoners.machine_in_deletion(node, cluster)}
        found |= {node.name: list(_of_pool(pool, own, node, going)) for node in own}
    for overlap in machine_pools.overlaps(pools, every):
        found.setdefault(overlap.node, []).append(f"{overlap.effect}.")
    for name, drain in config_pool_updates.open_drains(cluster).items():
        found[name].append(drain.note)
    for each in poolless_nodes.of_cluster(cluster).values():
        found[each.node.name] = [each.note]
    return found


def not_reporting(cluster: Cluster) -> Iterator[str]:
    """Yield which nodes do not report, so that nothing can update them. Those that are being
    updated may reboot, for a time. Cluster API replaces its nodes instead.
    """
    updates = updaters.of_nodes(cluster)
    for node in cluster.known(NODE):
        silent, update = node_health.silent_for(node.name, cluster), updates.get(node.name)
        reboots = update is not None and update.phase in node_phases.EMPTIED
        reboots = reboots and awaited_return.overdue(node.name, cluster) is None
        reboots = reboots or awaited_return.is_planned(node.name, cluster)
        reboots = reboots or awaited_return.fenced(node.name, cluster)
        reboots = reboots or bool(awaited_return.unread_boot(node.name, cluster))
        if silent and not reboots and machine_nodes.CAPI_OWNER not in node.annotations:
            yield f"node {node.name} {silent}"


def paused_pools(cluster: Cluster) -> Iterator[str]:
    """Yield which MachineConfigPools with nodes are paused."""
    for pool, own in machine_pools.members(cluster.known(MACHINE_CONFIG_POOL), cluster.known(NODE)):
        if own and pool.at("spec", "paused").boolean:
            which = "its node is" if len(own) == 1 else f"its {len(own)} nodes are"
            yield f"{sriov_drains.words(pool, own)}, so {which} not updated"


def _of_pool(pool: Object, own: Sequence[Object], node: Object, going: Set[str]) -> Iterator[str]:
    """Yield what keeps a pool from updating a node. ``going``: those whose Machine is deleted."""
    if pool.at("spec", "paused").boolean:
        yield f"{sriov_drains.words(pool, own)}, so its nodes are not updated."
    if said := config_pool_updates.degraded(pool):
        known = (own_words := config_pool_updates.failure(node)) and own_words in said
        words = "because of this node." if known else f"({cut_middle(said, 300)})."
        yield f"MachineConfigPool {pool.name} is degraded {words}"
    if (unavailable := config_pool_updates.others_unavailable(pool, node)) > 0:
        others = sorted(going - {node.name})
        words = count(unavailable, "unavailable node")
        words += f": {names(others)}, being deleted" * (len(others) == unavailable)
        yield f"MachineConfigPool {pool.name} already has {words}."
