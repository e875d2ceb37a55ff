"""Pods that a migration needs on its target node, and that do not come: refused, not started,
or not ready.

A pod that KubeVirt gives up and creates again meets the same cause again, so such a wait has no
known end. Sources:
kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go#handlePendingPodTimeout
#createTargetAttachmentPod; :cmd/virt-launcher/virt-launcher.go#waitForDomainUUID.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Final

from virt_admit.forecasts.drain.failed_migrations import shortened_state
from virt_admit.forecasts.drain.states import vm_states_motion, vm_states_times
from virt_admit.forecasts.drain.states.vm_states_kinds import Ruling, State, StateEffect, VmState
from virt_admit.forecasts.drain.states.vm_states_times import lasting, moment
from virt_admit.forecasts.placement import candidates, quotas, running_launchers, start_doubts
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.components import (
    missing_networks,
    unpullable_images,
    webhook_deadlocks,
)
from virt_admit.forecasts.placement.components.webhook_deadlocks import RefusedPods
from virt_admit.forecasts.placement.refusals import (
    exceeded_quotas,
    grown_launchers,
    overcommitted_memory,
)
from virt_admit.forecasts.placement.starts import ovn_ports, pod_starts, volume_starts
from virt_admit.model.commands import argument, kubectl, shell, typed, virtctl
from virt_admit.model.evidence.writes import admission_policies
from virt_admit.model.evidence.writes.admission_policies import AdmissionPolicy
from virt_admit.model.kubernetes import clock, events
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import POD, RESOURCE_QUOTA, VM, VMI, Kind
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migration_failures, migrations, networks, vms
from virt_admit.model.kubevirt.launcher import lost_surcharges, pod_refusals
from virt_admit.model.kubevirt.launcher.launcher_pod import is_hotplugged
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.messages import command_of, cut_middle, names, scheduler_words
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.pod_placement import Placement

LAUNCHER_TIMEOUT: Final = timedelta(minutes=6)
"""virt-launcher of a target pod gives up 240 to 359 s after its start (``--launcher-qemu-timeout``
plus chance).
"""


def not_created(
    vmi: Object, found: VmState, reason: str, cluster: Cluster, kind: Kind = POD
) -> Ruling:
    """Return what it means that KubeVirt did not create an object:
    it tells the cause in an event alone.
    """
    described = kubectl("describe", VMI, vmi.name, vms.namespace_of(vmi))
    said = events.last_warning(vmi, "FailedCreate", found.since, cluster)
    if not said and (network := networks.missing(vmi, cluster)):
        lost = missing_networks.problem(network, "target pod")
        return Ruling(
            StateEffect.BLOCKS,
            f"{reason}: {lost.reason}",
            lost.remedy,
            ProblemCause.NETWORK_MISSING,
        )
    if not said and (refused := _refused(vmi, cluster)) is not None:
        why = f"{reason}: {refused.reason}"
        return Ruling(StateEffect.BLOCKS, why, refused.remedy, ProblemCause.NOT_CREATED)
    if not said and (denied := _denied(vmi, found, kind, cluster)) is not None:
        covers = f"{denied.title} covers {kind.plural} in {vms.namespace_of(vmi)}"
        look = f"see the log of virt-controller, and if this denies them, {denied.order}"
        return Ruling(
            StateEffect.UNKNOWN,
            f"{reason}; {covers}, so it may deny them",
            typed(look, denied.command),
        )
    if not said and (cut := shortened_state.problem(vmi, cluster)) is not None:
        why = f"{reason}: {cut.reason}"
        return Ruling(StateEffect.BLOCKS, why, cut.remedy, ProblemCause.MIGRATION_FAILS)
    if not said:
        look = typed("look at the events of the VMI", described)
        return Ruling(StateEffect.UNKNOWN, f"{reason}; the cause cannot be determined", look)
    if (exceeded := _exceeded(vmi, reason, said, cluster)) is not None:
        return exceeded
    if (divided := overcommitted_memory.of(vmi, said, cluster)) is not None:
        why = f"{reason}: {divided.reason}"
        return Ruling(StateEffect.BLOCKS, why, divided.remedy, ProblemCause.NOT_CREATED)
    remedy = pod_refusals.remedy(vmi, said, cluster) or typed("correct what this names", described)
    return Ruling(
        StateEffect.BLOCKS, f"{reason}: {cut_middle(said, 200)}", remedy, ProblemCause.NOT_CREATED
    )


def quota(vmi: Object, found: VmState, cluster: Cluster) -> Ruling:
    """Return what the quota lacks that refuses the target pod of a migration."""
    reason = "a quota refuses its second pod"
    said = events.last_warning(vmi, "FailedCreate", found.since, cluster)
    if (exceeded := _exceeded(vmi, reason, said, cluster, found.migration)) is not None:
        return exceeded
    words = f"{reason}: {scheduler_words(found.detail, 200)}" if found.detail else reason
    shown = kubectl("get", RESOURCE_QUOTA, "", vms.namespace_of(vmi), "-o", "yaml")
    return Ruling(StateEffect.BLOCKS, words, typed("raise the quota", shown), ProblemCause.QUOTA)


def _exceeded(
    vmi: Object, reason: str, said: str, cluster: Cluster, migration: Object | None = None
) -> Ruling | None:
    """Return what a quota lacks that refuses the pod; None: none does.

    KubeVirt tries again after each change of a quota
    (watch/migration/migration.go#updateResourceQuota), but another limit may refuse the pod then.
    """
    found = exceeded_quotas.of(said, vms.namespace_of(vmi), cluster=cluster)
    if found is None:
        return None
    if found.fits:
        look = kubectl("describe", VMI, vmi.name, vms.namespace_of(vmi))
        why = f"{reason}: {found.refusal}; it has room by now, and KubeVirt tries again by itself"
        return Ruling(StateEffect.UNKNOWN, why, typed("see whether that succeeds", look))
    lost = lost_surcharges.of(vmi, found.quota, cluster)
    other = lost or grown_launchers.of(vmi, migration, found, cluster)
    why = f"{reason}: {found.refusal}{found.alone}{other.reason if other is not None else ''}"
    remedy = other.remedy if other is not None else found.remedy
    if found.quota is not None and not command_of(remedy):  # Rancher or a tool writes it
        shown = kubectl("describe", RESOURCE_QUOTA, found.quota.name, found.quota.namespace)
        remedy = typed(remedy, shown)
    return Ruling(StateEffect.BLOCKS, why, remedy, ProblemCause.QUOTA)


def _denied(vmi: Object, found: VmState, kind: Kind, cluster: Cluster) -> AdmissionPolicy | None:
    """Return a policy that may deny migrations; None: none is known. Many policies are of pods."""
    if kind is POD:
        return None
    return admission_policies.denying(kind, vms.namespace_of(vmi), "", found.since, cluster)


def _refused(vmi: Object, cluster: Cluster) -> RefusedPods | None:
    """Return the webhooks that refuse each new pod of a VMI, also where the event is gone."""
    pod = running_launchers.launchers(cluster).on_node(vmi)
    labels = pod.labels if pod is not None else None
    return webhook_deadlocks.of_namespace(vms.namespace_of(vmi), labels, cluster)


def on_its_own_node(vmi: Object, found: VmState, cluster: Cluster) -> Ruling | None:
    """Return that a migration cannot succeed, as its target pod is on the node of its guest; None:
    it is elsewhere.

    A target pod has a required anti-affinity against its source pod, which this scheduler ignores
    (kubevirt/kubevirt#18946; services/rendermanifests.go, PodAntiAffinity by
    kubernetes.io/hostname). KubeVirt gives such a migration up after 5 minutes.
    """
    target, here = _target(found, cluster), vmi.at("status", "nodeName").text
    if (
        found.state not in _BEFORE_COPY
        or target is None
        or not here
        or target.at("spec", "nodeName").text != here
    ):
        return None
    own = vm_states_motion.pods(vmi, cluster)
    sources = (
        pod for pod in own if pod.name != target.name and pod.at("spec", "nodeName").text == here
    )
    # the VMI was read later, and the guest has moved there
    if not any(map(vm_states_motion.lives, sources)):
        return None
    name = found.migration.name if found.migration is not None else "its migration"
    scheduler = vmi.at("spec", "schedulerName").text or "default-scheduler"
    reason = (
        f"{name} cannot succeed: its target pod {target.name} is on {here}, where the VM runs. "
        f"Scheduler {scheduler} put it there, against its required anti-affinity to the source pod"
    )
    return Ruling(
        StateEffect.BLOCKS, reason, own_node_remedy(vmi, scheduler), ProblemCause.MIGRATION_FAILS
    )


_BEFORE_COPY: Final = (State.TARGET_PENDING, State.TARGET_NOT_READY, State.PREPARING)


def own_node_remedy(vmi: Object, scheduler: str) -> str:
    """Return what makes a scheduler put the target pod of a VMI on another node,
    then migrate again.
    """
    enable = f"enable the plugin InterPodAffinity in scheduler {scheduler}"
    if scheduler == "default-scheduler":
        return (
            f"{enable}, see that the label kubernetes.io/hostname of each node is its own, then "
            "migrate again"
        )
    other = typed(
        "or remove schedulerName from the VM, which takes effect at its next start",
        kubectl("edit", VM, vmi.name, vms.namespace_of(vmi)),
    )
    return f"{enable}; {other}; then migrate again"


def no_target(vmi: Object, found: VmState, cluster: Cluster) -> Ruling:
    """Return what it means that KubeVirt has not created the target pod: a LimitRange or a quota
    explains what it says.
    """
    ruled = not_created(
        vmi,
        found,
        f"KubeVirt has not created its target pod {lasting(found.since, cluster)}",
        cluster,
    )
    try:
        refused = quotas.refusal(vmi, cluster)
    except Unseen:
        refused = None
    if refused is None or ruled.effect is StateEffect.UNKNOWN or ruled.cause is ProblemCause.QUOTA:
        return ruled
    remedy = typed(refused.remedy, refused.command) if refused.command else refused.remedy
    return ruled._replace(reason=f"{ruled.reason} ({refused.reason})", remedy=remedy)


def end(found: VmState, cluster: Cluster) -> str:
    """Return when KubeVirt gives a migration up. It repeats those of a drain or an update alone."""
    at = f" at {moment(found.until, clock.now(cluster))}" if found.until else ""
    if vm_states_times.is_over(found.until, cluster):
        return f"; its time was over{at}"
    automatic = found.migration is None or migrations.is_automatic(found.migration)
    again = "then repeats it" if automatic else "and does not repeat it"
    return f"; KubeVirt gives the migration up{at}, {again}"


def pending(vmi: Object, found: VmState, cluster: Cluster) -> Ruling:
    """Return what it means that the target pod has a node and has not started."""
    until = end(found, cluster) if found.until else ""
    reason = f"its target pod{on(found)} has not started {lasting(found.since, cluster)}"
    pod = _target(found, cluster)
    due = found.until or (found.since and found.since + migrations.PENDING_TIMEOUT)
    late = vm_states_times.is_older(due, vm_states_times.OVERDUE, cluster)
    ruled = _started_late(vmi, replace(found, late=late), pod, reason, until, cluster)
    before = _given_up(vmi, cluster) if ruled.effect is StateEffect.UNKNOWN else 0
    half = vm_states_times.is_older(found.since, migrations.PENDING_TIMEOUT / 2, cluster)
    if not before or not (half or before + 1 >= migrations.RETRY_LOOP):
        return ruled
    last = "migration was" if before == 1 else f"{before} migrations were"
    limit = duration(migrations.PENDING_TIMEOUT)
    again = f"; its last {last} given up after {limit} too, so will the next"
    return Ruling(
        StateEffect.BLOCKS, f"{ruled.reason}{again}", ruled.remedy, ProblemCause.MIGRATION_FAILS
    )


def _given_up(vmi: Object, cluster: Cluster) -> int:
    """Return how many of the newest automatic migrations in a row failed because a placed target
    pod did not start.

    KubeVirt waits longer for it than for one that no node takes, so the time tells them apart. The
    next one is made soon after its end.
    """
    number = 0
    every = migrations.of_vmi(vmi, cluster)
    later = {each.name: then.created for each, then in pairwise(every)}
    for migration in reversed(migrations.failed_in_a_row(vmi, cluster)):
        begin = clock.instant(migration.created)
        end = clock.instant(migrations.entered(migration, "Failed") or later.get(migration.name))
        waited = begin is not None and end is not None and end - begin >= migrations.PENDING_TIMEOUT
        if not waited or not migration_failures.failed_before_handover(migration):
            break
        number += 1
    return number


def in_brief(found: VmState, cluster: Cluster) -> str:
    """Return what keeps a target pod from starting that has a node, without the words of the
    kubelet where an object tells the cause; empty: nothing says so.
    """
    pod = _target(found, cluster) if found.state is State.TARGET_PENDING else None
    fault = pod_starts.fault(pod, cluster) if pod is not None else None
    if fault is None:
        return ""
    lasts = lasting(found.since, cluster)
    return f"its target pod{on(found)} has not started {lasts}: {fault.brief}"


def not_ready(vmi: Object, found: VmState, cluster: Cluster) -> Ruling:
    """Return what it means that the target pod runs,
    but it or the pod that attaches its volumes is not ready.
    """
    lasts = lasting(found.since, cluster)
    target = _target(found, cluster)
    if target is None or not target.is_true("Ready"):
        reason = f"its target pod{on(found)} has not been ready {lasts}"
        return _started_late(vmi, found, target, reason, "", cluster)
    motion = vm_states_motion.motion(cluster)
    attaching = motion.attachments.get(target.metadata["uid"].text or "-", ())
    if attaching or not motion.pods_complete:
        waiting = next((pod for pod in attaching if pod.full_name == found.detail), None)
        reason = f"the pod that attaches its volumes{on(found)} has not been ready {lasts}"
        return _started_late(vmi, found, waiting, reason, "", cluster)
    reason = f"KubeVirt has not created the pod that attaches its volumes{on(found)} {lasts}"
    ruled = not_created(vmi, found, reason, cluster)
    if ruled.effect is StateEffect.UNKNOWN and not found.late:
        return Ruling(StateEffect.WAITS, reason)
    left = (
        found.migration is not None and found.migration.at("status", "phase").text == "Scheduling"
    )
    return (
        _plugged_in_late(vmi, found, reason, cluster)
        if left and ruled.effect is StateEffect.UNKNOWN
        else ruled
    )


def _plugged_in_late(vmi: Object, found: VmState, reason: str, cluster: Cluster) -> Ruling:
    """Return that nothing creates the pod any more: KubeVirt does that in the phase Pending alone.

    So it is in every release up to 1.9; later ones may create it in Scheduling too
    (kubevirt#17783).
    """
    release = versions.kubevirt_version(cluster)
    known = release is not None and release < _MAY_ATTACH_LATER
    # else virt-launcher may end it
    stays = vm_states_times.is_older(found.since, 2 * LAUNCHER_TIMEOUT, cluster)
    volumes = [each for each in vmi.at("spec", "volumes").items() if is_hotplugged(each)]
    late = names(sorted(each["name"].text or "?" for each in volumes), 80)
    which = {0: "a volume was", 1: f"volume {late} was"}.get(len(volumes), f"volumes {late} were")
    why = (
        f"{which} plugged in after its migration had left the phase Pending, in which KubeVirt "
        "creates that pod"
    )
    cancel = virtctl("migrate-cancel", vmi.name, vms.namespace_of(vmi))
    remedy = typed("cancel this migration, the next one attaches all volumes", cancel)
    if not known or not stays:
        return Ruling(StateEffect.UNKNOWN, f"{reason}; perhaps {why}", remedy)
    return Ruling(StateEffect.BLOCKS, f"{reason}: {why}", remedy, ProblemCause.NOT_CREATED)


_MAY_ATTACH_LATER: Final = Version(1, 10)


def _started_late(
    vmi: Object, found: VmState, pod: Object | None, reason: str, until: str, cluster: Cluster
) -> Ruling:
    """Return what the wait for a pod means: without a known end where the pod fails,
    or waits for too long.
    """
    described = kubectl("describe", POD, pod.name, vms.namespace_of(vmi)) if pod is not None else ""
    failed = migrations.failed_in_a_row(vmi, cluster)
    since = clock.instant(failed[0].created) if failed else None
    fault = pod_starts.fault(pod, cluster, since) if pod is not None else None
    if pod is not None and fault is not None:
        port = ovn_ports.problem(vmi, found.migration, pod, cluster)
        if port is not None:
            return Ruling(StateEffect.UNKNOWN, f"{reason}: {port.reason}{until}", port.remedy)
        if image := unpullable_images.of_target(pod, vmi, cluster):
            words = f"{reason}: {image.reason}. Each retry fails alike{until}"
            return Ruling(StateEffect.BLOCKS, words, image.remedy, ProblemCause.MIGRATION_FAILS)
        if refused := _refused_by_server(vmi, pod, cluster):
            words = f"{reason}: {fault.words}. {refused.reason}{until}"
            return Ruling(StateEffect.BLOCKS, words, refused.remedy, ProblemCause.MIGRATION_FAILS)
        spared, again = _next(vmi, pod, cluster, failed=bool(failed)) if fault.of_node else ("", "")
        again = "Each retry fails alike" if fault.lasts else again
        ways = f"{fault.remedy}; or, until then, {spared}" if spared else fault.remedy
        if again:
            words = f"{reason}: {fault.words}. {again}{until}"
            ways = f"{spared}; then {fault.remedy}" if spared and not fault.lasts else ways
            return Ruling(StateEffect.BLOCKS, words, ways, ProblemCause.MIGRATION_FAILS)
        return Ruling(StateEffect.UNKNOWN, f"{reason}: {fault.words}{until}", ways)
    timed = found.since is not None and clock.now(cluster) is not None
    young = timed and not vm_states_times.is_older(found.since, _USUAL_START, cluster)
    if young and not found.late and _NOT_YET in reason:
        return Ruling(StateEffect.WAITS, reason.replace(_NOT_YET, " has been starting ", 1))
    unless = until.replace("; KubeVirt", "; unless it starts before, KubeVirt", 1)
    remedy = typed("if it lasts, see why", described) if described else ""
    return Ruling(
        StateEffect.UNKNOWN if found.late else StateEffect.WAITS, f"{reason}{unless}", remedy
    )


_USUAL_START: Final = timedelta(minutes=1)
"""A target pod whose image is there starts within seconds, and its volumes are attached in tens."""
_NOT_YET: Final = " has not started "


def _next(vmi: Object, pod: Object, cluster: Cluster, *, failed: bool) -> tuple[str, str]:
    """Return how the next target pod goes to another node than that which keeps this one from
    starting (empty: none certainly takes it), and why it does not start otherwise (``_again``).
    """
    on = pod.at("spec", "nodeName").text or ""
    if not on:
        return "", ""
    target = candidates.target(vmi, cluster, moves=True)
    working = start_doubts.without_broken_nodes(target, cluster).placement
    again = _again(on, target.placement.candidates, working, failed=failed)
    others = sorted({*(working.certain or ())} - {on})
    if not others:
        return "", again
    cordon = shell("kubectl", "cordon", argument(on))
    return f"cordon {on}, and the next one goes to {_any(others)}: {cordon}", again


def _again(on: str, chosen: Sequence[str], working: Placement, *, failed: bool) -> str:
    """Return why the next target pod does not start either, as the node of this one is known not to
    start it; empty: it may start.

    Args:
        on: the node of this one.
        chosen: the nodes that kube-scheduler may choose.
        working: where the VMI could migrate, without the nodes on which no pod of it starts.
        failed: whether a migration has failed before. Nothing remembers on which node.
    """
    if on not in chosen or on in working.candidates or not working.is_certain:
        return ""
    if not working.candidates:
        others = names((each for each in chosen if each != on), 80)
        why = f"{others} cannot start it either" if others else "no other node takes it"
        return f"Each retry fails alike, as {why}"
    return f"It goes on so while kube-scheduler chooses {on}" if failed else ""


def _refused_by_server(vmi: Object, pod: Object, cluster: Cluster) -> Problem | None:
    """Return that an NFS server refuses the only node which takes a VM, as it will for the next
    target pod; None: it does not, or another node may take it.
    """
    mount = volume_starts.refused_mount(pod, cluster)
    place = candidates.target(vmi, cluster, moves=True).placement
    if mount is None or not place.is_certain:
        return None
    if {*place.candidates} - {pod.at("spec", "nodeName").text}:
        return None
    nodes = candidates.scheduler(cluster).state.nodes
    there = {name for name, node in nodes.items() if SCHEDULABLE in node.labels}
    others = sorted(place.refusals.items())
    said = names(f"{name}: {why}" for name, why in others if name in there)
    only = f"no other node takes it ({said})" if said else "no other node runs KubeVirt"
    return Problem(f"Each retry fails alike, as {only}", mount.at_server)


def _any(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"one of {names(nodes, 80)}"


def without_failing(
    target: SchedulingTarget, vmi: Object, found: VmState, cluster: Cluster
) -> SchedulingTarget:
    """Return where a VMI could migrate, without the node of a target pod which that node has kept
    from starting for so long that its migration does not succeed there.
    """
    pod = _target(found, cluster) if found.state is State.TARGET_PENDING else None
    on = pod.at("spec", "nodeName").text if pod is not None else None
    half = vm_states_times.is_older(found.since, migrations.PENDING_TIMEOUT / 2, cluster)
    fault = pod_starts.fault(pod, cluster) if pod is not None and half else None
    if pod is None or fault is None or not on or not fault.of_node:
        return target
    if ovn_ports.problem(vmi, found.migration, pod, cluster) is not None:
        return target
    why = f"its target pod does not start there: {fault.brief}"
    judged = {**target.placement.judged, on: why}
    return target._replace(placement=replace(target.placement, judged=judged))


def _target(found: VmState, cluster: Cluster) -> Object | None:
    uid = found.migration.metadata["uid"].text if found.migration is not None else None
    return vm_states_motion.motion(cluster).targets.get(uid or "-")


def on(found: VmState) -> str:
    """Return the node of the target pod, as `` on s1``; empty: it is not known."""
    return f" on {found.target}" if found.target else ""
