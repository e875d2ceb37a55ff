"""A Ceph monitor waits for a node that no longer exists.

**Why.** Rook pins a monitor to its node, and replaces it once the node is gone. Where it finds no
node for another monitor, the old pod stays Pending, and the budget of the monitors lets no other
one be evicted: a drain of their nodes does not end. One more monitor less may stop the cluster.

**Fix.** Let a node hold another monitor, as the finding says, or give the node the hostname back
that the monitor demands. Never remove the budget.
"""

from virt_admit.forecasts.placement.components.drivers import rook_monitors
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import CEPH_CLUSTER, NODE, PDB, POD
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.lookups import find
from virt_admit.model.messages import advice_of, command_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule

_BUDGET = "rook-ceph-mon-pdb"


@rule(
    kinds=(CEPH_CLUSTER,),
    reads=union(rook_monitors.READS, {PDB: ("status.disruptionsAllowed",)}),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "rook/rook:pkg/operator/ceph/cluster/mon/health.go#failoverMon",
        "rook/rook:Documentation/Storage-Configuration/Advanced/ceph-mon-health.md",
    ),
)
def check(ceph: Object, context: Context) -> Findings:
    yield from more_may_exist(context.cluster, NODE)
    yield from more_may_exist(context.cluster, POD)
    for lost in rook_monitors.of_cluster(ceph, context.cluster):
        budget = find(context.cluster, PDB, ceph.namespace, _BUDGET)
        allowed = budget.at("status", "disruptionsAllowed").integer if budget is not None else None
        blocks = f"PodDisruptionBudget {_BUDGET} lets no other monitor be evicted until then."
        pending = lost.pod.at("status", "phase").text == "Pending"
        since = f", and is Pending for {clock.duration(lost.age)}" if pending else ""
        begin = f"pod {lost.pod.name} of {lost.owner} {lost.pin.words}{since}."
        why, advice = f"{lost.unreplaced.reason}.", advice_of(lost.unreplaced.remedy)
        path, held = ceph.metadata["name"].path, [blocks] if allowed == 0 else []
        choices = ([begin, why, *held, advice], [begin, why, advice], [begin, advice])
        yield Finding(
            path,
            check.first_that_fits(path, *map(" ".join, choices)),
            value=lost.pod.name,
            command=command_of(lost.unreplaced.remedy),
        )
