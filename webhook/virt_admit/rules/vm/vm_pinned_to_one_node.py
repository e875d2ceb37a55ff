"""A virtual machine that should migrate on a drain is pinned to one node.

**Why.** KubeVirt ignores node selectors and affinity when it decides whether a VM is migratable. A
drain starts a migration whose target pod cannot be scheduled on any node. The migration fails after
5 minutes and is repeated forever, so the node never becomes empty. ``LiveMigrateIfPossible`` blocks
in the same way.

**Fix.** Allow other nodes, or set ``evictionStrategy: None``: the VM then stops during the drain
and starts again when the node returns.
"""

from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.forecasts.placement import permanent_constraints
from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubernetes.objects import Path
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import migratability, vms
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.launcher import left_selectors
from virt_admit.rule import Action, Context, DrainAdvice, Finding, Findings, Object, rule, show


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    only_with=("nodeSelector", "affinity", "instancetype"),
    reads=union(migratability.READS, left_selectors.READS, left_selectors.AIMED_READS),
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
    if left_selectors.passes(obj, context.cluster):
        return  # the selector goes when that migration has ended
    if alone := left_selectors.host(obj, context.cluster):
        yield _left(obj, pin.path, alone)
        return
    hosts = sorted(pin.hosts)
    where, short = "no node satisfies the VM's restrictions", "no node can run it"
    if hosts:
        node = show(hosts[0])
        where, short = f"only node {node} may run this VM", f"only {node} may run it"
    message = check.first_that_fits(
        pin.path,
        f"{where}, so a drain never completes. Allow other nodes, or set evictionStrategy: None.",
        f"{where}, so a drain hangs. Unpin it, or set None.",
        f"{short}. Unpin it or set None.",
        "pinned to one node: a drain hangs. Unpin it or set None.",
    )
    command = permanent_constraints.unpin(obj) if kinds.of(obj) is VM else ""
    yield Finding(pin.path, message, value=hosts, command=command)


def _left(vmi: Object, path: Path, host: str) -> Finding:
    """Return that only the VMI is pinned.

    Its VM has nothing to edit, and makes the next VMI without it.
    """
    harvester = vmi.annotations.get(left_selectors.MIGRATION_TARGET) == host
    by = "a migration of Harvester left that" if harvester else "the VMI alone has that selector"
    node = show(host)
    message = check.first_that_fits(
        path,
        f"only node {node} can run this VMI: {by}. Its VM has no such selector. Restart the VM.",
        f"only {node} can run this VMI, not its VM. Restart it.",
    )
    command = shell("virtctl", "restart", argument(vmi.name), "-n", vms.namespace_of(vmi))
    return Finding(path, message, value=[host], command=command)
