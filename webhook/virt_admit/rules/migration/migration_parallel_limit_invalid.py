"""A limit of parallel migrations is zero, negative or no integer.

**Why.** A limit of zero is always reached: no live migration ever starts, and every drain of a node with
``LiveMigrate`` VMs hangs. A negative one passes the schema, but the operators cannot decode it; a KubeVirt
created like that cannot be read by its own operator.

**Fix.** Write at least 1, or remove the field for the default.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import HCO, KUBEVIRT
from virt_admit.model.kubevirt import migration_limits
from virt_admit.model.objects import Object
from virt_admit.model.units import MAX_INT32, show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    block = migration_limits.block(obj)
    for name in (migration_limits.PER_CLUSTER, migration_limits.PER_NODE):
        limit = block[name]
        number = limit.integer
        if not limit.present or (number is not None and 0 < number <= MAX_INT32):
            continue
        if number == 0:
            text = "with a limit of 0 no live migration ever starts and every drain hangs; write at least 1"
        else:
            text = f"{show(limit.value)} is no number from 1 to {MAX_INT32}, and the operators cannot read it"
        yield Finding(limit.path, text)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT),
    action=Action.DENY,
    check=check,
    sources=("kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go",),
)
