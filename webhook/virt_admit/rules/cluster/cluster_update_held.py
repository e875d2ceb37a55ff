"""An update of OpenShift that was asked for does not reach the nodes.

**Why.** The cluster-version operator has not accepted the release, or an operator that comes before the nodes is degraded. No
node, no pool and no VM is the cause, and the update does not go on by itself.

**Fix.** Resolve what the ClusterVersion names. ``virt-admit upgrade`` has the remedy with its command.
"""

from virt_admit.model.commands import shell
from virt_admit.model.messages import cut_middle, ended
from virt_admit.model.node_updates import cluster_updates, updaters
from virt_admit.rule import CLUSTER_VERSION, Action, Context, Finding, Findings, Object, rule, union

_LONGEST = 160


@rule(
    kinds=(CLUSTER_VERSION,),
    reads=union(cluster_updates.READS, updaters.READS),
    action=Action.WARN,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "openshift/cluster-version-operator:pkg/cvo/status.go#setReleaseAcceptedCondition",
        "openshift/cluster-version-operator:pkg/cvo/internal/operatorstatus.go#checkOperatorHealth",
    ),
)
def check(version: Object, context: Context) -> Findings:
    stop = cluster_updates.release(context.cluster).stop
    if stop is not None and version.name == cluster_updates.NAME:
        why = stop.reason.removeprefix(f"ClusterVersion {version.name}: ")
        begin, colon, said = why.partition(": ")
        text = f"{begin}{colon}{cut_middle(said, max(_LONGEST - len(begin), 60))}"
        yield Finding(
            version.at("spec", "desiredUpdate").path,
            f"{ended(text)} virt-admit upgrade has the remedy.",
            value=version.name,
            problem=stop.id,
            command=shell("virt-admit", "upgrade"),  # its remedies say what to check before
        )
