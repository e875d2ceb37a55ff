"""A Ceph cluster takes no writes: it is full, or a part of its data is unavailable.

**Why.** Ceph refuses the writes to all pools that have data on an OSD that is full. A guest gets no
error, but waits: its VMI is Running and reports nothing. New claims get no volume. A pool that has
reached its quota is only reported, because it may have no disks of VMs.

**Fix.** Add OSDs, or delete what is not needed. To be able to delete, raise the full ratio a little
for a while.
"""

from virt_admit.forecasts.outage.storage import disks
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, POD
from virt_admit.model.kubernetes.reads import CONDITIONS, LateReads, Reads, union
from virt_admit.model.messages import advice_of, command_of, count, ended, names
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


def _reads() -> Reads:
    from virt_admit.forecasts.placement.starts import pod_starts  # noqa: PLC0415 - see LateReads

    own: Reads = {
        POD: (
            *("metadata.labels", "spec.nodeName", "spec.volumes", "status.phase"),
            *("status.conditions.lastTransitionTime", *CONDITIONS),
        ),
        CEPH_CLUSTER: ("metadata.ownerReferences", "status.ceph"),
    }
    return union(clock.READS, disks.READS, pod_starts.READS, own)


@rule(
    kinds=(CEPH_CLUSTER,),
    reads=LateReads(_reads),
    action=Action.WARN,
    urgency=Urgency.DOWN,
    at_admission=False,
    sources=(
        "ceph/ceph:doc/rados/operations/health-checks.rst#OSD_FULL",
        "https://github.com/rook/rook/issues/5882",
    ),
)
def check(ceph: Object, context: Context) -> Findings:
    from virt_admit.forecasts.outage.storage import ceph_guests  # noqa: PLC0415 - few have Ceph

    found = ceph_guests.stopped(ceph, context.cluster)
    if found is None:
        return
    path = ceph.at("status", "ceph", "details").path
    starting = ceph_guests.starting(ceph, context.cluster)
    guests = ceph_guests.of(ceph, context.cluster)
    whose = f" of {count(len(guests), 'VM')} ({names(guests)})" if guests else ""
    if found.pool:
        words = f"{found.reason}: VMs with disks in that pool may wait for their writes."
    elif found.full:
        words = f"{found.reason}: writes{whose} wait, and new claims get no volume."
    else:
        held = "does not start" if len(starting) == 1 else "do not start"
        stuck = f"{names(starting)} {held}, and " if starting else ""
        words = f"{found.reason}: {stuck}reads or writes{whose} may wait."
    advice = advice_of(found.remedy)
    first = ended(advice.partition("; ")[0])
    yield Finding(
        path,
        check.first_that_fits(
            path, f"{words} {advice}", f"{words} {first}", f"{found.reason}. {advice}", words
        ),
        max_action=Action.AUDIT if found.pool or found.may_pass else Action.DENY,
        command=command_of(found.remedy),
    )
