"""The migration bandwidth is negative or not a valid quantity.

**Why.** The schema accepts a minus sign. virt-launcher then cannot build the parameters of the migration, and every
migration fails. A value that is not a quantity stops the operator.

**Fix.** Write bytes per second with a unit, such as ``64Mi`` or ``1Gi``. ``0`` means no limit.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, MIGRATION_POLICY
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.units import show
from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
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


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT, MIGRATION_POLICY),
    action=Action.DENY,
    check=check,
    sources=(
        "kubevirt/hyperconverged-cluster-operator:controllers/handlers/kubevirt.go#hcLiveMigrationToKv",
        "kubevirt/kubevirt:pkg/virt-launcher/virtwrap/converter/vcpu/vcpu.go#QuantityToByte",
        "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/migrationpolicy-admitter.go#Admit",
    ),
)
