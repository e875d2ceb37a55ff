"""Commands about one VM that can be typed as they are, the most helpful first,
and what to leave alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from virt_admit.forecasts.drain.control import failed_plans, vm_writes
from virt_admit.forecasts.drain.control.control_path import Component
from virt_admit.forecasts.drain.guests import frozen_guests
from virt_admit.forecasts.drain.starts.hotplug_phases import LACKS
from virt_admit.forecasts.drain.starts.storage import restored_claims
from virt_admit.forecasts.drain.states import dying_pods, left_pods, vm_states_left
from virt_admit.forecasts.drain.states.evacuation_marks import evacuate_cancel, way_to_stay
from virt_admit.forecasts.drain.states.vm_states_kinds import State, VmState
from virt_admit.forecasts.drain.vm_events import EventEffect, EventForecast, VmEvent
from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import lifecycle, migrations
from virt_admit.model.kubevirt.instances.vm_lookup import FoundVm
from virt_admit.model.kubevirt.launcher.launcher_pod import MIGRATION_JOB
from virt_admit.model.kubevirt.settings import removed_operators
from virt_admit.model.problems import Problem
from virt_admit.reports.explain import rights
from virt_admit.reports.explain.vm.report import BudgetOfVm, VolumeOfVm


def of_problems(problems: Sequence[Problem]) -> Iterator[str]:
    """Yield the commands that repair what keeps a VM on its node, without a restart that has to
    wait for its window.
    """
    typed = (problem.command.partition(_LATER)[0] for problem in problems)
    yield from filter(None, typed)


_LATER: Final = "; then, "
"""What ``typed_remedies`` puts before a command for the maintenance window."""


def of_running(
    found: FoundVm, state: VmState, events: Sequence[EventForecast], cluster: Cluster
) -> Iterator[str]:
    """Yield the commands about a VM that runs."""
    name, where = argument(found.name), ("-n", found.namespace)
    if state.state is State.STALE_MARK or way_to_stay(found.obj, state, cluster):
        yield evacuate_cancel(found.obj, cluster)
    for namespace, holder in state.holders[:1]:
        yield shell("virt-admit", "explain", f"vm/{holder}", "-n", namespace)
    if state.state is State.TWO_PODS and state.detail:
        yield shell("kubectl", "describe", "pod", argument(state.detail), *where)
    if state.migration is not None:
        uid = state.migration.metadata["uid"].text
        if state.state in _OF_TARGET and uid:
            yield shell("kubectl", "describe", "pods", *where, "-l", f"{MIGRATION_JOB}={uid}")
        yield shell("kubectl", "get", "vmim", argument(state.migration.name), *where, "-o", "yaml")
    elif state.failure is not None and state.failure.migration:
        failed = argument(state.failure.migration)
        yield shell("kubectl", "get", "vmim", failed, *where, "-o", "yaml")
    moves = (each for each in events if each.event is VmEvent.MIGRATION)
    starts = any(each.outcome == EventEffect.STARTS for each in moves)
    # else it waits for the same places
    if starts and not state.holders and not frozen_guests.is_frozen(found.obj):
        yield shell("virtctl", "migrate", name, *where)
    if state.state is State.QUOTA or any("Quota" in each.reason for each in events):
        yield shell("kubectl", "describe", "resourcequota", *where)
    yield shell("kubectl", "describe", "vmi", name, *where)
    node = found.obj.at("status", "nodeName").text
    if node:
        drained = ("--follow",) if _is_cordoned(node, cluster) else ()
        yield shell("virt-admit", "drain", argument(node), *drained)


def _is_cordoned(node: str, cluster: Cluster) -> bool:
    found = (each for each in cluster.known(NODE) if each.name == node)
    return any(each.at("spec", "unschedulable").boolean is True for each in found)


_OF_TARGET: Final = (
    State.UNSCHEDULABLE,
    State.TARGET_PENDING,
    State.TARGET_NOT_READY,
    State.PREPARING,
)
"""States in which the target pod tells why the migration does not go on."""


def of_stopped(
    found: FoundVm, run_strategy: str | None, cluster: Cluster, *, kept: bool
) -> Iterator[str]:
    """Yield the commands about a VM that does not run.

    ``kept``: whether something is known to keep it from its start.
    """
    where = ("-n", found.namespace)
    known = lifecycle.VIRTCTL.get(run_strategy or "")
    phase = found.vmi.at("status", "phase").text if found.vmi is not None else None
    # with RerunOnFailure it fails while the VMI is Failed
    may_start = found.vmi is None or phase == "Succeeded"
    startable = known is not None and known.start is not None and may_start
    vm = found.vm
    kubevirt = removed_operators.kubevirt(cluster) is None
    if (
        startable
        and not kept
        and kubevirt
        and vm is not None
        and not vm.deleted
        and not vm.at("status", "restoreInProgress").text  # KubeVirt refuses it, or waits
        and not vm_writes.refused_start(vm, cluster)
        and not failed_plans.may_have_copy(vm, cluster)
        and restored_claims.under_way(vm, cluster) is None
    ):
        yield shell("virtctl", "start", argument(found.name), *where)
    kind = "vm" if found.vm is not None else "vmi"
    yield shell("kubectl", "describe", kind, argument(found.name), *where)


_ABSENT: Final = " does not exist"
"""What the problem of a claim ends with that no command can show."""


def of_parts(
    namespace: str,
    budgets: Sequence[BudgetOfVm],
    volumes: Sequence[VolumeOfVm],
    control: Sequence[Component],
    forbidden: Sequence[str],
) -> Iterator[str]:
    """Yield the commands about what is broken around a VM."""
    where = ("-n", namespace)
    for budget in budgets:
        if budget.blocks:
            yield shell("kubectl", "describe", "poddisruptionbudget", argument(budget.name), *where)
    for volume in volumes:
        plugged = volume.problem.startswith(LACKS) and volume.phase == "Bound"
        if plugged or volume.problem.endswith(_ABSENT):
            continue  # nothing about the claim explains it
        if volume.problem and volume.claim:
            claim = argument(volume.claim)
            yield shell("kubectl", "describe", "persistentvolumeclaim", claim, *where)
    for part in control:
        if part.healthy is not True:
            label = f"kubevirt.io={part.component}"
            yield shell("kubectl", "get", "pods", "--all-namespaces", "-l", label)
    yield from map(rights.command, forbidden)


_AVOID: Final = {
    State.POST_COPY: (
        "leave the migration, its pods and both nodes alone until it ends: otherwise the guest is "
        "lost"
    ),
    State.TWO_PODS: (
        "leave both pods alone while the guest may run: two guests on one disk destroy its data"
    ),
    State.STALE_MARK: "a new migration does not help: the mark stays",
    State.MARKED: "an uncordon does not end the evacuation",
    State.BACKOFF: "another migration by hand meets the same cause: remove that first",
    State.RUNNING: "do not cancel the migration: that of a drain starts again from the beginning",
}


def avoid(state: VmState, vmi: Object, cluster: Cluster) -> tuple[str, ...]:
    """Return what not to do while a VM is in this state."""
    if state.state is State.TWO_PODS and left_pods.of_vmi(vmi, cluster) is not None:
        return ()  # the guest has certainly left one of them
    if state.state is State.TWO_PODS and (stale := left_pods.stale(vmi, cluster)) is not None:
        return (f"do not delete the pod on {stale.here}: the guest runs in it",)
    if state.state is State.TWO_PODS and _is_left(state.detail, vmi, cluster):
        return (_OLD_POD,)
    if vm_states_left.is_unended(vmi, state):
        return (_ACTIVE,)
    if state.state is State.RUNNING and (
        state.migration is None or not migrations.is_automatic(state.migration)
    ):
        return ()
    if state.state is State.RUNNING and migrations.copies(vmi):
        return (_COPIES,)
    return (_AVOID[state.state],) if state.state in _AVOID else ()


_ACTIVE: Final = (
    "do not cancel the migration or delete a pod of it before it is seen in which one the guest "
    "runs"
)


_COPIES: Final = (
    "do not cancel the migration, which starts again from the beginning: to give the copy of the "
    "disks up, name the former claims in the VM again"
)


_OLD_POD: Final = (
    "leave the old pod to its kubelet: its containers may still use the disk, and no deletion of "
    "the pod ends them"
)


def _is_left(pod: str, vmi: Object, cluster: Cluster) -> bool:
    """Return whether a migration has certainly moved the guest away from a pod of a VMI."""
    old = vm_states_left.other_pod(vmi, pod, cluster)
    return old is not None and bool(dying_pods.target(vmi, old.at("spec", "nodeName").text or "-"))
