"""A MachineHealthCheck selects no machine.

**Why.** It looks at the Machines of its own namespace only, and none of them has the labels that it asks for. Perhaps
they come later; perhaps a label is misspelled, and a dead node will stay dead.

**Fix.** Compare with ``kubectl get machines --show-labels`` in the namespace of the check.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import CAPI_MHC, MHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks, machines, watching
from virt_admit.rule import Action, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    if view.deliberate or view.selector.errors:
        return
    selection = context.cached(watching.selected, obj)
    if not selection.positions:
        selection.demand_all()
        yield Finding(
            view.selector_field.path,
            f"matches no Machine in namespace {obj.namespace or 'default'} today; Machines elsewhere never count",
        )


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC),
    reads=machines.SELECT_READS,
    action=Action.WARN,
    check=check,
    sources=(
        "openshift/machine-api-operator:pkg/controller/machinehealthcheck/machinehealthcheck_controller.go#getMachinesFromMHC",
    ),
)
