"""A health check reports that it remediates nothing now.

**Why.** More of its machines or nodes are unhealthy than its limit allows, or the owner of a
Machine does not replace it. The check looks as if it worked. But VMs on a node that is lost now
never start elsewhere, until an administrator acts.

The status counts if it is of the present spec and of the same number of objects. A NodeHealthCheck
that is disabled has rules of its own: ``nhc-mhc-conflict``, ``remediation-template-not-found`` and
``remediation-template-invalid``.

A KubeadmControlPlane whose annotation ``remediation-in-progress`` names a Machine that was replaced
long ago skips all others, before Cluster API 1.8.

Machines that start or go, and nodes that are rebooted on purpose, are not healthy either: the check
then acts again by itself.

**Fix.** Repair as many of the unhealthy machines and nodes as are above the limit.
``virt-admit explain`` names them. Do not raise the limit for them: the check would then act on a
fault of the whole cluster.
"""

from virt_admit.forecasts.remediation import control_plane_deadlocks, reported_status
from virt_admit.forecasts.remediation.ends import stale_annotations
from virt_admit.forecasts.remediation.ends.stale_annotations import StaleAnnotation
from virt_admit.forecasts.remediation.limits import early_faults
from virt_admit.forecasts.remediation.reported_status import Exceeded, OwnerRefusal
from virt_admit.model.commands import about, shell
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, CAPI_MHC, MHC, NHC
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import advice_of, command_of, names
from virt_admit.model.remediation import check_scope, health_checks
from virt_admit.model.remediation.health_checks import HealthCheck
from virt_admit.rule import (
    Action,
    Context,
    Finding,
    Findings,
    Object,
    Path,
    Urgency,
    cut,
    rule,
    union,
)


@rule(
    kinds=(NHC, MHC, CAPI_MHC),
    reads=union(
        reported_status.READS,
        control_plane_deadlocks.READS,
        stale_annotations.READS,
        early_faults.READS,
    ),
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
        counts = f"{refused.unhealthy} of {refused.total} {subject} are not healthy by its status"
        again = _again(view, refused, context) or _repair(refused)
        message = f"{counts}, so it remediates nothing now{refused.limit}. {again}"
        yield Finding(path, message, command=_explain(obj, view))
    # machine-without-node says it of the Machine
    stuck = control_plane_deadlocks.deadlocks(context.cluster)
    refusals = reported_status.refusals(view, selection, context.cluster)
    for left in (each for each in refusals if each.machine.full_name not in stuck):
        held = stale_annotations.of_machine(left.machine, context.cluster)
        if held is not None and (held.certain or not left.says):
            yield _skipped(path, left, held)
            continue
        waits = (
            f"{cut(left.owner, 60)} has not remediated machine {left.machine.name[:63]} "
            f"{cut(left.lasts, 60)}"
        )
        see = about("describe", left.machine, CAPI_MACHINE)
        yield Finding(path, f"{waits}. Repair that machine.", value=left.machine.name, command=see)


def _skipped(path: Path, left: OwnerRefusal, held: StaleAnnotation) -> Finding:
    """Return that the owner of a Machine skips it because of a remediation that has ended."""
    waits = f"{left.machine.name[:63]} has OwnerRemediated False {cut(left.lasts, 60)}"
    name = cut(left.owner, 60)
    message = check.first_that_fits(
        path,
        f"{waits}. {name} skips it: {held.brief}. {advice_of(held.remedy)}",
        f"{waits}. {name} skips it: {held.brief}.",
        f"{waits}. {name} skips it for its annotation {control_plane_deadlocks.IN_PROGRESS}.",
    )
    return Finding(path, message, value=left.machine.name, command=command_of(held.remedy))


def _again(view: HealthCheck, refused: Exceeded, context: Context) -> str:
    """Return that nothing is to be repaired before a check acts again; empty: something may be."""
    selection = context.cached(check_scope.selected, view.obj)
    found = early_faults.passing(view, selection, refused.unhealthy, context.cluster)
    if not found:
        return ""
    by_cause = grouped(found, found.__getitem__)
    which = "; ".join(f"{names(own, 80)} ({cut(why, 120)})" for why, own in by_cause.items())
    return (
        f"It would act on none of them yet: {cut(which, 400)}. It acts again by itself "
        f"when {max(refused.surplus, 1)} of them {'is' if refused.surplus <= 1 else 'are'} healthy."
    )


def _repair(refused: Exceeded) -> str:
    """Return how many have to be repaired before a check acts again."""
    if not refused.surplus:
        return "Repair them, then it acts again."
    others = "others" if refused.unhealthy - refused.surplus > 1 else "other one"
    return f"Repair {refused.surplus} of them, then it acts on the {others}."


def _explain(obj: Object, view: HealthCheck) -> str:
    """Return the command that names the unhealthy machines or nodes."""
    word = "nhc" if view.kind is NHC else "mhc"
    return shell("virt-admit", "explain", f"{word}/{obj.full_name}")
