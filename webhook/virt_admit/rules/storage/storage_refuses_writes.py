"""A Ceph cluster takes no writes: it is full, or a part of its data is unavailable.

**Why.** Ceph refuses the writes to all pools that have data on an OSD that is full. A guest gets no
error, but waits: its VMI is Running and reports nothing. New claims get no volume. A pool that has
reached its quota is only reported, because it may have no disks of VMs.

**Fix.** Add OSDs, or delete what is not needed. To be able to delete, raise the full ratio a little
for a while.
"""

from virt_admit.forecasts.outage.storage import disks
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER
from virt_admit.model.messages import advice_of, command_of, count, names
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union


@rule(
    kinds=(CEPH_CLUSTER,),
    reads=union(clock.READS, disks.READS),
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
    guests = ceph_guests.of(ceph, context.cluster)
    whose = f" of {count(len(guests), 'VM')} ({names(guests)})" if guests else ""
    if found.pool:
        words = f"{found.reason}: VMs with disks in that pool may wait for their writes."
    elif found.full:
        words = f"{found.reason}: writes{whose} wait, and new claims get no volume."
    else:
        words = f"{found.reason}: reads or writes{whose} wait."
    advice = advice_of(found.remedy)
    yield Finding(
        path,
        check.first_that_fits(path, f"{words} {advice}", f"{found.reason}. {advice}", words),
        max_action=Action.AUDIT if found.pool else Action.DENY,
        command=command_of(found.remedy),
    )
