"""A virtual machine that should migrate on a drain is pinned to one node.

**Why.** KubeVirt ignores node selectors and affinity when it decides whether a VM is migratable. A drain starts a
migration whose target pod cannot be scheduled on any node. The migration fails after 5 minutes and is repeated forever,
so the node never becomes empty. ``LiveMigrateIfPossible`` blocks in the same way.

**Fix.** Allow other nodes, or set ``evictionStrategy: None``: the VM then stops during the drain and starts again when
the node returns.
"""

from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.forecasts.placement import permanent_constraints
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt.instances import migratability
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.rule import Action, Context, DrainAdvice, Finding, Findings, Object, rule, show


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    only_with=("nodeSelector", "affinity", "instancetype"),
    reads=migratability.READS,
    action=Action.WARN,
    drain_advice=DrainAdvice.NO_NODE,
    event="MigrationImpossible",
    sources=(
        "kubevirt/kubevirt#9585",
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go",
        "OpenShift Virtualization, Updates 6.2.1",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    vmi = context.cached(expand, obj)
    pin = permanent_constraints.pin(vmi)
    if pin is None or not pin.tight or not vmi_evictions.awaits_migration(obj, context.facts):
        return
    hosts = sorted(pin.hosts)
    node = show(hosts[0]) if hosts else ""
    where = f"only node {node} can run this VM" if hosts else "no node satisfies the VM's restrictions"
    message = check.first_that_fits(
        pin.path,
        f"{where}, so a drain never completes. Allow other nodes, or set evictionStrategy: None.",
        f"{where}, so a drain hangs. Unpin it, or set None.",
        f"only {node} can run it. Unpin it or set None." if hosts else "no node can run it. Unpin it or set None.",
        "pinned to one node: a drain hangs. Unpin it or set None.",
    )
    command = permanent_constraints.unpin(obj) if kinds.of(obj) is VM else ""
    yield Finding(pin.path, message, value=hosts, command=command)
