"""The bandwidth of a migration is less than one mebibyte per second.

**Why.** It is rounded up to 1 MiB/s, so that hardly any VM ever finishes its migration. Nearly always a unit
was forgotten (``64``) or the wrong one taken: ``m`` is a thousandth, ``Mi`` is meant.

**Fix.** Write for example ``64Mi``; ``0`` means no limit.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import HCO, KUBEVIRT, MIGRATION_POLICY
from virt_admit.model.kubevirt import migration_limits
from virt_admit.model.objects import Object
from virt_admit.model.units import show
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    try:
        bandwidth = migration_limits.bandwidth(obj)
    except ValueError:
        return
    if bandwidth is None or not 0 < bandwidth < migration_limits.MIB:
        return
    field = migration_limits.block(obj)[migration_limits.BANDWIDTH]
    suggestion = (
        "; m means a thousandth, Mi is meant" if str(field.value).endswith("m") else "; write a unit, such as 64Mi"
    )
    yield Finding(
        field.path, f"{show(field.value)} is less than 1Mi bytes per second and is rounded up to 1 MiB/s{suggestion}"
    )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT, MIGRATION_POLICY),
    action=Action.WARN,
    check=check,
    sources=("kubevirt/kubevirt:pkg/virt-launcher/virtwrap/converter/vcpu/vcpu.go#QuantityToMebiByte",),
)
