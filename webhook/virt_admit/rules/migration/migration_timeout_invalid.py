"""A migration timeout is negative or not an integer.

**Why.** A negative timeout expires immediately: KubeVirt cancels every migration, and drains never complete.

**Fix.** Write seconds as a positive integer, or remove the field for the default.
"""

from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.rule import HCO, KUBEVIRT, MIGRATION_POLICY, Action, Context, Finding, Findings, Object, rule, show


@rule(
    kinds=(HCO, KUBEVIRT, MIGRATION_POLICY),
    action=Action.DENY,
    sources=(
        "kubevirt/kubevirt:pkg/virt-launcher/virtwrap/live-migration-source.go#shouldTriggerTimeout",
        "kubevirt/kubevirt:pkg/virt-launcher/virtwrap/live-migration-source.go#isMigrationProgressing",
        "kubevirt/kubevirt:pkg/virt-api/webhooks/validating-webhook/admitters/migrationpolicy-admitter.go#Admit",
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    for timeout in migration_limits.timeouts(obj):
        if timeout.present and timeout.integer is None:
            yield Finding(
                timeout.path,
                f"{show(timeout.value)} is not an integer. Write a number of seconds, without unit or quotes.",
            )
        elif timeout.integer is not None and timeout.integer < 0:
            yield Finding(
                timeout.path,
                f"{timeout.integer} is negative, so every migration is cancelled at once. Use a positive number of seconds.",
            )
