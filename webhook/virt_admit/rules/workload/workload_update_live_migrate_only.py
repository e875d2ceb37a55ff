"""Workload updates skip virtual machines that cannot migrate.

**Why.** With ``LiveMigrate`` as the only method, an update skips a VM that cannot migrate. The VM
keeps its old launcher, with its bugs and vulnerabilities, until it is restarted. While an update
moves the other VMs, this is a note. It is also a note where all of them set the eviction strategy
``None``: their owners chose when they are shut down.

**Fix.** After an update, restart such VMs one by one when that suits, so that copies of one
application are not down together. With ``Evict`` as second method KubeVirt shuts down those VMs in
batches of ``batchEvictionSize`` (10 by default) at each update, at once if they are outdated. Those
that their run strategy starts again are updated, the others stay off. KubeVirt refuses the eviction
of a VM with the eviction strategy ``LiveMigrate``.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from virt_admit.forecasts.drain import workload_updates
from virt_admit.forecasts.drain.guests import changed_disks
from virt_admit.model.commands import shell
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, VMI
from virt_admit.model.kubevirt.instances import expand, vmis
from virt_admit.model.kubevirt.instances.lifecycle import Eviction
from virt_admit.model.messages import count, names
from virt_admit.rule import Action, Cluster, Context, Finding, Findings, Object, Unseen, rule, union


@rule(
    kinds=(HCO, KUBEVIRT),
    reads=union(vmis.READS, vmis.OWNER_READS, expand.STRATEGY_READS, changed_disks.DISK_READS),
    action=Action.WARN,
    sources=(
        "OpenShift Virtualization, Updates 6.2.1",
        (
            "kubevirt/kubevirt:pkg/virt-controller/watch/workload-updater/"
            "workload-updater.go#getUpdateData #sync"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    if workload_updates.methods(obj) != {workload_updates.LIVE_MIGRATE}:
        return
    skipped = workload_updates.not_migratable(context.cluster)
    if skipped:
        old = bool(workload_updates.outdated(context.cluster))
        noted = workload_updates.left_to_migrate(context.cluster) or _are_restarted_by_choice(
            skipped
        )
        path, number = workload_updates.listed(obj).path, count(len(skipped), "VM")
        found = [vmi.full_name for vmi in skipped]
        they = "it" if len(skipped) == 1 else "them"
        messages = (
            f"{number} cannot migrate ({why}), so updates skip {they}{which}. {remedy}"
            for remedy in _remedies(obj, context.cluster, they)
            for which in (*(f": {names(found, width)}" for width in (30, 1)), "")
            for why in _reasons(skipped)
        )
        message = check.first_that_fits(path, *messages)
        # before an update the label selects none of them, and wide shows LIVE-MIGRATABLE
        which = ("-l", vmis.OUTDATED) if old else ("-o", "wide")
        listed = shell("kubectl", "get", "vmi", "-A", *which)
        yield Finding(
            path,
            message,
            value=(workload_updates.LIVE_MIGRATE, len(skipped)),
            command=listed if f". Restart {they} " in message else "",
            max_action=Action.AUDIT if noted else Action.DENY,
        )
    yield from more_may_exist(context.cluster, VMI)


def _reasons(skipped: Sequence[Object]) -> Iterator[str]:
    """Yield why VMs cannot migrate, with how many of them if the reasons differ: the longest words
    first.
    """
    reasons = Counter(map(vmis.blocking_reason, skipped)).most_common()
    if len(reasons) > 1:
        yield ", ".join(f"{number} {reason}" for reason, number in reasons)
        most, others = reasons[0], len(skipped) - reasons[0][1]
        yield f"{most[1]} {most[0]}, {count(others, 'other')}"
        yield f"{len(reasons)} reasons"
    else:
        yield reasons[0][0]


def _are_restarted_by_choice(skipped: Sequence[Object]) -> bool:
    return all(vmi.at("spec", "evictionStrategy").text == "None" for vmi in skipped)


def _remedies(obj: Object, cluster: Cluster, they: str) -> Iterator[str]:
    """Yield the remedy with what an eviction would do to the VMs: the longest words first."""
    skipped = workload_updates.not_migratable(cluster)
    if kept := changed_disks.endangered(skipped, cluster):
        yield kept
        return
    restarts, off, others = _after_evict(obj, cluster)
    # they may be copies of one application
    suits, later = ("one by one",) * 2 if they == "them" else ("when it suits", "later")
    if not workload_updates.outdated(cluster):  # an update has skipped none yet
        suits = later = "one by one then" if they == "them" else "then"
    begin = f"Restart {they} {suits}; Evict"
    if restarts == len(skipped):
        together = min(workload_updates.batch(obj), restarts)
        does = f"restarts {together} at once" if together > 1 else "does so"
        moves = workload_updates.left_to_migrate(cluster)
        yield f"{begin} {does}{' now' if moves else ' at each update' if together < 2 else ''}."
        return
    # KubeVirt may refuse the eviction of the others, or what follows could not be read
    fails = f", and the eviction may fail for {others}" if others else ""
    glue = ", " if fails else " and "
    done = (f"restarts {restarts or 'none'}",) if restarts or not off else ()
    long, short, number = (
        f"{glue.join((*done, *((f'leaves {which} off',) if off else ())))}{fails}."
        for which in (names(off, 60), names(off, 1), len(off))
    )
    yield f"{begin} {long}"
    yield f"{begin} {short}"
    yield f"Restart {they} {later}; Evict {short}"
    yield f"{begin} {number}"
    yield f"Restart {they} {later}; Evict {number}"


def _after_evict(obj: Object, cluster: Cluster) -> tuple[int, Sequence[str], int]:
    """Return how many of the VMs that cannot migrate start again after an eviction, which of them
    are shut down and stay off, and how many others there are.
    """
    restarts, off, others = 0, [], 0
    for vmi, migratable, eviction in workload_updates.evictions(obj, cluster):
        if migratable is not False:
            continue
        after = workload_updates.after_shutdown(vmi, cluster)
        if eviction is not Eviction.SHUTS_DOWN or isinstance(after, Unseen):
            others += 1
        elif after.comes:
            restarts += 1
        else:
            off.append(f"{vmi.full_name} ({after.why.removeprefix('runStrategy ')})")
    return restarts, off, others
