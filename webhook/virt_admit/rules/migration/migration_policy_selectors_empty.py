"""A migration policy selects no label, and so every VM.

**Why.** A policy without any label in its selectors matches every VM of the cluster, with the lowest rank: it
silently replaces the limits of the cluster wherever no other policy matches. Without ``selectors`` at all the API
server refuses it.

**Fix.** Name labels of namespaces or of VMs; they stand directly in the selector, without ``matchLabels``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import MIGRATION_POLICY
from virt_admit.model.kubevirt import migration_policies
from virt_admit.model.objects import Object
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(policy: Object, _context: Context[NoParams]) -> Iterator[Finding]:
    selectors = policy["spec"]["selectors"]
    if not selectors.is_map:
        yield Finding(selectors.path, "the API server requires selectors; name labels in them", cause=Cause.REQUIRED)
    elif not any(migration_policies.labels(policy)):
        yield Finding(
            selectors.path,
            "without a label in either selector this policy applies to every VM; name labels, without matchLabels",
            max_action=Action.WARN,
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MIGRATION_POLICY,),
    action=Action.DENY,
    check=check,
    sources=("kubevirt/kubevirt:pkg/virt-controller/watch/migration/migrationpolicy.go#matchPolicy",),
)
