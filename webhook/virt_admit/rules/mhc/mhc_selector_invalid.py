"""The selector of a MachineHealthCheck cannot be read.

**Why.** The schema checks almost nothing of a selector. A malformed one is accepted, and then every reconcile of the
check fails: nothing is ever remediated. Placeholders of the documentation such as ``<role>`` end here.

**Fix.** Write label keys and values as Kubernetes defines them, and one of the operators ``In``, ``NotIn`` (with values),
``Exists``, ``DoesNotExist`` (without).
"""

from collections.abc import Iterator

from virt_admit.model.kinds import CAPI_MHC, MHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    for steps, problem in view.selector.errors:
        yield Finding(view.selector_field.at(*steps).path, f"{problem}; with it the check never does anything")


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC),
    action=Action.DENY,
    check=check,
    sources=(
        "openshift/machine-api-operator:pkg/controller/machinehealthcheck/machinehealthcheck_controller.go#getMachinesFromMHC",
        "k8s.io/apimachinery:pkg/apis/meta/v1/helpers.go#LabelSelectorAsSelector",
    ),
)
