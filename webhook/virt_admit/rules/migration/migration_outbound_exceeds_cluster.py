"""The migration limit of a node is higher than the limit of the cluster.

**Why.** KubeVirt checks the limit of the cluster first, so a node never reaches its own limit. A
drain is not faster than ``parallelMigrationsPerCluster`` allows.

**Fix.** Raise ``parallelMigrationsPerCluster``, whose default is 5, or lower
``parallelOutboundMigrationsPerNode``.
"""

from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.rule import HCO, KUBEVIRT, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(HCO, KUBEVIRT),
    action=Action.WARN,
    sources=("kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go",),
)
def check(obj: Object, _context: Context) -> Findings:
    block = migration_limits.block(obj)
    outbound, cluster = block[migration_limits.PER_NODE], block[migration_limits.PER_CLUSTER]
    limit = cluster.integer if cluster.present else migration_limits.PER_CLUSTER_UNSAID
    if outbound.integer is None or limit is None or outbound.integer <= limit:
        return
    yield Finding(
        outbound.path,
        f"{outbound.integer} migrations per node are never reached, because the cluster limit is "
        f"{limit}. Use at most {limit} or raise {migration_limits.PER_CLUSTER}.",
        value=(outbound.integer, limit),
    )
