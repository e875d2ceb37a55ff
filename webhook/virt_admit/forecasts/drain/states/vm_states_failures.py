"""Migrations that fail like the last ones, and migrations that cannot end in time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.failed_migrations import (
    convergence,
    pair_remedies,
    remedies,
    shortened_state,
    small_targets,
)
from virt_admit.forecasts.drain.states import launcher_changes, vm_states_targets, vm_states_times
from virt_admit.forecasts.drain.states.vm_states_kinds import Ruling, State, StateEffect, VmState
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes.clock import duration
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import VMIM
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import (
    migration_failures,
    migration_timeouts,
    migrations,
    vmis,
    vms,
)
from virt_admit.model.kubevirt.instances.migration_failures import FailureClass
from virt_admit.model.kubevirt.instances.migration_timeouts import MigrationSettings
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.messages import count, cut_middle, names, sentence
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.resources import MEMORY, show


def repeats(
    vmi: Object, found: VmState, target: SchedulingTarget, cluster: Cluster
) -> Ruling | None:
    """Return why the next migration fails like the last ones; None: it may succeed."""
    return of_pairs(vmi, found, target, cluster) or (
        None if found.state in _ENDS_NOW else of_load(vmi, cluster) or of_same_words(vmi, cluster)
    )


_ENDS_NOW: Final = (State.POST_COPY, State.PAUSED, State.NOT_CLOSED, State.ARRIVED)


def of_pairs(
    vmi: Object, found: VmState, target: SchedulingTarget, cluster: Cluster
) -> Ruling | None:
    """Return why no repetition of its migrations helps, whatever the guest does; None: one may."""
    if found.state in _ENDS_NOW:
        return None
    impossible = _impossible(vmi, cluster)
    small = small_targets.problem(vmi, impossible.values(), cluster)
    if small is not None:
        return Ruling(StateEffect.BLOCKS, small.reason, small.remedy, ProblemCause.MIGRATION_FAILS)
    if impossible and found.target not in (
        set(target.placement.candidates) | {found.target or "-"}
    ) - set(impossible):
        open_nodes = set(target.placement.candidates) | set(target.placement.undetermined)
        tries = sum(
            each.kind is FailureClass.PAIR for each in migration_failures.in_a_row(vmi, cluster)
        )
        launcher = launcher_changes.of_cpu(vmi, cluster)
        everywhere = len(impossible) == 1 or launcher or of_devices(vmi, cluster)
        if not open_nodes - set(impossible) or (tries >= migrations.RETRY_LOOP and everywhere):
            if launcher or is_of_launcher(vmi, cluster):
                return _since_update(vmi, impossible, cluster)
            untried = sorted(open_nodes - set(impossible)) if not of_devices(vmi, cluster) else []
            where = (
                f"on each node tried so far, not yet {names(untried)}"
                if untried
                else "on every node"
            )
            reason = f"migrations fail {where}: {_pairs(impossible, cluster)}"
            remedy = (
                pair_remedies.of_devices(vmi)
                if of_devices(vmi, cluster)
                else launcher_changes.remedy_of_withheld(vmi, impossible, cluster)
                or pair_remedies.of(impossible.values())
            )
            return Ruling(StateEffect.BLOCKS, reason, remedy, ProblemCause.MIGRATION_FAILS)
    return None


def _impossible(vmi: Object, cluster: Cluster) -> dict[str, str]:
    """Return the nodes to which no migration of a VMI succeeds now, each with the reason."""
    found = migration_failures.impossible_targets(vmi, cluster)
    of_size = small_targets.is_of_size(found.values())
    return {} if of_size and small_targets.is_past(vmi, cluster) else found


def of_load(vmi: Object, cluster: Cluster) -> Ruling | None:
    """Return that the next migration ends at its timeout like the last ones; None: they did not."""
    loads = migration_failures.loads_in_a_row(vmi, cluster)
    settings = migration_timeouts.settings(vmi, vmi["-"], cluster) if loads else None
    last = migration_failures.in_a_row(vmi, cluster)[-1] if loads else None
    if last is not None and migration_failures.is_without_progress(last):
        return _without_progress(vmi, last.text, loads, settings, cluster)
    if loads and not (settings is not None and settings.ends_at_deadline):
        failed = migration_failures.in_a_row(vmi, cluster)[-loads:]
        ended = sorted(each.lasted for each in failed if each.lasted is not None)
        limit = ended[-1] if ended else None
        after = f" after {_between(ended[0], ended[-1])}" if ended else ""
        remedy = load_remedy(vmi, settings, cluster)
        why = _why(vmi, settings, limit, cluster)
        if loads > 1:
            each_time = f"{after} each" if ended and ended[0] == ended[-1] else after
            reason = f"its last {loads} migrations were cancelled{each_time}: timed out{why}"
            return Ruling(StateEffect.BLOCKS, reason, remedy, ProblemCause.MIGRATION_FAILS)
        reason = f"its last migration was cancelled{after}: timed out, and so may the next"
        return Ruling(StateEffect.UNKNOWN, reason, remedy)
    return None


def of_same_words(vmi: Object, cluster: Cluster) -> Ruling | None:
    """Return that the last two migrations failed with the same words, so that the next one may fail
    as well; None: they did not, or the setting that they name was changed since.
    """
    failed = migration_failures.in_a_row(vmi, cluster)
    if len(failed) < _TWICE or _is_changed_since(vmi, failed[-1], cluster):
        return None
    before, last = (_without_names(each) for each in failed[-_TWICE:])
    if not last or before != last or failed[-1].kind is not FailureClass.MOMENT:
        return None
    targets = sorted({each.target for each in failed[-_TWICE:] if each.target})
    if _GIVEN_UP.search(last) or (len(targets) < _TWICE and _PASSES.search(last)):
        return None
    where = f" (to {names(targets)})" if targets else ""
    reason = (
        f"its last {_TWICE} migrations{where} failed with the same words, and so may the next: "
        f"{cut_middle(failed[-1].text, 200)}"
    )
    name = failed[-1].migration
    described = kubectl("describe", VMIM, name, vms.namespace_of(vmi)) if name else ""
    there = remedies.of_target(vmi, failed[-1], cluster)
    way = there.remedy if there is not None else typed(remedies.of(failed[-1].text), described)
    return Ruling(StateEffect.UNKNOWN, reason, way)


_TWICE: Final = 2
_GIVEN_UP: Final = re.compile("abort|cancel")
"""Words of migrations that a user ended: those of time-outs are of another class."""
_PASSES: Final = re.compile(
    "connection (?:refused|reset)|no route|timed out|unable to connect|target pod[^:]*$"
)
"""Words of one target that a moment explains."""
_VARIES: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]*[0-9][0-9a-f.:-]*")
"""Numbers, times, addresses and uids, each from its begin: else long words cost their square."""


def _without_names(failure: migration_failures.Failure) -> str:
    """Return the words of a failure without what differs from one migration to the next."""
    target = rf"\b{re.escape(failure.target)}\b" if failure.target else "(?!)"
    return _VARIES.sub("", re.sub(target, "", failure.text).lower())


def _is_changed_since(vmi: Object, last: migration_failures.Failure, cluster: Cluster) -> bool:
    """Whether a migration failed as it may switch to post-copy, and the next one may not."""
    of_post_copy = migration_failures.is_of_post_copy(last)
    return of_post_copy and not migration_timeouts.may_post_copy(vmi, cluster)


def _between(shortest: timedelta, longest: timedelta) -> str:
    """Return how long something lasts, or from what to what."""
    low, high = duration(shortest), duration(longest)
    return low if low == high else f"{low} to {high}"


def _without_progress(
    vmi: Object, text: str, times: int, settings: MigrationSettings | None, cluster: Cluster
) -> Ruling:
    """Return that the last migrations made no progress: the guest writes as fast as they copy."""
    limit = (
        f" (bandwidthPerMigration {show(MEMORY, int(settings.bandwidth))})"
        if settings and settings.bandwidth
        else ""
    )
    ended = sorted(
        each.lasted
        for each in migration_failures.in_a_row(vmi, cluster)[-times:]
        if each.lasted is not None
    )
    after = f" after {_between(ended[0], ended[-1])}" if ended else ""
    why = convergence.cause(vmi, settings, cluster)
    if times >= migrations.RETRY_LOOP:  # else the network may have failed for a moment
        reason = (
            f"its last {times} migrations were aborted{after}, so will the next: {text}{limit}{why}"
        )
        return Ruling(
            StateEffect.BLOCKS,
            reason,
            load_remedy(vmi, settings, cluster),
            ProblemCause.MIGRATION_FAILS,
        )
    which = "migration was" if times == 1 else f"{times} migrations were"
    reason = f"its last {which} aborted{after}, and so may the next: {text}{limit}{why}"
    return Ruling(StateEffect.UNKNOWN, reason, load_remedy(vmi, settings, cluster))


def _since_update(vmi: Object, impossible: dict[str, str], cluster: Cluster) -> Ruling:
    """Return that migrations fail since the launcher was updated, on nodes that have the same CPU,
    or for its devices.
    """
    said = cut_middle("; ".join(dict.fromkeys(impossible.values())), 200)
    tried = names(sorted(impossible))
    reason = (
        f"since the update of KubeVirt each migration {launcher_changes.words(vmi, cluster)} "
        f"fails, on any node (tried: {tried}): {said}"
    )
    remedy = (
        pair_remedies.of_devices(vmi)
        if of_devices(vmi, cluster)
        else pair_remedies.CPU_LAUNCHER_REMEDY
    )
    return Ruling(StateEffect.BLOCKS, reason, remedy, ProblemCause.MIGRATION_FAILS)


def _why(
    vmi: Object, settings: MigrationSettings | None, limit: timedelta | None, cluster: Cluster
) -> str:
    """Return why migrations reach their deadline again and again: it does not count their disks,
    or was enough to copy the memory repeatedly.
    """
    size = migration_timeouts.size(vmi)
    if settings is None or not limit or not size:
        return ""
    if migration_timeouts.moves_volumes(vmi):
        release = versions.kubevirt_version(cluster)
        given = settings.completion * size / migration_timeouts.GB
        if migration_timeouts.counts_disks(cluster) or limit.total_seconds() >= given:
            return ""
        return (
            f", as KubeVirt {release} counts its memory alone and not the disks that it copies "
            f"(completionTimeoutPerGiB {settings.completion})"
        )
    per_second = settings.bandwidth
    times = int(limit.total_seconds() * (per_second or vm_states_times.SLOW) / size)
    if times < _SEVERAL:
        return ""
    off = "" if settings.auto_converge else ", and allowAutoConverge is off"
    at = "the bandwidth limit" if per_second else "1 Gbit/s"
    return (
        f", although its memory could be copied {times} times at {at}: it is written faster than "
        f"it is copied{off}"
    )


_SEVERAL: Final = 2
"""A guest that writes no memory is copied once."""


POST_COPY: Final = (
    "or, as a decision, set allowPostCopy with allowWorkloadDisruption (the loss of a node then "
    "ends the guest)"
)
LOWER_LOAD: Final = "or lower its load"
"""How remedies end against a guest that writes memory faster than it is copied."""
VOLUME_REMEDY: Final = "raise completionTimeoutPerGiB"
"""How remedies begin against a copy of disks that times out."""


def _more_time(vmi: Object, settings: MigrationSettings | None, cluster: Cluster) -> str:
    """Return what lets a copy of disks end, and what gives it up."""
    counted = migration_timeouts.counts_disks(cluster)
    if counted or settings is None:
        counts = ", which counts for each GB of its disks too" if counted else ""
        return f"{VOLUME_REMEDY}{counts}; or give migrations more bandwidth"
    enough = migration_timeouts.sufficient(vmi, settings)
    to = f" to {enough} or more" if enough else ""
    fixed = versions.Feature.COPIED_DISKS_COUNT.since
    former = [each.source for each in migrations.copies(vmi)]
    cancel = f"name {names(former)} in the VM again, which ends the copy" if former else ""
    return "; or ".join(
        filter(
            None,
            (
                f"{VOLUME_REMEDY}{to} (a MigrationPolicy does it for this VM alone)",
                f"update KubeVirt to {fixed} or later, which counts the disks",
                cancel,
            ),
        )
    )


def is_of_launcher(vmi: Object, cluster: Cluster) -> bool:
    """Whether migrations fail as virt-launcher is older than KubeVirt, so that a restart helps."""
    return vmis.OUTDATED in vmi.labels and (
        of_devices(vmi, cluster) or launcher_changes.of_cpu(vmi, cluster)
    )


def of_devices(vmi: Object, cluster: Cluster) -> bool:
    """Whether each migration of a VMI since its last success failed because QEMU cannot take its
    devices.

    They depend on the QEMU that started the guest. All nodes run the same one, so the next node
    refuses them too.
    """
    failed = migration_failures.in_a_row(vmi, cluster)
    return bool(failed) and all(migration_failures.is_of_devices(each.text) for each in failed)


def load_remedy(
    vmi: Object, settings: MigrationSettings | None, cluster: Cluster, *, last_resort: bool = True
) -> str:
    """Return what helps against a migration that times out: one that copies volumes needs the time,
    not less load.

    ``last_resort``: whether to name post-copy, which needs a decision.
    """
    if migration_timeouts.moves_volumes(vmi):
        return _more_time(vmi, settings, cluster)
    on = [] if settings is not None and settings.auto_converge else ["set allowAutoConverge"]
    limited = settings is not None and settings.bandwidth
    wider = (
        "raise bandwidthPerMigration"
        if limited
        else "give migrations more bandwidth on a network of their own"
    )
    # without the second one the first has no effect (rule migration-post-copy-inert)
    post_copy = settings is not None and settings.post_copy and settings.disruption
    further = convergence.before_deadline(vmi, settings, cluster)
    last = [f"{POST_COPY}{further}"] if last_resort and not post_copy else []
    return ", ".join((*on, wider, LOWER_LOAD, *last))


def failing(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why the next migration fails like the last ones, which a repetition might have
    repaired; None: it may not.
    """
    if cut := shortened_state.problem(vmi, cluster):
        return cut
    failed = migration_failures.in_a_row(vmi, cluster)
    moment = [each for each in failed if each.kind is FailureClass.MOMENT]
    held = remedies.of_one_vm(vmi, moment[-1].text, cluster) if moment else None
    if held is not None:
        which = len(moment) if len(moment) > 1 else "one"
        return held._replace(reason=f"each migration fails, as the last {which} did: {held.reason}")
    if moment and _is_changed_since(vmi, moment[-1], cluster):
        return None
    if len(moment) < migrations.RETRY_LOOP:
        return None
    text = moment[-1].text
    words = cut_middle(text, 200)
    targets = {each.target for each in failed}
    only = targets.pop() if len(targets) == 1 else ""
    where = f", each to {only}" if only else ""
    if only and (there := remedies.of_target(vmi, moment[-1], cluster)) is not None:
        which = f"its last {len(failed)} migrations failed{where}, and so will each to that node"
        return there._replace(reason=f"{which}: {there.reason}")
    reason = (
        f"its last {len(failed)} migrations failed{where}, so will the "
        f"next{f': {words}' if words else ''}"
    )
    if only and only == vmi.at("status", "nodeName").text:
        return _placed_on_its_own_node(vmi, only, reason)
    name = moment[-1].migration
    command = kubectl("describe", VMIM, name, vms.namespace_of(vmi)) if name else ""
    repair = remedies.of(text)
    repair = f"{repair}, and virt-handler on {only}" if only else repair
    return Problem(reason, repair, ProblemCause.MIGRATION_FAILS, command=command)


def again(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why the next migration fails or may fail like the last ones, also one by hand;
    None: they failed for several reasons, or only one did that may have been of the moment.
    """
    if cut := shortened_state.problem(vmi, cluster):
        return cut
    failed = migration_failures.in_a_row(vmi, cluster)
    if failed and remedies.of_one_vm(vmi, failed[-1].text, cluster) is not None:
        return failing(vmi, cluster)
    ruled = of_load(vmi, cluster) or of_same_words(vmi, cluster)
    if len(failed) < _TWICE or ruled is None:
        return None
    return failing(vmi, cluster) or Problem(ruled.reason, ruled.remedy, ruled.cause)


def _placed_on_its_own_node(vmi: Object, node: str, reason: str) -> Problem:
    """Return that its scheduler ignores the anti-affinity of target pods (kubevirt#18946)."""
    scheduler = vmi.at("spec", "schedulerName").text or "default-scheduler"
    why = (
        f"{reason}: {scheduler} puts its target pod on {node}, where the VM runs, against its "
        "required anti-affinity"
    )
    return Problem(
        why, vm_states_targets.own_node_remedy(vmi, scheduler), ProblemCause.MIGRATION_FAILS
    )


def _pairs(impossible: dict[str, str], cluster: Cluster) -> str:
    nodes: dict[str, list[str]] = {}
    for node, text in sorted(impossible.items()):
        nodes.setdefault(launcher_changes.pair_words(node, text, cluster), []).append(node)
    width = 120 if len(nodes) > 1 else 200
    return "; ".join(
        f"{names(some)}: {cut_middle(text, width)}" for text, some in list(nodes.items())[:3]
    )


def without_impossible(
    target: SchedulingTarget, vmi: Object, found: VmState, cluster: Cluster
) -> SchedulingTarget:
    """Return where a VMI could migrate, without the nodes on which its migrations keep failing.

    ``found``: the state of the VMI on its node.
    """
    target = vm_states_targets.without_failing(target, vmi, found, cluster)
    impossible = _impossible(vmi, cluster)
    if not impossible or small_targets.is_of_size(impossible.values()):
        return target  # a claim is too small for the copy, whatever the node
    launcher, words = launcher_changes.of_cpu(vmi, cluster), launcher_changes.pair_words
    judged = {
        **target.placement.judged,
        **{
            node: f"its migration failed: {text if launcher else words(node, text, cluster)}"
            for node, text in impossible.items()
        },
    }
    return target._replace(placement=replace(target.placement, judged=judged))


_LONG: Final = timedelta(hours=2)


def long_migration(vmi: Object, cluster: Cluster) -> str:
    """Return how long a migration of the VMI can last before KubeVirt cancels it, if that is hours;
    else empty. A guest that is paused writes nothing while it is copied.
    """
    settings = migration_timeouts.settings(vmi, vmi["-"], cluster)
    if settings is None or settings.ends_at_deadline or vmi.is_true("Paused"):
        return ""
    limit = migration_timeouts.seconds(vmi, settings, cluster)
    stuck = ", also without progress (progressTimeout 0)" if not settings.progress else ""
    if limit is None:
        endless = not settings.completion and not settings.progress
        return (
            f"a migration of {vmi.full_name} never ends if its guest is busy{stuck}"
            if endless
            else ""
        )
    if timedelta(seconds=limit) < _LONG and settings.progress:
        return ""
    last = duration(timedelta(seconds=limit))
    size = -(-migration_timeouts.size(vmi) // migration_timeouts.GB)
    why = f"completionTimeoutPerGiB {settings.completion} × {size} GB"
    return (
        f"a migration of {vmi.full_name} with a busy guest lasts at most {last}{stuck}, then is "
        f"cancelled and repeated: {why}"
    )


def long_migrations(moving: list[Object], cluster: Cluster) -> Iterator[str]:
    """Yield one note about the VMs of a node whose migration may last hours, the longest named."""
    found = [(migration_timeouts.size(vmi), vmi) for vmi in moving if long_migration(vmi, cluster)]
    if found:
        _, vmi = max(found, key=lambda each: (each[0], each[1].full_name))
        more = f" The same holds for {count(len(found) - 1, 'more VM')}." if len(found) > 1 else ""
        yield f"{sentence(long_migration(vmi, cluster))}{more}"
