"""A migration policy has no selector labels, or none that the API server accepts.

**Why.** A policy without labels in its selectors matches every VM of the cluster with the lowest
rank. It silently replaces the cluster limits for all VMs that no other policy matches. The API
server rejects a policy without ``selectors``. It also rejects ``matchLabels`` and
``matchExpressions``, because a selector maps labels to strings.

**Fix.** Select labels of namespaces or of VMs. Write them directly in the selector, without
``matchLabels``. The value ``""`` matches only an empty label. It is not a wildcard.
"""

from virt_admit.model import cel
from virt_admit.model.kubernetes.kinds import MIGRATION_POLICY
from virt_admit.model.kubevirt.settings import migration_policies
from virt_admit.rule import Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(MIGRATION_POLICY,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=f"!({cel.is_map('self.?spec.?selectors')})",
            path="'spec.selectors'",
            message=(
                "'the API server requires this field. Write labels of namespaces or VMs in it.'"
            ),
            value="self.?spec.?selectors.orValue(null)",
        ),
    ),
    sources=(
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migrationpolicy.go#matchPolicy",
        "kubevirt/kubevirt:staging/src/kubevirt.io/api/migrations/v1alpha1/types.go#LabelSelector",
    ),
)
def check(policy: Object, _context: Context) -> Findings:
    selectors = policy["spec"]["selectors"]
    if not selectors.is_map:
        yield Finding(
            selectors.path,
            "the API server requires this field. Write labels of namespaces or VMs in it.",
            cause=Cause.REQUIRED,
        )
        return
    nested = list(migration_policies.nested(policy))
    for field in nested:
        yield Finding(
            field.path,
            "the API server rejects this policy, because a selector maps labels to strings. "
            "Write the labels directly in the selector.",
            cause=Cause.TYPE,
            max_action=Action.WARN,
        )
    if not nested and not any(migration_policies.labels(policy)):
        yield Finding(
            selectors.path,
            "no selector has a label, so this policy applies to every VM. Select labels of "
            "namespaces or VMs.",
            max_action=Action.WARN,
        )
