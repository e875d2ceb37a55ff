"""A NodeMaintenance would drain a node whose drain does not end now.

**Why.** The operator cordons the node, evicts its pods again and again, and the maintenance does
not begin: a component of KubeVirt, of the storage or of the cluster is down, a webhook refuses what
a migration needs, or a budget lets no pod go. Other rules name VMs that cannot migrate, and room.

**Fix.** Repair first what the finding names. ``virt-admit drain NODE`` has all causes and remedies.
"""

from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NM, NM_KUBEVIRT, NODE, VMI
from virt_admit.model.kubernetes.reads import LateReads, Reads
from virt_admit.model.messages import cut, ended
from virt_admit.model.remediation import maintenance
from virt_admit.rule import Action, Context, Finding, Findings, Object, Operation, rule


def _reads() -> Reads:
    from virt_admit.forecasts.drain import capacity, drain_plan  # noqa: PLC0415 - see LateReads
    from virt_admit.rule import union  # noqa: PLC0415 - see LateReads

    return union(drain_plan.READS, capacity.READS, {VMI: ()})


@rule(
    kinds=(NM, NM_KUBEVIRT),
    reads=LateReads(_reads),
    operations=(Operation.CREATE,),
    action=Action.WARN,
    event="DrainBlocked",
    at_admission=False,
    in_scan=False,
    sources=(
        "medik8s/node-maintenance-operator:controllers/nodemaintenance_controller.go#Reconcile",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    name = maintenance.node(obj)
    if not name.text or context.cluster.get(NODE, "", name.text) is None:
        return
    cause = _cause(name.text, context.cluster)
    if cause:
        begin = f"a drain of {name.text} does not end now: "
        told = cut(cause, check.room(name.path) - len(begin) - 1)
        command = shell("virt-admit", "drain", argument(name.text))
        yield Finding(name.path, f"{begin}{ended(told)}", command=command)


def _cause(node: str, cluster: Cluster) -> str:
    """Return the first cause that no other rule about maintenances names; empty: there is none."""
    # files alone have no node that could be drained
    from virt_admit.forecasts.drain import capacity, drain_plan, vmi_evictions  # noqa: PLC0415
    from virt_admit.forecasts.drain.vm_outcomes import VmOutcome  # noqa: PLC0415
    from virt_admit.forecasts.drain.vmi_evictions import Effect  # noqa: PLC0415

    (own,) = drain_plan.plan(cluster, node).nodes
    for blocker in own.pods.blockers:
        return f"{blocker.subject}: {blocker.reason}"
    if capacity.shortage(cluster, node):
        return ""
    moved = {
        vmi.full_name for vmi in vmi_evictions.evictions(cluster, node).having(Effect.MIGRATES)
    }
    kept = [row for row in own.having(VmOutcome.BLOCKS) if row.vmi.full_name in moved]
    return f"{kept[0].vmi.full_name}: {kept[0].reason}" if kept else ""
