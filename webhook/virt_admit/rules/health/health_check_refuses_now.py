"""A health check reports that it remediates nothing now.

**Why.** More of its machines or nodes are unhealthy than its limit allows, or the owner of a
Machine does not replace it. The check looks as if it worked. But VMs on a node that is lost now
never start elsewhere, until an administrator acts.

The status counts if it is of the present spec and of the same number of objects. A NodeHealthCheck
that is disabled has rules of its own: ``nhc-mhc-conflict``, ``remediation-template-not-found`` and
``remediation-template-invalid``.

**Fix.** Repair as many of the unhealthy machines and nodes as are above the limit.
``virt-admit explain`` names them. Do not raise the limit for them: the check would then act on a
fault of the whole cluster.
"""

from virt_admit.forecasts.remediation import control_plane_deadlocks, reported_status
from virt_admit.model.commands import about, shell
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, CAPI_MHC, MHC, NHC
from virt_admit.model.remediation import check_scope, health_checks
from virt_admit.model.remediation.health_checks import HealthCheck
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, cut, rule, union


@rule(
    kinds=(NHC, MHC, CAPI_MHC),
    reads=union(reported_status.READS, control_plane_deadlocks.READS),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="RemediationRefused",
    at_admission=False,
    sources=(
        (
            "medik8s/node-healthcheck-operator:internal/controller/"
            "nodehealthcheck_controller.go#Reconcile"
        ),
        (
            "openshift/machine-api-operator:pkg/controller/machinehealthcheck/"
            "machinehealthcheck_controller.go"
        ),
        (
            "kubernetes-sigs/cluster-api:core/reconcilers/machinehealthcheck/"
            "machinehealthcheck_controller.go#reconcile"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    view = context.cached(health_checks.view, obj)
    selection = context.cached(check_scope.selected, obj)
    selection.demand_all()
    subject = "nodes" if view.kind is NHC else "machines"
    path = obj["status"].path
    refused = reported_status.exceeded(view, selection, context.cluster)
    if refused is not None:
        counts = f"{refused.unhealthy} of {refused.total} {subject} are unhealthy by its status"
        repair = "Repair them, then it acts again."
        if refused.surplus:
            others = "others" if refused.unhealthy - refused.surplus > 1 else "other one"
            repair = f"Repair {refused.surplus} of them, then it acts on the {others}."
        message = f"{counts}, so it remediates nothing now{refused.limit}. {repair}"
        yield Finding(path, message, command=_explain(obj, view))
    # machine-without-node says it of the Machine
    stuck = control_plane_deadlocks.deadlocks(context.cluster)
    refusals = reported_status.refusals(view, selection, context.cluster)
    for left in (each for each in refusals if each.machine.full_name not in stuck):
        waits = (
            f"{cut(left.owner, 60)} has not remediated machine {left.machine.name[:63]} "
            f"{cut(left.lasts, 60)}"
        )
        see = about("describe", left.machine, CAPI_MACHINE)
        yield Finding(path, f"{waits}. Repair that machine.", value=left.machine.name, command=see)


def _explain(obj: Object, view: HealthCheck) -> str:
    """Return the command that names the unhealthy machines or nodes."""
    word = "nhc" if view.kind is NHC else "mhc"
    return shell("virt-admit", "explain", f"{word}/{obj.full_name}")
