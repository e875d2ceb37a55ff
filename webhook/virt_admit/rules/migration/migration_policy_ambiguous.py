"""Two migration policies have the same selectors.

**Why.** The policy with more matching labels wins, then the one with more labels of VMs, then the first name in
alphabetical order. With the same selectors only the name decides, and the other policy has no effect.

**Fix.** Merge the two, or make one of them more specific.
"""

from collections.abc import Iterator

from virt_admit.model.cluster import Unseen, more_may_exist
from virt_admit.model.kinds import MIGRATION_POLICY
from virt_admit.model.kubevirt import migration_policies
from virt_admit.model.messages import names
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(policy: Object, context: Context[NoParams]) -> Iterator[Finding | Unseen]:
    selectors = policy["spec"]["selectors"]
    if not selectors.is_map:
        return
    wanted = migration_policies.labels(policy)
    policies = context.cluster.known(MIGRATION_POLICY)
    twins = [each.name for each in policies if migration_policies.labels(each) == wanted and each.name != policy.name]
    if twins:
        winner = min(policy.name, *twins)
        yield Finding(
            selectors.path,
            f"the same selectors as {names(sorted(twins), 60)}; only {winner} is used, the first name; merge them",
            value=(selectors.value, winner),
        )
    yield from more_may_exist(context.cluster, MIGRATION_POLICY)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MIGRATION_POLICY,),
    reads={MIGRATION_POLICY: ()},
    action=Action.WARN,
    check=check,
    sources=("kubevirt/kubevirt:pkg/virt-controller/watch/migration/migrationpolicy.go#matchPolicy",),
)
