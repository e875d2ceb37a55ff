"""A Cluster of Cluster API, or a part of it, is paused for longer than an hour.

**Why.** ``clusterctl move`` pauses a Cluster, and one that fails leaves it paused. No update,
scaling or remediation of it happens, and no error or event says so. The status of a MachineSet
stays as it was, so its Machines are counted. A warning names what waits for it; without that, or
where no Machine is missing and it does not say since when it is paused, it is only reported.

**Fix.** Make sure that no ``clusterctl move`` runs, and set ``spec.paused`` of the Cluster to
false. What HyperShift pauses, ``spec.pausedUntil`` of its HostedCluster or NodePool ends.
"""

from virt_admit.model.kubernetes.kinds import (
    CAPI_CLUSTER,
    CAPI_MACHINE_SET,
    KUBEADM,
    MACHINE_DEPLOYMENT,
)
from virt_admit.model.messages import advice_of, command_of
from virt_admit.model.node_updates.operators import paused_clusters
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(CAPI_CLUSTER, KUBEADM, MACHINE_DEPLOYMENT, CAPI_MACHINE_SET),
    reads=paused_clusters.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "kubernetes-sigs/cluster-api:util/paused/paused.go",
        "https://github.com/kubernetes-sigs/cluster-api/issues/7407",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    paused = paused_clusters.of(obj, context.cluster)
    if paused is None or not paused_clusters.is_long(paused):
        return
    is_cluster = obj.kind == CAPI_CLUSTER.kind
    if not paused.waiting and not is_cluster:
        return
    path = (
        obj.at("spec", "paused").path if is_cluster else obj.annotation(health_checks.PAUSED).path
    )
    nothing = "" if paused.waiting else ", no machine is made, updated or remediated"
    then = advice_of(paused.remedy)
    certain = paused.waiting and (paused.age is not None or paused.is_short)
    yield Finding(
        path,
        check.first_that_fits(path, f"{paused.reason}{nothing}. {then}", f"{paused.title}. {then}"),
        value=True,
        max_action=Action.DENY if certain and not paused.hosted else Action.AUDIT,
        command=command_of(paused.remedy),
    )
