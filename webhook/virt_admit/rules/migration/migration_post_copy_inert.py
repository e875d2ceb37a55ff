"""Post-copy is allowed, and the disruption that it needs is not.

**Why.** A migration switches to post-copy only if the guest may be disrupted and the time is up. With
``allowWorkloadDisruption: false`` that never happens and ``allowPostCopy`` does nothing. Since release 1.19 the schema of
HyperConverged writes that false by itself, so ``allowPostCopy`` alone has no effect any more.

**Fix.** Set ``allowWorkloadDisruption: true`` as well, or remove ``allowPostCopy``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import HCO, KUBEVIRT, MIGRATION_POLICY
from virt_admit.model.kubevirt import migration_limits
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    if not migration_limits.post_copy(obj) or migration_limits.disruption(obj) is not False:
        return
    block = migration_limits.block(obj)
    said = block["allowWorkloadDisruption"]
    state = "is false" if said.present else "is absent, which means false here"
    yield Finding(
        block["allowPostCopy"].path,
        f"post-copy never starts while allowWorkloadDisruption {state}; set that to true, too",
        value=(True, said.value),
    )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(HCO, KUBEVIRT, MIGRATION_POLICY),
    action=Action.WARN,
    check=check,
    sources=(
        "kubevirt/kubevirt:pkg/virt-launcher/virtwrap/live-migration-source.go#shouldAssistMigrationToComplete",
        "kubevirt/kubevirt:pkg/virt-config/virt-config.go#GetMigrationConfiguration",
        "kubevirt/hyperconverged-cluster-operator:deploy/crds/hco00.crd.yaml",
    ),
)
