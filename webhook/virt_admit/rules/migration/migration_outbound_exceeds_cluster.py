"""A node may start more migrations than the whole cluster may run.

**Why.** The limit of the cluster is checked first, so the extra room of the node can never be used: a drain is no
faster than ``parallelMigrationsPerCluster`` allows.

**Fix.** Raise ``parallelMigrationsPerCluster`` (5 where it is absent), or lower
``parallelOutboundMigrationsPerNode``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import HCO, KUBEVIRT
from virt_admit.model.kubevirt import migration_limits
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    block = migration_limits.block(obj)
    outbound, cluster = block[migration_limits.PER_NODE], block[migration_limits.PER_CLUSTER]
    limit = cluster.integer if cluster.present else migration_limits.PER_CLUSTER_UNSAID
    if outbound.integer is None or limit is None or outbound.integer <= limit:
        return
    yield Finding(
        outbound.path,
        f"{outbound.integer} per node can never be used, the cluster's limit is {limit}; "
        f"lower it or raise {migration_limits.PER_CLUSTER}",
        value=(outbound.integer, limit),
    )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    action=Action.WARN,
    check=check,
    sources=("kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go",),
)
