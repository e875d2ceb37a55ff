"""The selector of a NodeHealthCheck is malformed.

**Why.** The schema checks almost nothing in a selector. The operator's webhook rejects a malformed
one. Where that webhook does not run, every reconcile fails and no node is ever remediated. A label
with the value ``null``, as an empty value of a Helm chart gives, is worse: the API server removes
it, and the check selects more nodes.

**Fix.** Write label keys and values with letters, digits, ``-``, ``_`` and ``.``. Use the operators
``In`` and ``NotIn`` with values, and ``Exists`` and ``DoesNotExist`` without.
"""

from virt_admit.model import cel_selectors
from virt_admit.model.remediation import health_checks
from virt_admit.rule import NHC, Action, Context, Finding, Findings, Object, Path, rule


@rule(
    kinds=(NHC,),
    action=Action.DENY,
    denials=(
        *cel_selectors.problems(
            "self.?spec.?selector", "spec.selector", ". No node would ever be remediated."
        ),
    ),
    sources=(
        "medik8s/node-healthcheck-operator:nodehealthcheck_webhook.go#validateSelector",
        (
            "k8s.io/apiextensions-apiserver:pkg/apiserver/schema/defaulting/"
            "prunenulls.go#PruneNonNullableNullsWithoutDefaults"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    nhc = context.cached(health_checks.view, obj)
    for steps in nhc.selector.pruned:
        found = nhc.selector.pruned_text("node")
        message = f"{Path(*steps)}: {found}. Write a value, in quotes."
        yield Finding(nhc.selector_field.path, message, value=str(Path(*steps)))
    for steps, problem in nhc.selector.errors:
        path = nhc.selector_field.path
        located = f"{Path(*steps)}: {problem}" if steps else problem
        message = check.first_that_fits(
            path, f"{located}. No node would ever be remediated.", located
        )
        yield Finding(path, message, value=problem)
