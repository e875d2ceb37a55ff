"""A migration timeout is disabled.

**Why.** With 0 KubeVirt never cancels a migration that does not converge. It keeps its slot
forever, and the drain that needs it never completes.

**Fix.** Remove the field for the default, or write seconds.
"""

from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, MIGRATION_POLICY
from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.rule import Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(HCO, KUBEVIRT, MIGRATION_POLICY),
    action=Action.WARN,
    sources=(
        (
            "kubevirt/kubevirt:pkg/virt-launcher/virtwrap/"
            "live-migration-source.go#shouldTriggerTimeout"
        ),
        (
            "kubevirt/kubevirt:pkg/virt-launcher/virtwrap/"
            "live-migration-source.go#isMigrationProgressing"
        ),
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    for timeout in migration_limits.timeouts(obj):
        if timeout.integer == 0:
            yield Finding(
                timeout.path,
                "0 disables this timeout: a migration that never converges blocks its slot and the "
                "drain forever. Write a number of seconds.",
            )
