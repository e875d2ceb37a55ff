"""What it means for a drain that a VM has two pods: the guest has left one of them,
and that one does not end. Or a migration under way stands, as a virt-handler is dead.

A migration that has succeeded tells which one. Sources:
kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go #handleTargetPodCreation;
:pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go#admitLauncherPod.
"""

from __future__ import annotations

from typing import Final

from virt_admit.forecasts.drain.states import dying_pods, left_pods, vm_states_motion
from virt_admit.forecasts.drain.states.vm_states_kinds import Ruling, State, StateEffect, VmState
from virt_admit.forecasts.drain.states.vm_states_times import age, moment
from virt_admit.forecasts.placement import virt_handlers
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.messages import cut, cut_middle
from virt_admit.model.problems import Problem, ProblemCause

_SECOND: Final = "a second guest, and two guests on one disk destroy its data"


def two_pods(vmi: Object, found: VmState, cluster: Cluster) -> Ruling:
    """Return what it means for the node of a VMI that another pod of it has not ended:
    no migration starts.
    """
    left = left_pods.of_vmi(vmi, cluster)
    if left is not None and left.pod.name == found.detail:
        waits = (
            f"migration {found.migration.name} waits"
            if found.migration is not None
            else "cannot migrate"
        )
        return Ruling(
            StateEffect.BLOCKS,
            f"{waits}, as {left.reason}",
            left.remedy,
            ProblemCause.POD_NOT_ENDING,
        )
    if (stale := left_pods.stale(vmi, cluster)) is not None and stale.pod.name == found.detail:
        return Ruling(StateEffect.BLOCKS, stale.reason, stale.remedy, ProblemCause.POD_NOT_ENDING)
    reason = f"waits until its other pod {found.detail} has ended"
    if not found.late:
        return Ruling(StateEffect.WAITS, reason)
    pod = other_pod(vmi, found.detail, cluster)
    if pod is not None and pod.deleted:
        dying = dying_pods.of_pod(pod, cluster)
        words, ways = f"{reason}, but {dying.why}{dying.keeps}", dying_pods.with_command(dying, pod)
        return Ruling(StateEffect.BLOCKS, words, ways, ProblemCause.POD_NOT_ENDING)
    remedy = typed(
        "see why it does not end", kubectl("describe", POD, found.detail, vms.namespace_of(vmi))
    )
    return Ruling(StateEffect.BLOCKS, reason, remedy, ProblemCause.POD_NOT_ENDING)


def arrived(vmi: Object, found: VmState, cluster: Cluster) -> Ruling:
    """Return what it means that the old pod of a VM that has left is still there.

    KubeVirt refuses its eviction where the guest migrates
    (pod-eviction-admitter.go#admitLauncherPod), else it ends the guest.
    """
    left = f"has left for {found.target}"
    if not found.late:
        return Ruling(StateEffect.WAITS, f"{left}; its old pod ends")
    since = f" for {age(found.since, cluster)}" if found.since is not None else ""
    ready, stays = vmi.condition("Ready"), f"its old pod {found.detail} has not ended{since}"
    said = ready["message"].text or ready["reason"].text or "no reason given"
    pod = other_pod(vmi, found.detail, cluster)
    source = pod.at("spec", "nodeName").text if pod is not None else None
    described = kubectl("describe", VMI, vmi.name, vms.namespace_of(vmi))
    if (
        ready["status"].text != "False"
        and pod is not None
        and dying_pods.target(vmi, source or "-")
    ):
        reason = f"{left}, where its guest runs since its migration has succeeded, but {stays}"
        if pod.deleted:
            dying = dying_pods.of_pod(pod, cluster)
            return Ruling(
                StateEffect.BLOCKS, f"{reason}: {dying.why}", dying_pods.with_command(dying, pod)
            )
        shown = kubectl("describe", POD, pod.name, pod.namespace)
        stale = left_pods.stale(vmi, cluster)
        remedy = (
            stale.remedy
            if stale is not None
            else typed("see which of its containers still runs", shown)
        )
        return Ruling(StateEffect.UNKNOWN, reason, remedy)
    holds = (
        f"the only guest, as its VMI is not Ready ({cut_middle(said, 120)})"
        if ready["status"].text == "False"
        else _SECOND
    )
    remedy = typed(
        "find out which of both pods runs the guest before this node is drained", described
    )
    return Ruling(StateEffect.UNKNOWN, f"{left}, but {stays}: it may run {holds}", remedy)


def other_pod(vmi: Object, name: str, cluster: Cluster) -> Object | None:
    """Return the pod of a VMI with a name; None: it is not known."""
    return next((pod for pod in vm_states_motion.pods(vmi, cluster) if pod.name == name), None)


def is_unended(vmi: Object, found: VmState) -> bool:
    """Whether a guest is active on its target and no virt-handler has written that its migration
    has ended.
    """
    ended = vmi.at("status", "migrationState", "completed").boolean
    return found.state is State.NOT_CLOSED and ended is not True


def unended(vmi: Object, found: VmState, cluster: Cluster) -> Ruling:
    """Return what it means that nothing ends such a migration.

    The virt-handler of the source writes the end up to KubeVirt 1.5 (pkg/virt-handler/vm.go), that
    of the target from 1.6 on (migration-target.go#ackMigrationCompletion): two of them can wait for
    each other (kubevirt/kubevirt#19134).
    """
    state = vmi.at("status", "migrationState")
    source, target = state["sourceNode"].text or "", found.target or state["targetNode"].text or ""
    releases = [_release(virt_handlers.pod(cluster, node)) for node in (source, target)]
    name = found.migration.name if found.migration is not None else "its migration"
    active = moment(found.since, clock.now(cluster))
    reason = (
        f"migration {name} hangs: its memory is copied and its guest has been active on "
        f"{target or 'the target'} since {active} ({age(found.since, cluster)}), but no "
        "virt-handler has ended the migration"
    )
    first = f"see why virt-handler of {source} and of {target} do not end it"
    if all(releases) and releases[0] != releases[1]:
        here, there = (
            f"{on} has {what}" for on, what in zip((source, target), releases, strict=True)
        )
        reason += f": {here} and {there}, which may wait for each other"
        first = "let the update of virt-handler end"
    pod = other_pod(vmi, state["targetPod"].text or "-", cluster)
    look = (
        left_pods.list_guests(pod)
        if pod is not None
        else kubectl("describe", VMI, vmi.name, vms.namespace_of(vmi))
    )
    remedy = f"{first}; see where the guest runs before anything is cancelled or deleted"
    return Ruling(StateEffect.UNKNOWN, reason, typed(remedy, look))


def _release(pod: Object | None) -> str:
    """Return the image of virt-handler without its registry; empty: it is not known."""
    image = pod.at("spec", "containers").named(_HANDLER)["image"].text if pod is not None else ""
    return cut((image or "").rpartition("/")[2], 40)


_HANDLER: Final = "virt-handler"


def without_handler(vmi: Object, found: VmState, cluster: Cluster) -> Problem | None:
    """Return that a migration does not go on as virt-handler does not work on one of its nodes;
    None: it works there, or the migration does not need it.

    virt-handler prepares the target, and the memory passes its proxies on both nodes
    (kubevirt/kubevirt:pkg/virt-handler/migration-proxy/migration-proxy.go). A migration in
    post-copy is left alone.
    """
    if found.state not in _BY_HANDLERS:
        return None
    for node in filter(None, (found.target, vmi.at("status", "nodeName").text)):
        down = virt_handlers.problem(cluster, node)
        if down and not virt_handlers.is_starting(cluster, node):
            reason = f"its memory passes virt-handler of both nodes, and {down}"
            return Problem(reason, virt_handlers.remedy(cluster, node))
    return None


_BY_HANDLERS: Final = frozenset((State.PREPARING, State.RUNNING, State.PAUSED))
