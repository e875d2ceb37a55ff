"""The migration bandwidth is less than 1 MiB per second.

**Why.** KubeVirt rounds the value up to 1 MiB/s, which is too slow for nearly every VM. The usual
cause is a missing unit (``64``) or the wrong one: ``m`` means a thousandth, ``Mi`` means mebibytes.

**Fix.** Write a value such as ``64Mi``. ``0`` means no limit.
"""

from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, MIGRATION_POLICY
from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.rule import Action, Context, Finding, Findings, Object, rule, show


@rule(
    kinds=(HCO, KUBEVIRT, MIGRATION_POLICY),
    action=Action.WARN,
    sources=(
        "kubevirt/kubevirt:pkg/virt-launcher/virtwrap/converter/vcpu/vcpu.go#QuantityToMebiByte",
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    try:
        bandwidth = migration_limits.bandwidth(obj)
    except ValueError:
        return
    if bandwidth is None or not 0 < bandwidth < migration_limits.MIB:
        return
    field = migration_limits.block(obj)[migration_limits.BANDWIDTH]
    remedy = (
        "Write Mi instead of m, which means a thousandth."
        if str(field.value).endswith("m")
        else "Use a value with a unit, such as 64Mi."
    )
    yield Finding(
        field.path, f"{show(field.value)} is rounded up to 1 MiB/s, too slow for most VMs. {remedy}"
    )
