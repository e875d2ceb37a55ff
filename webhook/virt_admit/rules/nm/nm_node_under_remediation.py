"""A node is to be drained that is just being remediated.

**Why.** NodeHealthCheck and the remediators hold the lease of a node while they work on it. The maintenance waits until
it is free, and the node may be rebooted under the drain.

**Fix.** Wait until the remediation is done, or pause the NodeHealthCheck (``spec.pauseRequests``) first.
"""

from collections.abc import Iterator

from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.kinds import LEASE, NHC, NM, NM_KUBEVIRT
from virt_admit.model.objects import Object
from virt_admit.model.remediation import maintenance
from virt_admit.rule import Action, Context, Finding, NoParams, Operation, Rule

LEASES = "medik8s-leases"
OURS = "node-maintenance"


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    node = maintenance.node(obj)
    if not node.text:
        return
    for look_up in (_health_check, _holder):
        try:
            who = look_up(node.text, context.cluster)
        except Unseen as unseen:
            yield unseen
            continue
        if who:
            yield Finding(
                node.path,
                f"{who} is remediating node {node.text}: the maintenance waits, and the node may reboot; wait for it",
            )
            return


def _health_check(node: str, cluster: Cluster) -> str:
    for check in cluster.list(NHC):
        for sick in check.at("status", "unhealthyNodes").items():
            if sick["name"].text == node and sick["remediations"].value:
                return f"NodeHealthCheck {check.name}"
    return ""


def _holder(node: str, cluster: Cluster) -> str:
    """Who has the lease of a node; its name is in lower case (medik8s/common:pkg/lease/manager.go)."""
    lease = cluster.get(LEASE, LEASES, f"node-{node.lower()}")
    holder = lease.at("spec", "holderIdentity").text if lease is not None else None
    return f"{holder}, which has the lease," if holder and holder != OURS else ""


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NM, NM_KUBEVIRT),
    reads={NHC: (), LEASE: ("spec.holderIdentity",)},
    operations=(Operation.CREATE,),
    action=Action.WARN,
    check=check,
    sources=(
        "medik8s/node-maintenance-operator:controllers/nodemaintenance_controller.go#RequestLease",
        "medik8s/common:pkg/lease/manager.go#generateLeaseName",
    ),
)
