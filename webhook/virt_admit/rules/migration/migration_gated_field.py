"""A migration setting is used while its feature gate is disabled.

**Why.** ``maxDowntimeMs``, ``downtimeTuning`` and ``stallDetector`` are alpha. KubeVirt rejects any
change of them while the feature gate is disabled. Values that are already stored are accepted.

**Fix.** Add the gate to ``spec.configuration.developerConfiguration.featureGates`` of KubeVirt, or
remove the field.
"""

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import KUBEVIRT, MIGRATION_POLICY
from virt_admit.model.kubevirt.settings import configuration, migration_limits
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(KUBEVIRT, MIGRATION_POLICY),
    reads={KUBEVIRT: ()},
    action=Action.DENY,
    sources=(
        (
            "kubevirt/kubevirt:pkg/virt-operator/webhooks/"
            "kubevirt-update-admitter.go#validateMigrationConfiguration"
        ),
        (
            "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/"
            "migrationpolicy-admitter.go#Admit"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    changed = [
        (field, gates)
        for field, gates in migration_limits.gated_fields(obj)
        if field.present
        and (context.old is None or context.old.at(*field.path).value != field.value)
    ]
    if not changed:
        return
    kubevirt = obj if kinds.of(obj) is KUBEVIRT else configuration.kubevirt(context.cluster)
    if kubevirt is None:
        return
    open_gates = migration_limits.open_gates(kubevirt)
    for field, gates in changed:
        if open_gates.isdisjoint(gates):
            yield Finding(
                field.path,
                f"KubeVirt rejects this field while the feature gate {' or '.join(gates)} is "
                "disabled. Enable the gate first or remove the field.",
                cause=Cause.FORBIDDEN,
            )
