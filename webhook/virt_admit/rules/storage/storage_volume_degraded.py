"""A volume of Longhorn stays degraded, as no node takes a further replica or none is rebuilt.

**Why.** The volume works, with fewer copies of its data than it asks for. The loss of one more node
may end its guest, Harvester drains no node for an upgrade, and Longhorn before 1.10.2 attaches no
copy of a volume before that copy is healthy.

**Fix.** Let the node that the finding names take replicas again, or give Longhorn a further node or
disk. Where fewer nodes store replicas than a volume asks for, set its ``numberOfReplicas`` to what
it has, as a decision. Where new replicas hold the rebuild slots of one another, raise
``concurrent-replica-rebuild-per-node-limit``.

Volumes whose replicas are being rebuilt are not reported, and those that lack the replica of a
cordoned node only after a day.
"""

from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.targets import rebuild_slots
from virt_admit.forecasts.placement.components.longhorn import unfinished_clones, unplaced_replicas
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.kinds import LONGHORN_VOLUME
from virt_admit.model.messages import advice_of, command_of, ended
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union

_PATIENCE: Final = timedelta(minutes=10)
"""A node that reboots takes replicas again by then."""
_MAINTENANCE: Final = timedelta(days=1)
"""A cordoned node lacks its replicas until its administrator is done."""


@rule(
    kinds=(LONGHORN_VOLUME,),
    reads=union(
        clock.READS,
        rebuild_slots.READS,
        unfinished_clones.READS,
        {LONGHORN_VOLUME: ("status.lastDegradedAt",)},
    ),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "longhorn/longhorn-manager:scheduler/replica_scheduler.go#FindDiskCandidates",
        "longhorn/longhorn-manager:types/volumes.go#IsVolumeReady",
        "https://github.com/harvester/harvester/issues/9538",
    ),
)
def check(volume: Object, context: Context) -> Findings:
    cluster, scheduled = context.cluster, volume.condition("Scheduled")
    found = unplaced_replicas.of(volume, cluster)
    if found is None:
        yield from _without_slot(volume, context)
    since = scheduled["lastTransitionTime"].text
    patience = _MAINTENANCE if found is not None and found.maintained else _PATIENCE
    if found is None or not clock.has_lasted(since, patience, cluster):
        return
    copied = unfinished_clones.state(volume, cluster)
    first = f"it {copied}. It stays degraded: {found.why}" if copied else ""
    yield _finding(volume, found.remedy, first, f"it stays degraded: {found.why}")


def _without_slot(volume: Object, context: Context) -> Findings:
    """Yield that no replica of a degraded volume is rebuilt, and none will be."""
    cluster, status = context.cluster, volume["status"]
    since = status["lastDegradedAt"].text
    degraded = status["state"].text == "attached" and status["robustness"].text == "degraded"
    held = rebuild_slots.waits([volume], cluster) if degraded else None
    if held is None or not held.remedy or not clock.has_lasted(since, _PATIENCE, cluster):
        return
    stays = (f"it stays degraded: {why}" for why in (held.why, held.brief))
    yield _finding(volume, held.remedy, *stays)


def _finding(volume: Object, remedy: str, longer: str, shorter: str) -> Finding:
    """Return that a volume stays degraded, in as many words as fit. ``longer`` may be empty."""
    path = volume.metadata["name"].path
    advice = ended(advice_of(remedy).partition(" (kubectl")[0])
    texts = (f"{why}. {advice}" for why in (longer, shorter) if why)
    message = check.first_that_fits(path, *texts, f"{shorter}.")
    return Finding(path, message, value=volume.name, command=command_of(remedy))
