"""The selector of a node health check is malformed.

**Why.** The schema checks almost nothing of a selector. The operator's webhook refuses a malformed one; where it is
not asked, every reconcile fails and no node is ever remediated.

**Fix.** Label keys and values of letters, digits, ``-``, ``_`` and ``.``; the operators ``In`` and ``NotIn`` with
values, ``Exists`` and ``DoesNotExist`` without.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import NHC
from virt_admit.model.objects import Object, Path
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    nhc = context.cached(health_checks.view, obj)
    for steps, problem in nhc.selector.errors:
        place = f"{Path(*steps)}: " if steps else ""
        yield Finding(nhc.selector_field.path, f"{place}{problem}; no node would ever be remediated", value=problem)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(NHC,),
    action=Action.DENY,
    check=check,
    sources=("medik8s/node-healthcheck-operator:nodehealthcheck_webhook.go#validateSelector",),
)
