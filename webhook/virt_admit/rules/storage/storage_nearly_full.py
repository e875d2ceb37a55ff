"""A Ceph cluster is nearly full.

**Why.** As soon as one OSD is full, Ceph refuses the writes to all pools that have data on it. The
guests then wait without an error.

**Fix.** Add OSDs, or delete images, snapshots and claims that are not needed.
"""

from virt_admit.forecasts.outage.storage import disks
from virt_admit.model.commands import about
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER
from virt_admit.rule import Action, Context, Finding, Findings, Object, count, rule


@rule(
    kinds=(CEPH_CLUSTER,),
    reads=disks.READS,
    action=Action.AUDIT,
    at_admission=False,
    sources=("ceph/ceph:doc/rados/operations/health-checks.rst#OSD_NEARFULL",),
)
def check(ceph: Object, context: Context) -> Findings:
    from virt_admit.forecasts.outage.storage import ceph_guests  # noqa: PLC0415 - few have Ceph

    if words := ceph_guests.filling(ceph):
        guests = ceph_guests.of(ceph, context.cluster)
        whose = f"of {count(len(guests), 'VM')} in it" if guests else "of VMs in it"
        stops = f"Once an OSD is full, the writes {whose} wait without an error"
        yield Finding(
            ceph.at("status", "ceph", "details").path,
            f"it fills up ({words}). {stops}. Add OSDs, or delete what is not needed.",
            command=about("describe", ceph, CEPH_CLUSTER),
        )
