"""The selector of a MachineHealthCheck is not valid.

**Why.** The schema checks almost nothing in a selector. With a malformed one every reconcile of the
check fails, so nothing is ever remediated. A typical cause is a placeholder from the documentation
such as ``<role>``. A label with the value ``null``, as an empty value of a Helm chart gives, is
worse: the API server removes it, and the check selects all machines that match the rest of the
selector. Without another label these are all machines of the namespace.

**Fix.** Write label keys and values as Kubernetes defines them. Use the operators ``In`` and
``NotIn`` with values, and ``Exists`` and ``DoesNotExist`` without.
"""

from virt_admit.model import cel_selectors
from virt_admit.model.remediation import health_checks
from virt_admit.rule import CAPI_MHC, MHC, Action, Context, Finding, Findings, Object, rule


@rule(
    kinds=(MHC, CAPI_MHC),
    action=Action.DENY,
    denials=(
        *cel_selectors.denials(
            "self.?spec.?selector", "spec.selector", ". The check would never act."
        ),
    ),
    sources=(
        (
            "openshift/machine-api-operator:pkg/controller/machinehealthcheck/"
            "machinehealthcheck_controller.go#getMachinesFromMHC"
        ),
        (
            "k8s.io/apiextensions-apiserver:pkg/apiserver/schema/defaulting/"
            "prunenulls.go#PruneNonNullableNullsWithoutDefaults"
        ),
        "k8s.io/apimachinery:pkg/apis/meta/v1/helpers.go#LabelSelectorAsSelector",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    for steps in view.selector.pruned:
        found = view.selector.pruned_text("machine")
        yield Finding(
            view.selector_field.at(*steps).path, f"{found}. Write a value, in quotes.", value=None
        )
    for steps, problem in view.selector.errors:
        path = view.selector_field.at(*steps).path
        yield Finding(
            path, check.first_that_fits(path, f"{problem}. The check would never act.", problem)
        )
