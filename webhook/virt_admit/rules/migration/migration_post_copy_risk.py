"""Migrations may disrupt the guest.

**Why.** During post-copy the memory of a guest is spread over two nodes. If the network or one of
the nodes fails, the guest crashes. With ``allowWorkloadDisruption`` alone KubeVirt pauses a guest
that does not converge until its migration completes. Both are documented trade-offs for migrations
that complete, so this rule is off by default.

**Fix.** Leave both unset if guests must never stop. Busy guests may then fail to migrate.
"""

from virt_admit.model.kubernetes.kinds import HCO, KUBEVIRT, MIGRATION_POLICY
from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.rule import Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(HCO, KUBEVIRT, MIGRATION_POLICY),
    action=Action.OFF,
    sources=(
        (
            "kubevirt/kubevirt:pkg/virt-launcher/virtwrap/"
            "live-migration-source.go#shouldAssistMigrationToComplete"
        ),
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    block = migration_limits.block(obj)
    disruption = migration_limits.disruption(obj)
    if migration_limits.post_copy(obj):
        if disruption is not False:
            yield Finding(
                block["allowPostCopy"].path,
                "a network or node failure during post-copy crashes the guest. Remove this field "
                "if guests must not crash.",
                max_action=Action.WARN,
            )
    elif disruption:
        yield Finding(
            block["allowWorkloadDisruption"].path,
            "a guest that does not converge is paused until its migration completes. "
            "Remove this field if guests must not pause.",
            max_action=Action.WARN,
        )
