"""The migration bandwidth is negative or not a valid quantity.

**Why.** The schema accepts a minus sign. virt-launcher then cannot build the parameters of the migration, and every
migration fails. A value that is not a quantity stops the operator.

**Fix.** Write bytes per second with a unit, such as ``64Mi`` or ``1Gi``. ``0`` means no limit.
"""

from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.rule import HCO, KUBEVIRT, MIGRATION_POLICY, Action, Context, Finding, Findings, Object, rule, show


@rule(
    kinds=(HCO, KUBEVIRT, MIGRATION_POLICY),
    action=Action.DENY,
    sources=(
        "kubevirt/hyperconverged-cluster-operator:controllers/handlers/kubevirt.go#hcLiveMigrationToKv",
        "kubevirt/kubevirt:pkg/virt-launcher/virtwrap/converter/vcpu/vcpu.go#QuantityToByte",
        "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/migrationpolicy-admitter.go#Admit",
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    field = migration_limits.block(obj)[migration_limits.BANDWIDTH]
    try:
        bandwidth = migration_limits.bandwidth(obj)
    except ValueError as error:
        yield Finding(field.path, str(error))
        return
    if bandwidth is not None and bandwidth < 0:
        yield Finding(
            field.path, f"{show(field.value)} is negative, so every migration fails. Use 64Mi, or 0 for no limit."
        )
