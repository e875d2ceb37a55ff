"""Migrations may disrupt the guest.

**Why.** During post-copy the memory of a guest is spread over two nodes: if the network or one of them fails, the
guest crashes. Where only ``allowWorkloadDisruption`` is set, a guest that does not converge is paused until its
migration is done. Both are documented trade-offs for migrations that end; hence this rule is off.

**Fix.** Leave both unset where a guest must never stop, and accept that busy guests may not migrate.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import HCO, KUBEVIRT, MIGRATION_POLICY
from virt_admit.model.kubevirt import migration_limits
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    block = migration_limits.block(obj)
    disruption = migration_limits.disruption(obj)
    if migration_limits.post_copy(obj):
        if disruption is not False:
            yield Finding(
                block["allowPostCopy"].path,
                "a failure of the network or of a node during post-copy crashes the guest; remove it if that must not be",
                max_action=Action.WARN,
            )
    elif disruption:
        yield Finding(
            block["allowWorkloadDisruption"].path,
            "a guest that does not converge is paused until its migration is done; remove it if that must not be",
            max_action=Action.WARN,
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT, MIGRATION_POLICY),
    action=Action.OFF,
    check=check,
    sources=("kubevirt/kubevirt:pkg/virt-launcher/virtwrap/live-migration-source.go#shouldAssistMigrationToComplete",),
)
