"""Why the drain of a VM that can migrate may fail all the same, where objects do not decide it."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain import typed_remedies
from virt_admit.forecasts.drain.failed_migrations import remedies
from virt_admit.forecasts.drain.failures import failed_starts
from virt_admit.forecasts.drain.guests import paused_guests
from virt_admit.forecasts.drain.states import vm_states_outcomes, vm_states_times
from virt_admit.forecasts.drain.states.vm_states_kinds import Flag, State, VmState
from virt_admit.forecasts.drain.targets import awaited_volumes, rebuilt_volumes, rejected_targets
from virt_admit.forecasts.placement import (
    candidates,
    no_target,
    pod_networks,
    pod_security,
    preemption_effects,
    start_doubts,
    virt_handlers,
)
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.components import left_taints, unattached_networks
from virt_admit.forecasts.placement.components.drivers import (
    drbd_protocols,
    driver_faults,
    offline_satellites,
    refusing_storage,
)
from virt_admit.forecasts.placement.components.linstor import lost_quorums
from virt_admit.forecasts.placement.refusals import (
    contrary_demands,
    refused_managers,
    static_cpus,
    unserved_nodes,
)
from virt_admit.forecasts.remediation import awaited_return
from virt_admit.model.commands import about, typed, virtctl
from virt_admit.model.kubernetes import clock, node_health, nodes
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, MIGRATION_POLICY
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import (
    migration_failures,
    migration_timeouts,
    node_local_volumes,
    vms,
)
from virt_admit.model.kubevirt.launcher import hotplugs, launcher_pod
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Feature
from virt_admit.model.problems import Problem, ProblemCause

READS: Final = union(
    virt_handlers.READS,
    pod_security.READS,
    start_doubts.READS,
    refused_managers.READS,
    node_health.READS,
    unattached_networks.READS,
    left_taints.READS,
    lost_quorums.READS,
    offline_satellites.READS,
    drbd_protocols.READS,
    failed_starts.READS,
    rebuilt_volumes.READS,
    rejected_targets.READS,
    static_cpus.READS,
    contrary_demands.READS,
    hotplugs.DISK_READS,
    {CEPH_CLUSTER: ("metadata.ownerReferences", "status.ceph")},
)


def doubt(vmi: Object, target: SchedulingTarget, cluster: Cluster) -> Problem | None:
    """Return why a migration that KubeVirt starts may fail, where objects do not decide it; None:
    no doubt.
    """
    if paused := paused_guests.doubt(vmi, cluster):
        return paused
    spec, namespace = vmi["spec"], vms.namespace_of(vmi)
    claims = launcher_pod.all_claims(spec)
    if waits := refusing_storage.doubt(namespace, claims, cluster):
        return waits
    if leader := no_target.leader(vmi, target, cluster):
        reason = (
            f"its pod affinity demands pod {leader}, which leaves "
            f"{vmi.at('status', 'nodeName').text} as well"
        )
        remedy = "wait until that pod runs elsewhere: the VM then follows it if there is room"
        return Problem(reason, remedy, ProblemCause.NO_TARGET)
    if rejected := rejected_targets.doubt(vmi, target, cluster):
        return rejected
    if without := unattached_networks.doubt(vmi, cluster):
        return without
    if unattached := awaited_volumes.doubt(vmi, cluster):
        return unattached
    if failing := failed_starts.doubt(vmi, target, cluster):
        return failing
    if refused := _refused(vmi, cluster):
        return refused
    failed = migration_failures.without_post_copy(cluster)
    if failed and migration_timeouts.may_post_copy(vmi, cluster):
        reason = (
            "it may switch to post-copy, for which the nodes forbid userfaultfd: the migration of "
            f"{failed} failed"
        )
        return Problem(reason, remedies.POST_COPY_REMEDY, ProblemCause.MIGRATION_FAILS)
    here = vmi.at("status", "nodeName").text or ""
    node = candidates.scheduler(cluster).state.nodes.get(here)
    served = node is None or node.labels.get(SCHEDULABLE) != "false"
    if not served and (unserved := _unserved(here, cluster)):
        return unserved
    # its virt-handler sends the memory over this network
    if cut_off := pod_networks.doubt(cluster, here):
        return Problem(cut_off, pod_networks.remedy(cluster, here))
    return _of_disks(vmi, cluster) or _slower_than_its_deadline(vmi, cluster)


def _unserved(node: str, cluster: Cluster) -> Problem | None:
    """Return that the virt-handler of a node has taken its label away; None: it still sends the
    memory of VMs, or it is only being replaced: its end sets the label to false, its first
    heartbeat to true (kubevirt/kubevirt:pkg/virt-handler/heartbeat/heartbeat.go#Run).
    """
    if unserved_nodes.is_unregistered(node, cluster) or virt_handlers.is_replaced(cluster, node):
        return None
    lost = node_health.silence_now(node, cluster)
    wait = "wait for virt-handler, which sends the VM's memory, or repair it"
    repair = virt_handlers.repair(cluster, node) or wait
    return Problem(
        virt_handlers.problem(cluster, node) or f"virt-handler on {node} is not ready",
        awaited_return.advice(node, cluster) if lost else repair,
    )


def _refused(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why the API server may refuse its next pod, with the command."""
    found = pod_security.doubt(vmi, cluster)
    way = typed_remedies.edit_configuration(cluster) if found is not None else ""
    return found and found._replace(remedy=typed(found.remedy, way))


def _of_disks(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why a migration may fail by its disks; None: no doubt."""
    spec, namespace = vmi["spec"], vms.namespace_of(vmi)
    claims = launcher_pod.all_claims(spec)
    if shared := node_local_volumes.host_path_claim(namespace, claims, cluster):
        reason = f"claim {shared} is a hostPath volume: the other nodes may not have its data"
        down = typed(typed_remedies.SHUT_DOWN, typed_remedies.shut_down_by_drains(vmi, "None"))
        return Problem(reason, f"move claim {shared} to shared storage; or {down}")
    here = vmi.at("status", "nodeName").text or ""
    return offline_satellites.doubt(here, namespace, claims, cluster) or drbd_protocols.doubt(
        namespace, claims, cluster
    )


def side_effect(vmi: Object, state: VmState, cluster: Cluster) -> Problem | None:
    """Return what a drain that ends may do to the disks of a guest that migrates; None: nothing, or
    its drain has begun, which evicts the other pods at once.

    The pod that attaches them may be evicted before the guest has left, which then pauses at an
    error (kubevirt/kubevirt#13523).
    """
    if versions.has_release(cluster, Feature.ATTACHMENTS_PROTECTED.since):
        return None
    moves = state.state not in vm_states_outcomes.NO_RULING
    leaves = Flag.FOREIGN in state.flags and Flag.ARRIVING not in state.flags
    if moves and (not leaves or state.state in _LEFT):
        return None
    absent, namespace = hotplugs.absent_claims(vmi), vms.namespace_of(vmi)
    attached = (each for each in launcher_pod.attached_claims(vmi["spec"]) if each not in absent)
    risky = (each for each in attached if not hotplugs.is_kept_open(namespace, each, cluster))
    claim = next(risky, "")
    if not claim:
        return None
    reason = (
        f"nothing keeps the pod that attaches {claim}: its eviction may detach disks of the "
        "running guest, which then pauses at an I/O error"
    )
    if nodes.has_harvester(cluster):
        reason += " (an upgrade of Harvester evicts it only once the VM has left)"
    if moves:
        return Problem(reason, "start the drain once its migration has ended")
    command = virtctl("migrate", vmi.name, namespace)
    return Problem(reason, typed("migrate the VM before the drain", command))


_LEFT: Final = (State.POST_COPY, State.ARRIVED, State.NOT_CLOSED, State.DECENTRALIZED)
"""States of a migration in which the guest needs the disks of its old node no more, or may."""


def of_target(target: SchedulingTarget, cluster: Cluster) -> Problem | None:
    """Return why it cannot be determined whether a pod starts elsewhere; None:
    by what is known of the nodes, it does.
    """

    def takes(node: str) -> bool:
        # and nothing else refuses it
        return (target.placement.judged.get(node) or "").startswith(pod_networks.BROKEN)

    pod, placement = target.pod, target.placement
    return (
        preemption_effects.problem(target, cluster)
        or start_doubts.network(takes, cluster)
        or start_doubts.reach(target, cluster)
        or start_doubts.drivers(placement.judged, pod.namespace, pod.claims, cluster)
        or start_doubts.plugins(target, cluster)
        or refused_managers.doubt(pod.namespace, pod.claims, placement.candidates, cluster)
        or driver_faults.doubt(pod.namespace, pod.claims, cluster)
    )


def of_restart(vmi: Object, target: SchedulingTarget, cluster: Cluster) -> Problem | None:
    """Return the same of a VM that is shut down, whose volumes have to leave its node first."""
    here = vmi.at("status", "nodeName").text or ""
    stay = start_doubts.volumes(here, target.pod.namespace, target.pod.claims, cluster)
    return (
        of_target(target, cluster)
        or unattached_networks.doubt(vmi, cluster)
        or failed_starts.doubt(vmi, target, cluster)
        or _refused(vmi, cluster)
        or stay
    )


def _slower_than_its_deadline(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return that the bandwidth limit copies less than the deadline demands;
    memory that is zero is not copied.
    """
    found = migration_timeouts.settings(vmi, vmi["-"], cluster)
    limit = migration_timeouts.seconds(vmi, found, cluster)
    if found is None or limit is None or not found.bandwidth or found.ends_at_deadline:
        return None
    needed = migration_timeouts.size(vmi) / max(found.bandwidth, migration_timeouts.SLOWEST)
    if needed <= limit or vm_states_times.last_duration(vmi, cluster) is not None:
        return None
    copied, deadline = (
        duration(timedelta(seconds=min(each, clock.LONGEST))) for each in (needed, limit)
    )
    reason = (
        f"its memory takes {copied} with bandwidthPerMigration, and KubeVirt cancels a migration "
        f"after {deadline}"
    )
    remedy = "raise bandwidthPerMigration or completionTimeoutPerGiB"
    policy = migration_timeouts.policy(vmi, cluster)
    if policy is None or not any(
        policy["spec"][key].present for key in ("bandwidthPerMigration", "completionTimeoutPerGiB")
    ):
        return Problem(
            reason,
            typed(remedy, typed_remedies.edit_configuration(cluster)),
            ProblemCause.TIMES_OUT,
        )
    edit = about("edit", policy, MIGRATION_POLICY)
    return Problem(
        f"{reason} (MigrationPolicy {policy.name})", typed(remedy, edit), ProblemCause.TIMES_OUT
    )
