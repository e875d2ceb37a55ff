"""A ResourceQuota leaves no room for the second launcher pod of a migration.

**Why.** While a VM migrates, its namespace holds two launcher pods for it. If the quota refuses the second one, the
migration never starts and a drain of the node never completes.

**Fix.** Raise the quota by the requests and limits of the largest VM, or count VMs with an ApplicationAwareResourceQuota.
"""

from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.forecasts.drain.vmi_evictions import Effect
from virt_admit.forecasts.placement import migration_demand, quotas
from virt_admit.model.kubernetes.kinds import RESOURCE_QUOTA, VMI
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.rule import Action, Context, Finding, Findings, Object, Unseen, first_that_fits, gather, rule, union


@rule(
    kinds=(RESOURCE_QUOTA,),
    reads=union(vmi_evictions.READS, migration_demand.READS),
    action=Action.WARN,
    event="MigrationImpossible",
    at_admission=False,
    sources=(
        "kubernetes/kubernetes:pkg/quota/v1/evaluator/core/pods.go#podComputeUsageHelper",
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go#createTargetPod",
        "kubevirt/application-aware-quota:docs/design.md",
    ),
)
def check(quota: Object, context: Context) -> Findings:
    cluster = context.cluster
    found, unseen = gather(cluster.list(VMI, vms.namespace_of(quota)))
    refused: dict[str, list[tuple[str, str]]] = {}
    for vmi in filter(vmis.running, found):
        try:
            if vmi_evictions.reaction(vmi, cluster).effect is not Effect.MIGRATES:
                continue
            lacks = quotas.missing(quota, migration_demand.demand(vmi, cluster))
        except Unseen as blind:
            yield blind
            continue
        for resource, lack in lacks:
            refused.setdefault(resource, []).append((vmi.name, lack))
    for resource, lacking in sorted(refused.items()):
        name, lack = lacking[0]
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        path = quota.at("spec", "hard", resource).path
        yield Finding(
            path,
            first_that_fits(
                path,
                check.id,
                f"{lack} for a second pod of VM {name}{more}: its migration never starts, so a drain hangs. "
                "Raise the quota, or use an ApplicationAwareResourceQuota.",
                f"{lack} for a second pod of {len(lacking)} VMs, so a drain hangs. Raise the quota.",
            ),
            value=resource,
        )
    if unseen:
        yield Unseen(unseen)
