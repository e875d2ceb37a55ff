"""A VM takes the room that other VMs need after the loss of a node.

**Why.** After the loss of a node its VMs start on the others, if these have room. Every VM that
starts or grows takes from that room. KubeVirt starts it as long as any node has room for it, so the
reserve is gone before anyone notices.

The rule speaks when the room was enough before the change and is certainly short after it, and
about a VM that fits on one node alone. It adds up what all nodes with KubeVirt have free. Requests
count, not use. Restarts, label edits, and VMs that stay off or shrink are never findings.

VMs that were admitted in the last minute and have no pods yet count for a warning at most. Each
replica knows only those that it admitted itself, and another webhook may have refused them. Starts
by button are KubeVirt's own writes, which admission never sees: ``virt-admit watch --events`` does.

**Fix.** Make the VM smaller, stop VMs that are not needed, or add a node. The default is ``audit``.
Set ``action: deny`` to keep the reserve, and exempt the accounts of backup tools then. A cluster
that is short already, or one with an autoscaler, leads to audit at most.
"""

from dataclasses import dataclass

from virt_admit.forecasts.outage.tolerance import NOTHING, ONE_NODE, Tolerance, may_ask
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.kinds import POOL, VM, VMIRS
from virt_admit.model.kubernetes.reads import LateReads, Reads
from virt_admit.rule import Action, Context, Finding, Findings, Object, choice, param, rule


@dataclass(frozen=True)
class Params:
    tolerate: Tolerance = param(  # noqa: RUF009 - both are frozen
        ONE_NODE,
        "what the cluster must survive: nodes, zones, a reserve of what nodes offer; all 0 is off",
    )
    count: str = choice(
        "vms",
        ("vms", "everything"),
        "what needs room after a loss: VMs, or pods of controllers too",
    )
    short: str = choice(
        "audit",
        ("audit", "silent"),
        "what to do about a VM that starts while the room is short already",
    )


def _reads() -> Reads:
    from virt_admit.forecasts.outage import failover  # noqa: PLC0415 - see LateReads

    return failover.READS


@rule(
    kinds=(VM, POOL, VMIRS),
    reads=LateReads(_reads),
    action=Action.AUDIT,
    event="NoFailover",
    in_scan=False,
    params=Params(),
    sources=(
        "kubernetes/kubernetes:pkg/scheduler/framework/plugins/noderesources/fit.go",
        "kubevirt/kubevirt:pkg/virt-controller/services/renderresources.go",
        "VMware docs, vSphere Availability, Admission control",
    ),
)
def check(obj: Object, context: Context[Params]) -> Findings:
    params = context.params
    if (
        params.tolerate == NOTHING
        or not may_ask(obj, context.old)
        or not nodes.every(context.cluster)
    ):
        return
    # checking files alone knows no nodes
    from virt_admit.forecasts.outage import failover_findings  # noqa: PLC0415

    wanted = failover_findings.Wanted(
        params.tolerate, params.count == "everything", params.short == "silent"
    )
    for found in failover_findings.findings(obj, context.old, wanted, context.cluster):
        yield Finding(
            found.path,
            check.first_that_fits(found.path, *found.messages),
            value=found.value,
            max_action=found.max_action,
        )
