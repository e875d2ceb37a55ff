"""Post-copy is allowed, but the workload disruption that it needs is not.

**Why.** A migration switches to post-copy only after its timeout and only if it may disrupt the
guest. With ``allowWorkloadDisruption: false`` it never does, and ``allowPostCopy`` has no effect.
The schema of HyperConverged sets that value to false since release 1.19, so ``allowPostCopy`` alone
no longer has an effect.

**Fix.** Set ``allowWorkloadDisruption: true`` as well, or remove ``allowPostCopy``.
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
            "live-migration-source.go#shouldAssistMigrationToComplete"
        ),
        "kubevirt/kubevirt:pkg/virt-config/virt-config.go#GetMigrationConfiguration",
        "kubevirt/hyperconverged-cluster-operator:deploy/crds/hco00.crd.yaml",
    ),
)
def check(obj: Object, _context: Context) -> Findings:
    if not migration_limits.post_copy(obj) or migration_limits.disruption(obj) is not False:
        return
    block = migration_limits.block(obj)
    allowed = block["allowWorkloadDisruption"]
    state = "is false" if allowed.present else "is absent (default false)"
    yield Finding(
        block["allowPostCopy"].path,
        f"post-copy never starts, because allowWorkloadDisruption {state}. Set it to true as well.",
        value=(True, allowed.value),
    )
