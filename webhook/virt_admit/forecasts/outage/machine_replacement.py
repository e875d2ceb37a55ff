"""How the pods of a lost node go when its Machine is deleted: the dead node is drained first.

Budgets are honored and KubeVirt refuses the eviction of VMs that must migrate, so the drain ends
when the deletion time of these pods has passed: of an unreachable node no other end is awaited
(``silent_drains``).
Sources: openshift/machine-api-operator:pkg/controller/machine/drain_controller.go#drainNode;
kubernetes-sigs/cluster-api:core/reconcilers/machine/machine_controller.go#drainNode,
:core/reconcilers/machine/drain/filters.go#shouldSkipPod #drainLabelFilter.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.drain import pod_evictions
from virt_admit.forecasts.drain.budgets import evicted_pods, eviction_policy, pod_budgets
from virt_admit.forecasts.drain.budgets.drain_obstacles import Blocker
from virt_admit.forecasts.drain.endless import given_time_outs, silent_drains
from virt_admit.forecasts.drain.endless.silent_drains import AwaitedPods
from virt_admit.forecasts.drain.states.vm_states_times import moment
from virt_admit.forecasts.outage.loss import Loss
from virt_admit.forecasts.outage.time_parts import NODE_GONE, Detach, Part, Seconds, detection
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock, kinds, node_health
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE, PDB, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import expand, lifecycle, vmis
from virt_admit.model.kubevirt.instances.lifecycle import Eviction
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.node_updates import node_phases
from virt_admit.model.remediation import fence_taints, machine_drain
from virt_admit.model.remediation.by_hand import hand_fences

_UNDRAINED: Final = {
    MACHINE: "machine.openshift.io/exclude-node-draining",
    CAPI_MACHINE: "machine.cluster.x-k8s.io/exclude-node-draining",
}
"""The annotation of a Machine whose node is not drained."""
TOLERATED: Final = 300
"""Seconds that a pod stays on an unreachable node by default (defaulttolerationseconds)."""
_LAUNCHER_GRACE: Final = 30
"""Seconds that virt-launcher gets in addition (template.go#renderLaunchManifest)."""
UNREACHABLE: Final = "node.kubernetes.io/unreachable"


class FreedPods(NamedTuple):
    """How the pods of a node go after its remediator begins."""

    takes: Seconds
    gone: Part
    detach: Detach
    not_before: int | None = None
    """Seconds from the loss before which a drain of the dead node does not end."""
    at_most: int | None = None
    """Seconds from the deletion after which the drain ends in any case; None: without a limit."""
    unseen: tuple[str, ...] = ()
    """What could not be read, so that the pods may never go."""


def by_deletion(machine: Object | None, node: str, loss: Loss) -> FreedPods | str:
    """Return how the pods of a node go when its Machine is deleted:
    its controller drains the dead node first, where nothing else ends them.

    Of a deletion that has begun the time counts from now.
    """
    if _is_fenced(node, loss.cluster):
        return _freed()
    begun = deletion(machine, node, loss)
    waits = silent_drains.volumes(machine, node, loss.cluster)
    if machine is not None and begun:
        rest = _rest_of(machine, begun, node, loss)
        if rest is not None:
            return rest
    elif machine is not None and _is_undrained(machine) and not waits:
        return _freed()
    if machine is not None and waits:
        return f"the deletion of Machine {machine.name} waits without a limit {waits}"
    limit = _drain_limit(machine, loss)
    if limit is None and (held := next(_held_for_good(node, loss), None)):
        return (
            f"the drain of the dead node never ends: nothing deletes pod {held.pod.full_name}, and "
            f"{held.why}"
        )
    refusing, perhaps, unread = _refusing(node, loss)
    ends = _drain_end(refusing, node, loss)
    if ends is None and limit is None:
        if _perhaps_first(node, loss):
            first = f"whether {node} is tainted before its zone counts as in trouble"
            return _freed(first)
        return (
            "the drain of the dead node never ends: KubeVirt refuses the eviction of its VMs, and "
            "nothing else deletes their pods"
        )
    if limit is not None and ends is None:
        return FreedPods(Seconds(limit.low, None), NODE_GONE, Detach.FORCED)
    unseen = (
        unread if limit is None and _drain_end([*refusing, *perhaps], node, loss) is None else ()
    )
    at_most = limit.high if limit is not None else None
    return FreedPods(Seconds(0, None), NODE_GONE, Detach.FORCED, ends, at_most, unseen)


def _is_fenced(node: str, cluster: Cluster) -> bool:
    """Return whether the taint out-of-service ends the pods of a dead node now, and detaches its
    volumes (kubernetes/kubernetes:pkg/controller/podgc/gc_controller.go#gcTerminating).
    """
    found = find(cluster, kinds.NODE, "", node) if node_health.silence_now(node, cluster) else None
    is_fenced = found is not None and fence_taints.is_fenced(found)
    return is_fenced and hand_fences.taint_works(cluster) and not hand_fences.unsure(cluster)


# --- a deletion that has begun --------------------------------------------------------------------


def deletion(machine: Object | None, node: str, loss: Loss) -> str:
    """Return since when a Machine is being deleted, and until when its drain may wait.

    Empty: it is not being deleted.
    """
    if machine is None or not machine.deleted:
        return ""
    age, left, now = _age(machine, loss), _left(machine, loss), clock.now(loss.cluster)
    since = f" for {duration(age)}" if age is not None else ""
    ends = now + datetime.timedelta(seconds=left) if left and now is not None else None
    until = f", and its drain ends at {moment(ends, now)} at the latest" if ends is not None else ""
    held = _awaited(machine, node, loss) if machine_drain.timeout(machine) is None else None
    if held is not None:
        until = f", and its drain {held.words}"
    return f"Machine {machine.name} is being deleted{since}{until}"


def _left(machine: Object, loss: Loss) -> int | None:
    """Return the seconds that the drain of a Machine may still wait; None: no limit, or ended."""
    limit, now = machine_drain.ends(machine), clock.now(loss.cluster)
    if limit is None or now is None or machine_drain.is_over(machine):
        return None
    return max(int((limit - now).total_seconds()), 0)


def _age(machine: Object, loss: Loss) -> datetime.timedelta | None:
    return clock.since(machine.metadata["deletionTimestamp"].text, loss.cluster)


SETTLED: Final = datetime.timedelta(minutes=10)
"""Owners of hooks act within minutes, and volumes of pods that are gone are detached within six."""
_SLOW: Final = datetime.timedelta(minutes=30)
"""After that a deletion takes longer than a drain and the end of an instance."""


def _rest_of(machine: Object, begun: str, node: str, loss: Loss) -> FreedPods | str | None:
    """Return how a deletion that has begun goes on: a text where it waits without a limit.

    None: its drain goes on as one that begins after the loss, as the node still reports.
    """
    if waits := _hook(machine, loss) or _volumes(machine, loss):
        return f"{begun}, and {waits}"
    if hooks := _hooks(machine)[1]:
        return _freed(
            f"whether its owner removes hook {names(hooks, 120)} of Machine {machine.name}"
        )
    left = _left(machine, loss)
    silent = node_health.silence_now(node, loss.cluster)
    waits = silent_drains.volumes(machine, node, loss.cluster) if silent else ""
    if machine_drain.is_drained(machine):
        return _ending(machine, begun, loss)
    if _is_undrained(machine) or left == 0:
        return _without_limit(begun, waits) or _ending(machine, begun, loss)
    if not silent:
        return None
    held, awaited = list(_holding(node, loss)), _awaited(machine, node, loss)
    certain = [each for each in held if each.certain]
    if waits and (left is not None or not certain):
        return _without_limit(begun, waits)
    if not held and awaited is None:
        return _ending(machine, begun, loss)
    if not held and awaited is not None:
        left = min(awaited.left, awaited.left if left is None else left)
    if left is not None:
        return FreedPods(Seconds(left, None), NODE_GONE, Detach.FORCED)
    if certain:
        more = f" (and {len(certain) - 1} more)" if len(certain) > 1 else ""
        return (
            f"{begun}, and its drain waits without a limit for pod "
            f"{certain[0].pod.full_name}{more}: {certain[0].why}"
        )
    return _freed(
        f"whether the drain of Machine {machine.name} ends: pod {held[0].pod.full_name}: "
        f"{held[0].why}"
    )


def _without_limit(begun: str, waits: str) -> str:
    return f"{begun}, and its deletion then waits without a limit {waits}" if waits else ""


def _awaited(machine: Object, node: str, loss: Loss) -> AwaitedPods | None:
    """Return the pods that are being deleted and hold the drain of a dead node now."""
    if _is_undrained(machine) or _hooks(machine)[1]:
        return None

    def refused(pod: Object) -> bool:
        return _held_vm(pod, loss) is not None

    return silent_drains.awaited(_evicted(node, loss), machine, node, refused, loss.cluster)


def _ending(machine: Object, begun: str, loss: Loss) -> FreedPods:
    """Return the end of a deletion that nothing is known to hold up,
    unless it lasts too long for that.
    """
    age = _age(machine, loss)
    said = machine_drain.condition(machine, "Deleting")["reason"].text
    if age is None or age > _SLOW:
        return _freed(f"why {begun}{f' ({said})' if said else ''}")
    return _freed()


def _freed(*unseen: str) -> FreedPods:
    return FreedPods(Seconds(0, None), NODE_GONE, Detach.FORCED, unseen=unseen)


def _hooks(machine: Object) -> tuple[str, tuple[str, ...]]:
    """Return the hooks that a Machine waits for now, after the step before which it does."""
    before = machine_drain.holding_hooks(machine)
    if before:
        return "pre-drain", before
    return "pre-terminate", machine_drain.terminating_hooks(machine)


def _hook(machine: Object, loss: Loss) -> str:
    """Return the hooks that a Machine waits for without a limit; empty: none, or not long yet."""
    (step, hooks), age = _hooks(machine), _age(machine, loss)
    if not hooks or age is None or age < SETTLED:
        return ""
    return f"waits for the {step} hook {names(hooks, 120)}, which no time-out ends"


def _volumes(machine: Object, loss: Loss) -> str:
    """Return that a Machine waits for volumes that nothing detaches; empty: it does not.

    Nothing deletes the pods of a dead node before its Machine is gone, so their volumes stay
    attached. Releases that skip this wait on an unreachable node do not report it
    (machine_controller.go#shouldWaitForNodeVolumes).
    """
    age = clock.since(machine_drain.volume_wait(machine), loss.cluster)
    if age is None or age < SETTLED or machine_drain.detach_timeout(machine) is not None:
        return ""
    why = machine_drain.no_timeout(machine, "nodeVolumeDetachTimeout")
    return (
        f"has waited {int(age.total_seconds() // 60)} min for volumes to be detached, which "
        f"nothing does on a dead node: {why}"
    )


def remedy(machine: Object | None, node: str, loss: Loss) -> str:
    """Return what lets the deletion of a Machine end; empty: nothing of the Machine holds it."""
    if machine is None:
        return ""
    kind = CAPI_MACHINE if kinds.of(machine) is CAPI_MACHINE else MACHINE
    if _hook(machine, loss):
        return typed("ask the owner of the hook why it stays", about("describe", machine, kind))
    if machine.deleted and _volumes(machine, loss):
        return f"set nodeVolumeDetachTimeout of {given_time_outs.set_in(machine, loss.cluster)}"
    if not (machine.deleted and node_health.silence_now(node, loss.cluster)):
        if silent_drains.volumes(machine, node, loss.cluster):
            of = given_time_outs.set_in(machine, loss.cluster)
            return f"set nodeVolumeDetachTimeout of {of}, or {silent_drains.UPDATE}"
        held = _drain_timeout(machine, loss.cluster) is None and next(
            _held_for_good(node, loss), None
        )
        way = (
            f"set nodeDrainTimeout of {given_time_outs.set_in(machine, loss.cluster)}, or "
            if kind is CAPI_MACHINE
            else ""
        )
        if held:
            return (
                f"{way}let pod {held.pod.full_name} be evicted: "
                f"{held.remedy[:1].lower()}{held.remedy[1:]}"
            )
        return ""
    return _undrain(machine, kind, node, loss)


def _undrain(machine: Object, kind: Kind, node: str, loss: Loss) -> str:
    limited = kind is CAPI_MACHINE
    of = given_time_outs.set_in(machine, loss.cluster)
    waits = limited and silent_drains.volumes(machine, node, loss.cluster)
    fields = "nodeDrainTimeout and nodeVolumeDetachTimeout" if waits else "nodeDrainTimeout"
    notes = (f"{_UNDRAINED[kind]}=", *((f"{silent_drains.NOT_AWAITED}=",) if waits else ()))
    return typed(
        f"as a decision, confirm that {node} is powered off, then end the drain of its Machine",
        about("annotate", machine, kind, *notes),
        f"or set {fields} of {of}" if limited else "",
    )


def _is_undrained(machine: Object) -> bool:
    return any(machine.annotation(key).present for key in _UNDRAINED.values())


# --- what holds a drain ---------------------------------------------------------------------------


class HeldPod(NamedTuple):
    """A pod for which the drain of a dead node waits."""

    pod: Object
    why: str
    remedy: str
    certain: bool
    """Whether this never passes by itself."""


def _holding(node: str, loss: Loss) -> Iterator[HeldPod]:
    """Yield the pods for which a drain that runs waits: their eviction is refused,
    and nothing else deletes them.

    Of an unreachable node no pod is here that is being deleted (``_awaited``).
    """
    found, unreachable = silent_drains.unreachable(node, loss.cluster)
    lost = node_phases.unready_since(found) if found is not None else None
    silent = (clock.elapsed(lost, loss.cluster) or datetime.timedelta()).total_seconds()
    for pod in _evicted(node, loss):
        if pod.deleted and unreachable:
            continue
        stays = None if pod.deleted else tolerated(pod, 0)
        if stays is not None and silent < stays + _TAINTED:
            continue  # its deletion comes
        if held := _held(pod, loss):
            yield held


_TAINTED: Final = 300
"""Seconds in which a pod whose toleration has ended is deleted, also where taints come slowly."""


def _held_for_good(node: str, loss: Loss) -> Iterator[HeldPod]:
    """Yield the pods for which a drain would wait forever if a node that reports were lost."""
    for pod in _evicted(node, loss):
        if pod.deleted or evicted_pods.is_of_vm(pod) or tolerated(pod, 0) is not None:
            continue
        held = _held(pod, loss)
        if held is not None and held.certain and not _goes_unhealthy(pod, loss):
            yield held


def _evicted(node: str, loss: Loss) -> Iterator[Object]:
    for pod in entry(loss.cluster, evicted_pods.by_node, node) or ():
        skipped = pod.labels.get(machine_drain.WAIT_LABEL, "").lower() == "skip"
        if evicted_pods.is_evicted(pod) and not skipped:
            yield pod


def _goes_unhealthy(pod: Object, loss: Loss) -> bool:
    """Return whether its budget lets a pod go that is not ready, as all of a lost node are."""
    budgets = pod_budgets.selecting(pod, loss.cluster)
    return len(budgets) == 1 and eviction_policy.is_always(budgets[0])


def _held(pod: Object, loss: Loss) -> HeldPod | None:
    """Return why the eviction of a pod is refused; None: it is not."""
    try:
        found = pod_evictions.obstacle(pod, loss.cluster)
    except Unseen as unseen:
        return HeldPod(pod, f"cannot read {unseen.what}", "", certain=False)
    if not isinstance(found, Blocker):
        return _held_vm(pod, loss)
    subject = f"{found.subject}: " if found.kind == PDB.kind else ""
    return HeldPod(pod, f"{subject}{found.reason}", found.remedy, certain=not found.now)


def _held_vm(pod: Object, loss: Loss) -> HeldPod | None:
    """Return that KubeVirt refuses to evict the pod of a VM; None: another pod, or evicted."""
    name = vm_ledger.vmi_name(pod)
    vmi = next(
        (each for each in loss.vmis(pod.at("spec", "nodeName").text or "") if each.name == name),
        None,
    )
    if vmi is None or vmi.namespace != pod.namespace:
        return None
    try:
        stays = _stays(vmi, loss.cluster)
    except Unseen as unseen:
        return HeldPod(pod, f"cannot read {unseen.what}", "", certain=False)
    why = "KubeVirt refuses its eviction, and nothing else deletes it"
    return HeldPod(pod, why, "", certain=True) if stays else None


def _drain_timeout(machine: Object | None, cluster: Cluster) -> int | None:
    """Return after how many seconds Cluster API ends the drain; None: never, as on OpenShift."""
    return given_time_outs.of_drain(machine, cluster) if machine is not None else None


def _drain_limit(machine: Object | None, loss: Loss) -> Seconds | None:
    """Return after how many seconds the drain ends in any case, counted from its begin, or from
    the loss of a node that is drained already; None: never.
    """
    limit = _drain_timeout(machine, loss.cluster)
    if machine is None or limit is None:
        return None
    if not machine.deleted:
        return Seconds(limit, limit)
    left = _left(machine, loss)
    if left is None:
        return Seconds(0, limit)  # when it began is not known
    left = max(left - detection(loss).low, 0)
    return Seconds(left, left)


def _drain_end(refusing: Sequence[Object], node: str, loss: Loss) -> int | None:
    """Return how many seconds after the loss a drain of a dead node ends at the earliest; None:
    never.

    KubeVirt refuses the eviction of VMs that must migrate. Their pods are skipped once their
    deletion time has passed.
    """
    if not refusing:
        return 0
    if loss.taint_delay(node) is None:
        return None
    stays = [tolerated(vmi, TOLERATED) for vmi in refusing]
    late = int(silent_drains.late(loss.cluster).total_seconds())
    ends = [
        seconds + vmis.grace_seconds(vmi) + _LAUNCHER_GRACE
        for vmi, seconds in zip(refusing, stays, strict=True)
        if seconds is not None
    ]
    return detection(loss).low + max(ends) + late if len(ends) == len(stays) else None


def _perhaps_first(node: str, loss: Loss) -> bool:
    """Return whether chance decides on the VMs of a node in a zone in trouble.

    Where several nodes have VMs, the drain of all but one of them never ends.
    """
    others = (name for name in loss.in_zone_of(node) if name != node)
    if not loss.taints_the_first(node) or any(_refusing(other, loss)[0] for other in others):
        return False
    return all(tolerated(vmi, TOLERATED) is not None for vmi in _refusing(node, loss)[0])


def _refusing(node: str, loss: Loss) -> tuple[list[Object], list[Object], tuple[str, ...]]:
    """Return the VMIs of a node whose eviction KubeVirt refuses, the unknown ones, and why."""
    refusing: list[Object] = []
    perhaps: list[Object] = []
    unread: dict[str, None] = {}
    for vmi in loss.vmis(node):
        try:
            if _stays(vmi, loss.cluster):
                refusing.append(vmi)
        except Unseen as unseen:
            perhaps.append(vmi)
            unread[unseen.what] = None
    return refusing, perhaps, tuple(unread)


def _stays(vmi: Object, cluster: Cluster) -> bool:
    strategy = expand.strategy(vmi, cluster).value
    return lifecycle.eviction(strategy, vmis.migratable(vmi)) is not Eviction.SHUTS_DOWN


def tolerated(obj: Object, default: int) -> int | None:
    """Return how many seconds a pod, or the pod of a VMI, stays on an unreachable node; None:
    forever.
    """
    for toleration in obj.at("spec", "tolerations").items():
        key, effect = toleration["key"].text, toleration["effect"].text
        if key in (None, "", UNREACHABLE) and effect in (None, "", "NoExecute"):
            return toleration["tolerationSeconds"].integer
    return default
