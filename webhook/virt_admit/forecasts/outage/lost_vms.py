"""What becomes of each VM of lost nodes: a word, a reason, a time line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from virt_admit.forecasts.drain.states import stuck_starts
from virt_admit.forecasts.outage import health_actors, room_left, time_parts
from virt_admit.forecasts.outage.control import lost_webhooks
from virt_admit.forecasts.outage.control.lost_webhooks import SilentWebhook
from virt_admit.forecasts.outage.health_actors import NodeCoverage
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.restarts import fates, next_vmis, unattended_vms
from virt_admit.forecasts.outage.restarts.fates import Fate, LossOutcome
from virt_admit.forecasts.outage.room_left import ReturningVm, RoomLeft
from virt_admit.forecasts.outage.storage import lost_storage
from virt_admit.forecasts.outage.time_parts import ELSEWHERE, Detach, Part, Seconds, total
from virt_admit.forecasts.placement import (
    candidates,
    pod_security,
    start_doubts,
    volume_attachments,
)
from virt_admit.forecasts.remediation.unwatched import vm_returns
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, keeps
from virt_admit.model.kubernetes.kinds import POD, PV, PVC, VMI, by_resource
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import migrations, vms
from virt_admit.model.lookups import keep_of, once
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem
from virt_admit.model.remediation.by_hand import hand_fences
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.resources import MEMORY, amount

START: Final = (10, 120)
"""Seconds of a start of which no earlier one is known: schedule, attach, pull, boot."""
DETACH: Final = 360
"""Seconds after the pod is gone (attach_detach_controller.go#DefaultTimerConfig)."""
_CONTROLLER_START: Final = (5, 120)
"""Seconds until a pod of virt-controller that its Deployment creates leads."""


DISK: Final = "DiskLost"
NOT_BACK: Final = (LossOutcome.LOST, LossOutcome.NEVER, LossOutcome.NODE, LossOutcome.ROOM)
"""Outcomes with which a cluster does not survive."""


@dataclass(frozen=True, slots=True)
class LostVm:
    """A VM of a lost node."""

    vmi: Object
    node: str
    outcome: LossOutcome
    reason: str
    remedy: str = ""
    to: str | None = None
    """A node of one possible packing. None: none is certain."""
    parts: tuple[Part, ...] = ()
    """The time line until the guest runs again; empty: it does not, or that is not known."""
    by_hand: Seconds | None = None
    """When it would run if an administrator freed its pod at once. None: not then either."""
    fresh: bool = False
    """Whether it comes back without the data of some disks."""
    cause: str = ""
    """What other than checks and nodes keeps it off: ``DISK`` or a cause of ``lost_webhooks``."""
    returning: ReturningVm | None = None
    unseen: tuple[str, ...] = ()
    removed: bool = False
    """Whether it is being deleted, so that the loss takes nothing away."""
    twice: str = ""
    """Why it may go on running on its node while it runs again. Empty: nothing shows it."""

    @property
    def from_now(self) -> bool:
        """Whether the time line begins now: a node that was lost before is being freed already."""
        return time_parts.from_now(self.parts)

    @property
    def at(self) -> Seconds | None:
        """When the guest runs again, counted from the loss, or from now."""
        return total(self.parts) if self.parts else None


# --- the time line --------------------------------------------------------------------------------


def start(vmi: Object) -> Part:
    """Return how long a VM takes to start: as its last start took, else an assumed range."""
    took = _last_start(vmi)
    if took is None:
        return Part("started", *START)
    return Part("started", took, max(took + 1, took * 3 // 2))


def is_estimated(vmi: Object) -> bool:
    """Return whether no earlier start of a VM is known."""
    return _last_start(vmi) is None


def _last_start(vmi: Object) -> int | None:
    begin = clock.instant(migrations.entered(vmi, "Pending")) or clock.instant(
        migrations.entered(vmi, "Scheduling")
    )
    end = clock.instant(migrations.entered(vmi, "Running"))
    if begin is None or end is None or end < begin:
        return None
    return max(1, round((end - begin).total_seconds()))


def detach(vmi: Object, pod: Pod, how: Detach, cluster: Cluster) -> Part:
    """Return how long the volumes of a VM keep it waiting after its pod is gone."""
    held = how is not Detach.AT_ONCE and [
        claim for claim in pod.claims if _is_held(vmi, claim, cluster)
    ]
    if not held:
        return Part("detached", 0, 0)
    return Part("detached", DETACH if how is Detach.FORCED else 0, DETACH)


def _is_held(vmi: Object, name: str, cluster: Cluster) -> bool:
    """Return whether a volume may be attached to one node alone.

    Yes also if the claim cannot be read.
    """
    try:
        claim = cluster.get(PVC, vms.namespace_of(vmi), name)
        if claim is None or not volume_attachments.is_of_one_node(claim):
            return False
        volume = cluster.get(PV, "", claim.at("spec", "volumeName").text or "")
    except Unseen:
        return True
    return volume is not None and volume.at("spec", "csi").present


def loses_data(vmi: Object) -> bool:
    """Return whether a VM has disks that a new pod starts with empty or as in their image."""
    kinds_of_volumes = ("containerDisk", "emptyDisk", "ephemeral")
    return any(
        volume[kind].present
        for volume in vmi.at("spec", "volumes").items()
        for kind in kinds_of_volumes
    )


def guest_memory(vmi: Object) -> int:
    """Return the memory of the guest in bytes; 0: the VMI does not say it."""
    return amount(MEMORY, vmi.at("spec", "domain", "memory", "guest").value)


# --- all VMs of a loss ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Case:
    """A VM with everything that decides on it."""

    vmi: Object
    node: str
    fate: Fate
    returning: ReturningVm | None


def returning(vmi: Object, cluster: Cluster) -> ReturningVm:
    """Return a VM with the pod that it starts again with."""
    if keeps(cluster):
        return keep_of(cluster, VMI, vmi, returning, _returning)
    return once(_returning, vmi, cluster)


def _returning(vmi: Object, cluster: Cluster) -> ReturningVm:
    return ReturningVm(vmi, candidates.fresh(vmi, cluster))


@dataclass(frozen=True, slots=True)
class LostVms:
    """The VMs of lost nodes, and the room for those that start again."""

    vms: tuple[LostVm, ...]
    room: RoomLeft


def lost_vms(loss: Loss, coverages: Mapping[str, NodeCoverage]) -> LostVms:
    """Return what becomes of each VM of the lost nodes."""
    cases = [_case(vmi, node, loss) for node in loss.nodes for vmi in loss.vmis(node)]
    bound = {id(case.vmi): why for case in cases if (why := _bound(case, loss))}
    placeable = [
        case.returning for case in cases if case.returning is not None and id(case.vmi) not in bound
    ]
    room = _room(placeable, {id(case.vmi) for case in cases if case.fate.comes is None}, loss)
    silent = lost_webhooks.silent(loss) if cases else ()
    rows = (
        _row(case, loss, coverages[case.node], room, bound.get(id(case.vmi), ""), silent)
        for case in cases
    )
    return LostVms(tuple(rows), room)


def _room(placeable: Sequence[ReturningVm], doubtful: Collection[int], loss: Loss) -> RoomLeft:
    """Return the room for VMs, of which some perhaps do not need it: it is not known whether they
    start, or whether any node can ever run them.
    """
    found = room_left.room(placeable, loss)
    if found.fits is not False:
        return found
    certain = [
        vm
        for vm in placeable
        if id(vm.vmi) not in doubtful
        and not (vm.fresh.pod.full_name in found.nowhere and room_left.is_bound(vm, loss) is None)
    ]
    if len(certain) == len(placeable) or room_left.room(certain, loss).fits is False:
        return found
    because = "it is not known whether all VMs need room"
    return replace(found, fits=None, short=(), because=because)


def _case(vmi: Object, node: str, loss: Loss) -> _Case:
    found = fates.fate(vmi, loss.cluster)
    return _Case(
        vmi, node, found, returning(vmi, loss.cluster) if found.comes is not False else None
    )


def _bound(case: _Case, loss: Loss) -> str:
    """Return why no node that is left can ever run a VM; empty: one can, or that is not known."""
    if case.returning is None:
        return ""
    pod = case.returning.fresh.pod
    if (
        case.returning.fresh.plain
        and loss.scheduler.accepting(pod)
        and not loss.scheduler.lacking(pod.requests)
    ):
        return ""
    if not room_left.is_bound(case.returning, loss):
        return ""
    found = room_left.target(case.returning, loss)
    return (
        start_doubts.best_refusal(found, loss.scheduler, loss.cluster)
        or "no node that is left runs KubeVirt"
    )


def _row(
    case: _Case,
    loss: Loss,
    coverage: NodeCoverage,
    room: RoomLeft,
    bound: str,
    silent: Sequence[SilentWebhook],
) -> LostVm:
    vmi, node, found = case.vmi, case.node, case.fate
    if found.comes is False or case.returning is None:
        words, gone = (found.reason, found.remedy), found.removed
        return LostVm(vmi, node, found.outcome, *words, removed=gone)
    pod, comes = case.returning.fresh.pod, found.comes is True
    freed = health_actors.by_hand(loss)
    by_hand = total(_from_pod_gone(freed, Detach.AT_ONCE, case.returning, node, loss))
    detached = detach(vmi, pod, Detach.FORCED, loss.cluster)
    coverage = next_vmis.with_kubevirt(vmi, coverage, detached, loss)
    first = coverage.first
    row = partial(LostVm, vmi, node, fresh=loses_data(vmi), returning=case.returning)
    disk = lost_storage.of(vmi, pod.claims, loss)
    gone = disk is not None and disk.certain
    hooks = lost_webhooks.on_start(vmi, silent, loss.cluster)
    if comes and (never := lost_webhooks.never(vmi, hooks, loss)) is not None:
        return row(LossOutcome.NEVER, never.reason, never.remedy, cause=never.cause)
    if comes and coverage.unattended:
        why, way = unattended_vms.why_and_remedy(node, pod, loss, coverage, room, bound)
        if not loss.stopped and (check := vm_returns.replacement(vmi, loss.cluster)[0]):
            why = f"{why}; {check} replaces it with another VM"
        nowhere = bound or gone or pod.full_name in room.nowhere
        ends = hand_fences.taint_works(loss.cluster) and not hand_fences.unsure(loss.cluster)
        held = nowhere or _start_doubt(vmi, pod, loss) or not ends
        return row(LossOutcome.NEVER, why, way, by_hand=None if held else by_hand)
    if comes and bound:
        way = lost_storage.elsewhere(pod, loss)
        return row(LossOutcome.NODE, f"no other node can run it: {bound}", way)
    if comes and disk is not None and disk.certain:
        return row(LossOutcome.NODE, disk.reason, disk.remedy, cause=DISK)
    if comes and (full := room.nowhere.get(pod.full_name, "")):
        way = start_doubts.opens(full, pod.fault, loss.cluster)
        return row(LossOutcome.ROOM, f"no node takes it: {full}", way)
    doubts = tuple(_doubts(case, pod.full_name, coverage, room, loss))
    unsure = disk or hooks.unsure or _start_doubt(vmi, pod, loss)
    if unsure is not None and not doubts:
        unseen = (disk.unseen,) if disk is not None and disk.unseen else ()
        return row(
            LossOutcome.UNKNOWN, unsure.reason, unsure.remedy, by_hand=by_hand, unseen=unseen
        )
    if doubts or first is None:
        hidden = tuple(what for _, what in doubts if what)
        return row(LossOutcome.UNKNOWN, doubts[0][0], by_hand=by_hand, unseen=hidden)
    return row(
        LossOutcome.RESTARTS,
        f"{found.reason}; {first.begun or f'{first.check} acts'}",
        first.twice.remedy if first.twice is not None else "",
        twice=first.twice.reason if first.twice is not None else "",
        to=room.placed.get(pod.full_name) if room.fits else None,
        parts=_from_pod_gone(first.parts, first.detach, case.returning, node, loss, hooks.later),
        by_hand=by_hand,
    )


def _doubts(
    case: _Case, pod: str, coverage: NodeCoverage, room: RoomLeft, loss: Loss
) -> Iterator[tuple[str, str]]:
    """Yield why it cannot be determined whether a VM restarts, each with what could not be read."""
    if case.fate.comes is None:
        yield case.fate.reason, case.fate.unseen
    if loss.quorum_doubt:
        yield loss.quorum_doubt, ""
    if hidden := lost_webhooks.unread(loss.cluster):
        yield (
            "not all admission webhooks could be read, and one of them may keep VMs from starting",
            hidden,
        )
    if coverage.first is None:
        unseen = (*coverage.unseen, *(what for actor in coverage.actors for what in actor.unseen))
        yield _unsure_of_checks(case.node, coverage), names(unseen)
    if room.fits is not True and pod not in room.safe:
        if room.fits is False:
            yield "not all VMs find a place, and which of them do depends on who starts first", ""
        else:
            yield room.because, next(iter(room.unseen), "")


def _unsure_of_checks(node: str, coverage: NodeCoverage) -> str:
    """Return what is not known, so that no health check certainly acts."""
    if waits := next((actor.waits for actor in coverage.actors if actor.waits), ""):
        return waits
    acting = [actor for actor in coverage.actors if actor.unseen and not actor.refuses]
    if acting:
        actor = min(acting, key=lambda actor: not actor.begun)
        known = actor.begun or f"{actor.check} watches {node}"
        what = names(actor.unseen)
        is_question = what.startswith(_QUESTIONS)
        return f"{known}, and {'it is not known ' if is_question else 'not read: '}{what}"
    if coverage.unseen and by_resource(coverage.unseen[0].split()[0]) is None:
        return f"not read: {names(coverage.unseen)}"
    return f"it is not known which health check acts for {node}"


_QUESTIONS: Final = ("whether ", "why ", "when ", "which ", "how ")


def _start_doubt(vmi: Object, pod: Pod, loss: Loss) -> Problem | None:
    """Return why a pod may not start where it is placed, which no filter knows; None: no doubt.

    What keeps a VM from starting now, and is not a fault of the lost node, may do so elsewhere.
    """
    if stuck_starts.fails(vmi, loss.cluster) and (now := stuck_starts.problem(vmi, loss.cluster)):
        return now._replace(reason=f"it does not start now either: {now.reason}")
    try:
        refused = pod_security.doubt(vmi, loss.cluster)
    except Unseen as unseen:
        what = f"whether the API server takes a new pod is not known: cannot see {unseen.what}"
        refused = Problem(what, "let virt-admit read it")
    if refused is not None:
        return refused
    node = vmi.at("status", "nodeName").text or ""
    takes = loss.scheduler.accepting(pod).__contains__
    network = start_doubts.network(takes, loss.cluster) or start_doubts.unserved(
        pod, loss.scheduler, loss.cluster
    )
    return network or start_doubts.volumes(node, pod.namespace, pod.claims, loss.cluster)


def _from_pod_gone(
    parts: Sequence[Part],
    how: Detach,
    vm: ReturningVm,
    node: str,
    loss: Loss,
    hook: SilentWebhook | None = None,
) -> tuple[Part, ...]:
    """Return the whole time line of a VM, given its parts until its pod is gone."""
    gone, pod = total(parts).low, vm.fresh.pod
    waits = list(_controllers_lost(node, gone, loss, hook))
    if pod.spread and gone < next_vmis.NOTICED:
        waits.append(Part("topology spread counts the lost nodes", 0, next_vmis.NOTICED - gone))
    detached = detach(vm.vmi, pod, how, loss.cluster)
    return (*parts, *waits, *next_vmis.waits(vm.vmi, detached, loss.cluster), start(vm.vmi))


def _controllers_lost(
    node: str, gone: int, loss: Loss, hook: SilentWebhook | None
) -> Iterator[Part]:
    """Yield the wait for what a start needs and whose pods are all on lost nodes: virt-controller,
    a webhook.

    Its Deployment creates other pods once the old ones are marked for deletion: when the node's
    taint is no longer tolerated, or when their remediator frees the node.

    Args:
        node: the lost node of the VM.
        gone: seconds from the loss until the pod of the VM is gone.
        loss: the loss.
        hook: a webhook that the start waits for.
    """
    nodes = loss.cluster.cached(_controllers)
    what = (
        "virt-controller"
        if nodes and nodes <= loss.lost
        else hook.webhook.title
        if hook is not None
        else ""
    )
    if not what:
        return
    evicted = health_actors.evicted(node, loss)
    if evicted is None or gone < evicted:
        yield Part(f"{what}{ELSEWHERE}", *_CONTROLLER_START)
    elif gone < evicted + _CONTROLLER_START[1]:
        yield Part(f"{what}{ELSEWHERE}", 0, evicted + _CONTROLLER_START[1] - gone)


def _controllers(cluster: Cluster) -> frozenset[str]:
    pods = (pod for pod in cluster.known(POD) if pod.labels.get("kubevirt.io") == "virt-controller")
    return frozenset(node for pod in pods if (node := pod.at("spec", "nodeName").text))
