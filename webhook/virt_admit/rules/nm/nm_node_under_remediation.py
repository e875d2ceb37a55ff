"""A NodeMaintenance drains a node that is being remediated.

**Why.** NodeHealthCheck and the remediators hold the lease of a node while they remediate it. The
maintenance waits for the lease, and a remediator may reboot the node during the drain.

**Fix.** Wait until the remediation is done, or pause the NodeHealthCheck (``spec.pauseRequests``)
first.
"""

from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import LEASE, NHC, NM, NM_KUBEVIRT
from virt_admit.model.remediation import maintenance
from virt_admit.rule import Action, Context, Finding, Findings, Object, Operation, rule

LEASES = "medik8s-leases"
MAINTENANCE_OPERATOR = "node-maintenance"


@rule(
    kinds=(NM, NM_KUBEVIRT),
    reads={NHC: (), LEASE: ("spec.holderIdentity",)},
    operations=(Operation.CREATE,),
    action=Action.WARN,
    sources=(
        "medik8s/node-maintenance-operator:controllers/nodemaintenance_controller.go#RequestLease",
        "medik8s/common:pkg/lease/manager.go#generateLeaseName",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    node = maintenance.node(obj)
    if not node.text:
        return
    for look_up in (_health_check, _holder):
        try:
            remediator = look_up(node.text, context.cluster)
        except Unseen as unseen:
            yield unseen
            continue
        if remediator:
            yield Finding(
                node.path,
                f"{remediator} is remediating node {node.text}, so the maintenance waits and the "
                "node may reboot. Wait for it.",
            )
            return


def _health_check(node: str, cluster: Cluster) -> str:
    for health_check in cluster.list(NHC):
        if health_check.at("status", "unhealthyNodes").named(node)["remediations"].value:
            return f"NodeHealthCheck {health_check.name}"
    return ""


def _holder(node: str, cluster: Cluster) -> str:
    """Return who holds the lease of a node.

    Lease names are in lower case (medik8s/common:pkg/lease/manager.go).
    """
    lease = cluster.get(LEASE, LEASES, f"node-{node.lower()}")
    holder = lease.at("spec", "holderIdentity").text if lease is not None else None
    return f"lease holder {holder}" if holder and holder != MAINTENANCE_OPERATOR else ""
