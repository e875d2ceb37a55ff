"""A NodeHealthCheck runs in a hosted cluster, where it may not see upgrades.

**Why.** In a cluster with a hosted control plane (HyperShift) the nodes belong to node pools of
another cluster. The cluster itself has no MachineConfigPools. A NodeHealthCheck that does not see
the upgrade treats nodes that restart for it as unhealthy and remediates them, which stops the
upgrade.

**Fix.** Pause the check with ``spec.pauseRequests`` during updates of node pools, or use the
automatic repair of the node pool (``spec.management.autoRepair``).
"""

from typing import Final

from virt_admit.rule import INFRASTRUCTURE, NHC, Action, Context, Finding, Findings, Object, rule

HOSTED: Final = "External"
"""The control plane topology of a hosted cluster (openshift/api:
config/v1/types_infrastructure.go).
"""


@rule(
    kinds=(NHC,),
    reads={INFRASTRUCTURE: ()},
    action=Action.AUDIT,
    event="RemediationLoop",
    sources=(
        "medik8s/node-healthcheck-operator:controllers/cluster/upgrade_checker.go",
        (
            "openshift/hypershift:control-plane-operator/hostedclusterconfigoperator/controllers/"
            "inplaceupgrader"
        ),
    ),
)
def check(nhc: Object, context: Context) -> Findings:
    if nhc.at("spec", "pauseRequests").value:
        return
    infrastructure = context.cluster.get(INFRASTRUCTURE, "", "cluster")
    if (
        infrastructure is not None
        and infrastructure.at("status", "controlPlaneTopology").text == HOSTED
    ):
        yield Finding(
            nhc["spec"].path,
            "the control plane is hosted, so this check may not see upgrades and remediates nodes "
            "that restart for one. Pause it during node pool updates, or use autoRepair of the "
            "node pool.",
            value=HOSTED,
        )
