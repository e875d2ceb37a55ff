"""A health check has no condition by which it could judge a node.

**Why.** The schema does not require the list. Without it only machines that fail, or whose node never comes up or is
deleted, are replaced; a node that has been silent for a day is fine.

**Fix.** List ``Ready`` with status ``"False"`` and with status ``Unknown``, 300s each. A check that is only for deleted
nodes lists a condition that no node has.
"""

from collections.abc import Iterator

from virt_admit.model.kinds import CAPI_MHC, MHC, NHC
from virt_admit.model.objects import Object
from virt_admit.model.remediation import health_checks
from virt_admit.model.remediation.health_checks import HealthCheck
from virt_admit.rule import Action, Cause, Context, Finding, NoParams, Rule


def check(obj: Object, context: Context[NoParams]) -> Iterator[Finding]:
    view = context.cached(health_checks.view, obj)
    if view.entries or (view.kind is NHC and not view.conditions.present):  # the schema fills in both states of Ready
        return
    if view.kind is not CAPI_MHC:
        yield Finding(
            view.conditions.path,
            'no node would ever be judged by its conditions; list Ready with status "False" and with status Unknown, '
            f"each with {view.time_key}: 300s",
            value=None,  # absent and empty are one fault
            cause=Cause.REQUIRED,
        )
    elif _idle(view):
        yield Finding(
            view.conditions.path,
            "without a condition, and with the start-up check off, nothing is ever remediated; "
            "list Ready False and Ready Unknown",
            cause=Cause.REQUIRED,
            max_action=Action.WARN,
        )


def _idle(view: HealthCheck) -> bool:
    """Whether a check of Cluster API without node conditions has nothing else to go by."""
    others = (view.machine_conditions, view.obj.at("spec", "checks", "unhealthyExpressions"))
    return view.known_startup_time() == 0 and not any(any(other.items()) for other in others)


RULE = Rule(
    module=__name__,
    doc=__doc__,
    kinds=(MHC, CAPI_MHC, NHC),
    action=Action.DENY,
    check=check,
    sources=("openshift/machine-api-operator:install/0000_30_machine-api-operator_07_machinehealthcheck.crd.yaml",),
)
