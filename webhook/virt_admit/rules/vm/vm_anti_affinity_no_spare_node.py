"""A group of virtual machines that may not share a node or zone has as many members as there are
nodes or zones.

**Why.** While a VM migrates, its source pod still counts. Each member therefore needs a node (or
zone) without a member, and there is none, so the target pod stays Pending and every drain hangs.

**Fix.** Add a node (or zone), use preferred anti-affinity, or set ``evictionStrategy: None``.
"""

from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.forecasts.placement import permanent_constraints
from virt_admit.model.kubernetes.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubernetes.nodes import HOSTNAME
from virt_admit.model.kubevirt.instances import migratability
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.launcher import vmi_affinity
from virt_admit.rule import Action, Context, Finding, Findings, Object, rule, union


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    only_with=("affinity",),
    reads=union(migratability.READS, permanent_constraints.READS, vmi_affinity.READS),
    action=Action.WARN,
    event="MigrationImpossible",
    sources=(
        (
            "kubernetes/kubernetes:pkg/scheduler/framework/plugins/interpodaffinity/"
            "filtering.go#satisfyExistingPodsAntiAffinity"
        ),
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go#createTargetPod",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    anti_affinity, cluster = vmi_affinity.anti_affinity(obj), context.cluster
    required = [
        term
        for term in vmi_affinity.required_anti_affinity(obj)
        if term.namespace_selector is None and vmi_affinity.matches_itself(obj, term)
    ]
    if not required or not vmi_evictions.awaits_migration(obj, context.facts):
        return
    hosts = [
        host
        for host in permanent_constraints.hosts(context.cached(expand, obj), cluster)
        if not host.refusal
    ]
    for term in required:
        spots = vmi_affinity.domains(term.topology_key, [host.labels for host in hosts])
        members = vmi_affinity.members(obj, term, cluster) if spots else 0
        if spots and members >= spots:
            yield Finding(
                anti_affinity.path,
                _message(members, spots, term.topology_key),
                value=term.topology_key,
            )


def _message(members: int, spots: int, key: str) -> str:
    what = "node" if key == HOSTNAME else key.rpartition("/")[2][:20]
    return (
        f"{members} VMs need one {what} each and there are {spots}, so a migration finds no target "
        f"and drains hang. Add a {what}, or use preferred anti-affinity."
    )
