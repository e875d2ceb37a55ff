"""A NodeHealthCheck selects every node because its selector is empty.

**Why.** It would remediate control-plane nodes and workers alike. The operator rejects it, but
checks from before the selector became mandatory can still exist.

**Fix.** Select workers: ``node-role.kubernetes.io/control-plane`` and
``node-role.kubernetes.io/master`` with ``DoesNotExist``.
"""

from virt_admit.model import cel
from virt_admit.model.remediation import cel_checks, health_checks
from virt_admit.rule import NHC, Action, Cause, Context, Finding, Findings, Object, rule


@rule(
    kinds=(NHC,),
    action=Action.DENY,
    denials=(
        cel.Denial(
            when=cel_checks.EMPTY_SELECTOR,
            path="'spec.selector'",
            message=(
                "'an empty selector would select every node, including the control plane; the "
                "operator rejects it. ' + 'Exclude node-role.kubernetes.io/control-plane with "
                "DoesNotExist.'"
            ),
        ),
    ),
    sources=("medik8s/node-healthcheck-operator:nodehealthcheck_webhook.go#validateSelector",),
)
def check(obj: Object, context: Context) -> Findings:
    nhc = context.cached(health_checks.view, obj)
    if nhc.selector.empty and not nhc.selector.pruned:  # nhc-selector-invalid reports null
        yield Finding(
            nhc.selector_field.path,
            "an empty selector would select every node, including the control plane; the operator "
            "rejects it. Exclude node-role.kubernetes.io/control-plane with DoesNotExist.",
            cause=Cause.REQUIRED,
            value=None,
        )
