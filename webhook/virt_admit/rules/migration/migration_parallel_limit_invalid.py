"""A limit of parallel migrations is not a positive integer.

**Why.** With a limit of 0 no live migration starts, and every drain of a node with ``LiveMigrate`` VMs hangs. The
schema accepts a negative number, but the operators cannot decode it: virt-operator cannot read a KubeVirt that was
created with one.

**Fix.** Write at least 1, or remove the field for the default.
"""

from virt_admit.model.kubernetes.int_or_percent import MAX_INT32
from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.rule import HCO, KUBEVIRT, Action, Context, Finding, Findings, Object, rule, show


@rule(
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    sources=("kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go",),
)
def check(obj: Object, _context: Context) -> Findings:
    block = migration_limits.block(obj)
    for name in (migration_limits.PER_CLUSTER, migration_limits.PER_NODE):
        limit = block[name]
        number = limit.integer
        if not limit.present or (number is not None and 0 < number <= MAX_INT32):
            continue
        if number == 0:
            message = "0 means that no live migration starts and every drain hangs. Use at least 1."
        else:
            message = (
                f"the operators cannot read {show(limit.value)}. Use an integer from 1 to {MAX_INT32}, without quotes."
            )
        yield Finding(limit.path, message)
