"""Two migration policies have the same selectors.

**Why.** The policy with more matching labels applies, then the one with more VM labels, then the
first by name. With the same selectors only the name decides, and the other policy has no effect.

**Fix.** Merge the policies, or make one of them more specific.
"""

from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import MIGRATION_POLICY
from virt_admit.model.kubevirt.settings import migration_policies
from virt_admit.rule import Action, Context, Finding, Findings, Object, names, rule


@rule(
    kinds=(MIGRATION_POLICY,),
    reads={MIGRATION_POLICY: ()},
    action=Action.WARN,
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migrationpolicy.go#matchPolicy",
    ),
)
def check(policy: Object, context: Context) -> Findings:
    selectors = policy["spec"]["selectors"]
    if not selectors.is_map:
        return
    labels = migration_policies.labels(policy)
    policies = context.cluster.known(MIGRATION_POLICY)
    duplicates = [
        other.name
        for other in policies
        if migration_policies.labels(other) == labels and other.name != policy.name
    ]
    if duplicates:
        winner = min(policy.name, *duplicates)
        yield Finding(
            selectors.path,
            f"this policy and {names(sorted(duplicates), 60)} have the same selectors; only "
            f"{winner} applies (first by name). Merge them.",
            value=(selectors.value, winner),
        )
    yield from more_may_exist(context.cluster, MIGRATION_POLICY)
