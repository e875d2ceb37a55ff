"""A VMI is marked for evacuation, and nothing moves it.

**Why.** A drain or an upgrade has asked for it (``status.evacuationNodeName``) and waits. No migration is under way:
all of them failed, the limits are used up, or the strategy is ``External`` and no controller acts.

**Fix.** See why its last migration failed (``kubectl get vmim``), free the limits, or shut the VM down. Undoing the
maintenance does not take the mark away: ``virtctl evacuate-cancel`` does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from virt_admit.model import clock
from virt_admit.model.cluster import Cluster
from virt_admit.model.kinds import VMI
from virt_admit.model.kubevirt import migrations
from virt_admit.model.objects import Object
from virt_admit.model.reads import union
from virt_admit.model.units import format_duration
from virt_admit.rule import Action, Context, Finding, Rule, duration


@dataclass(frozen=True)
class Params:
    """What is long."""

    longest: int = duration("15m", "how long nothing may happen before it counts as stuck")


def check(vmi: Object, context: Context[Params]) -> Iterator[Finding]:
    mark = vmi.at("status", "evacuationNodeName")
    if not mark.text or vmi.deleted or any(migrations.unfinished(vmi, context.cluster)):
        return
    longest = context.params.longest
    now, last = clock.now(context.cluster), _last_event(vmi, context.cluster)
    if now is not None and last is not None and now - last < timedelta(microseconds=longest // 1000):
        return
    yield Finding(
        mark.path,
        f"a drain of {mark.text} waits for it, and for {format_duration(longest)} or more no migration was under way; "
        "see why the last one failed, or shut it down",
    )


def _last_event(vmi: Object, cluster: Cluster) -> datetime | None:
    """When the mark was set, a migration ended or the VMI was made, whichever was last; None: nothing tells."""
    marks = (
        entry["time"]
        for entry in vmi.metadata["managedFields"].items()
        if entry.at("fieldsV1", "f:status", "f:evacuationNodeName").present
    )
    moves = (
        time
        for migration in migrations.of_vmi(vmi, cluster)
        for time in (migration.metadata["creationTimestamp"], migration.at("status", "migrationState", "endTimestamp"))
    )
    times = (clock.instant(time.text) for time in (vmi.metadata["creationTimestamp"], *marks, *moves))
    return max(filter(None, times), default=None)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(VMI,),
    reads=union(migrations.READS, clock.READS),
    action=Action.AUDIT,
    event="DrainBlocked",
    at_admission=False,
    params=Params(),
    check=check,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/drain/evacuation/evacuation.go",
        "kubevirt/kubevirt#5177",
        "kubevirt/kubevirt#9585",
    ),
)
