"""A migration timeout is disabled.

**Why.** With 0 KubeVirt never cancels a migration that does not converge. It keeps its slot forever, and the drain
that needs it never completes.

**Fix.** Remove the field for the default, or write seconds.
"""

from collections.abc import Iterator

from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, MIGRATION_POLICY
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    for timeout in migration_limits.timeouts(obj):
        if timeout.integer == 0:
            yield Finding(
                timeout.path,
                "0 disables this timeout: a migration that never converges blocks its slot and the drain forever. "
                "Write a number of seconds.",
            )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT, MIGRATION_POLICY),
    action=Action.WARN,
    check=check,
    sources=(
        "kubevirt/kubevirt:pkg/virt-launcher/virtwrap/live-migration-source.go#shouldTriggerTimeout",
        "kubevirt/kubevirt:pkg/virt-launcher/virtwrap/live-migration-source.go#isMigrationProgressing",
    ),
)
