"""A node health check selects every node, because its selector is empty.

**Why.** It would remediate control-plane nodes and workers alike. The operator refuses it; checks from the time before
the selector became mandatory may still be there.

**Fix.** Select workers: ``node-role.kubernetes.io/control-plane`` and ``node-role.kubernetes.io/master`` with
``DoesNotExist``.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import NHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    nhc = context.cached(health_checks.view, obj)
    if nhc.selector.empty:
        yield Finding(
            nhc.selector_field.path,
            "an empty selector would select every node, control plane included, and is refused; exclude "
            "node-role.kubernetes.io/control-plane with DoesNotExist",
            cause=Cause.REQUIRED,
            value=None,
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    action=Action.DENY,
    check=check,
    sources=("medik8s/node-healthcheck-operator:nodehealthcheck_webhook.go#validateSelector",),
)
