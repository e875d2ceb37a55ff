"""An update of the nodes never reaches the migration limit of the cluster.

**Why.** KubeVirt starts at most ``parallelOutboundMigrationsPerNode`` migrations from one node. An
upgrade drains a few nodes at once: on OpenShift ``maxUnavailable`` of the MachineConfigPools, by
default one node for each pool. If the product is below ``parallelMigrationsPerCluster``, drains are
slower than the cluster limit suggests. The defaults of KubeVirt and HyperConverged are left alone,
and so is a cluster where one node runs all VMs.

**Fix.** If the network has the bandwidth, raise ``parallelOutboundMigrationsPerNode`` or
``maxUnavailable``.
"""

from typing import Final

from virt_admit.model import machine_pools
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.model.kubevirt.settings.migration_limits import PER_CLUSTER, PER_NODE
from virt_admit.model.lookups import find
from virt_admit.model.messages import count
from virt_admit.model.problems import ProblemId
from virt_admit.rule import Action, Cluster, Context, Field, Finding, Findings, Object, rule

_DEFAULTS: Final = ((5, 2), (5, 1))
"""For the cluster and for a node: of KubeVirt and HyperConverged, and of HyperConverged since 1.19
(kubevirt/hyperconverged-cluster-operator:api/v1beta1/hyperconverged_types.go#HyperConvergedSpec).
"""


@rule(
    kinds=(HCO, KUBEVIRT),
    reads=union(machine_pools.READS, {HCO: ()}),
    action=Action.AUDIT,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go#canStartMigration",
        "openshift/machine-config-operator:pkg/controller/node/node_controller.go#maxUnavailable",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    problem = _same_for_both(obj)
    written = problem.name != obj.name
    if written and find(context.cluster, HCO, problem.namespace, problem.name) is not None:
        return  # it is said of HyperConverged, where a change stays
    block = migration_limits.block(obj)
    outbound = _limit(block[PER_NODE], migration_limits.PER_NODE_UNSAID)
    limit = _limit(block[PER_CLUSTER], migration_limits.PER_CLUSTER_UNSAID)
    if outbound is None or limit is None or outbound >= limit or (limit, outbound) in _DEFAULTS:
        return
    if context.cluster.cached(nodes.alone):
        return  # from a single node nothing migrates
    at_once, what = _draining(context.cluster)
    if at_once and at_once * outbound < limit:
        yield Finding(
            block[PER_CLUSTER].path,
            f"an update of the nodes starts {count(at_once * outbound, 'migration')} at once, not "
            f"{limit}: {outbound} for each node × {at_once} {what}. Raise the limit for each node.",
            value=(limit, outbound, at_once),
            problem=problem,
        )


def _same_for_both(obj: Object) -> ProblemId:
    """Return the id of the problem: HyperConverged and the KubeVirt object that it writes have the
    same one.
    """
    # by HyperConverged, whose name follows the first prefix
    written = obj.name.startswith("kubevirt-kubevirt-")
    name = obj.name.removeprefix("kubevirt-") if written else obj.name
    return ProblemId("MigrationLimitUnreachable", obj.namespace, name)


def _limit(field: Field, default: int) -> int | None:
    """Return a limit; None if it is not valid, which is another rule's concern."""
    value = field.integer if field.present else default
    return value if value is not None and value > 0 else None


def _draining(cluster: Cluster) -> tuple[int, str]:
    """Return how many nodes can be drained at once: those of the pools,
    else all nodes that run VMs.
    """
    at_once = machine_pools.draining_at_once(cluster)
    if at_once is not None:
        return at_once, "drained at once (maxUnavailable)"
    return len(nodes.of_kubevirt(cluster)), "nodes that run VMs"
