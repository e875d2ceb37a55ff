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
    others = [
        other
        for other in policies
        if migration_policies.labels(other) == labels and other.name != policy.name
    ]
    if others:
        # the API server makes a name of generateName
        named = all(each.metadata["name"].text for each in (policy, *others))
        winner = min(each.name for each in (policy, *others)) if named else ""
        titles = sorted(each.name or f"a {each.kind} without a name" for each in others)
        applies = f"{winner} applies (first by name)" if winner else "the first by name applies"
        yield Finding(
            selectors.path,
            f"this policy and {names(titles, 60)} have the same selectors; only {applies}. "
            "Merge them.",
            value=(selectors.value, winner),
        )
    yield from more_may_exist(context.cluster, MIGRATION_POLICY)
