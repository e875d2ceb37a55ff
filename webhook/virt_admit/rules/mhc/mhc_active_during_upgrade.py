"""A MachineHealthCheck is active while the cluster is being updated.

**Why.** Nodes reboot during an update, so the check can mistake them for failed nodes. A
NodeHealthCheck pauses until the update is complete. A MachineHealthCheck does not.

**Fix.** Annotate the check with ``cluster.x-k8s.io/paused: ""`` until the update is complete.
"""

from virt_admit.model.remediation import health_checks
from virt_admit.rule import CLUSTER_VERSION, MHC, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(MHC,),
    reads={CLUSTER_VERSION: ()},
    metadata=(health_checks.PAUSED,),
    action=Action.WARN,
    sources=("medik8s/node-healthcheck-operator:internal/controller/cluster/upgrade_checker.go",),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    if view.paused.present or view.handler:
        return
    version = context.cluster.get(CLUSTER_VERSION, "", "version")
    if version is not None and version.is_true("Progressing"):
        yield Finding(
            obj.metadata["annotations"].path,
            "the cluster is being updated: the check may delete machines whose nodes are only "
            f'rebooting. Set {health_checks.PAUSED}: "" until the update is complete.',
            value=obj["spec"].value,
        )
