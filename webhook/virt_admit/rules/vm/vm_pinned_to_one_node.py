"""A VM that should migrate on a drain is tied to one node by name.

**Why.** KubeVirt does not look at node selectors and affinity when it calls a VM migratable. A drain asks for a
migration, its target pod can be scheduled nowhere, the migration is given up after five minutes and repeated for
ever: the node is never empty. ``LiveMigrateIfPossible`` blocks in the same way.

**Fix.** Let other nodes run the VM too, or set ``evictionStrategy: None``: the VM stops during the drain and comes
back when the node does.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt import drain, placement
from virt_admit.model.kubevirt.effective import effective
from virt_admit.model.kubevirt.migratability import READS
from virt_admit.model.messages import first_that_fits
from virt_admit.model.objects import Object
from virt_admit.model.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    vmi = context.cached(effective, obj)
    pin = placement.pin(vmi)
    if pin is None or not pin.tight or not drain.awaits_migration(obj, context.cluster):
        return
    hosts = sorted(pin.hosts)
    node = show(hosts[0]) if hosts else ""
    where = f"only node {node} may run it" if hosts else "its restrictions leave it no node"
    message = first_that_fits(
        pin.path,
        RULE.id,
        f"{where}, so a drain waits for ever; let others run it too, or set evictionStrategy None",
        f"{where}: a drain hangs; unpin it, or set evictionStrategy None",
        f"only {node} may run it; unpin it or set None" if hosts else "no node may run it; unpin it or set None",
        "tied to one node: a drain hangs; unpin it or set None",
    )
    yield Finding(pin.path, message, value=hosts)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(VM, POOL, VMIRS, VMI),
    reads=READS,
    action=Action.WARN,
    event="MigrationImpossible",
    check=check,
    sources=(
        "kubevirt/kubevirt#9585",
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go",
        "OpenShift Virtualization, Updates 6.2.1",
    ),
)
