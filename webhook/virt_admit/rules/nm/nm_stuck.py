"""A NodeMaintenance hangs: its drain does not complete.

**Why.** The operator evicts the pods of the node again and again. While one pod refuses, the node
stays cordoned, its maintenance does not begin, and an upgrade that waits for the node does not
continue. In the first 10 minutes that is usual: the operator drains in rounds of 30 seconds, and a
live migration takes longer than one. A webhook that denies evictions is told at once.

**Fix.** ``status.lastError`` and ``status.pendingPods`` name what refuses: run
``virt-admit drain NODE`` for the remedy. To give up, delete the NodeMaintenance, which also
uncordons the node.
"""

from datetime import timedelta
from typing import Final

from virt_admit.model.commands import argument, shell
from virt_admit.model.evidence.writes import eviction_answers
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.kinds import NM, NM_KUBEVIRT
from virt_admit.model.messages import count, cut_middle, names
from virt_admit.model.remediation import maintenance
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule

_USUAL: Final = timedelta(minutes=10)
"""The operator reports an error after each round of 30 s while VMs migrate."""


@rule(
    kinds=(NM, NM_KUBEVIRT),
    reads=clock.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="DrainBlocked",
    at_admission=False,
    sources=(
        (
            "medik8s/node-maintenance-operator:api/v1beta1/"
            "nodemaintenance_types.go#NodeMaintenanceStatus"
        ),
        "medik8s/node-maintenance-operator:controllers/nodemaintenance_controller.go#Reconcile",
        "medik8s/node-maintenance-operator:controllers/nodemaintenance_controller.go#onReconcileError",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    hang = maintenance.hang(obj)
    if hang is None:
        return
    by = _refusing(hang.error)
    may_go_on = hang.phase == "Running" and not by
    if may_go_on and not clock.is_overdue(obj.created, _USUAL, context.cluster):
        return
    if hang.pending:
        width = 60 if by else 160
        what = f"{by}{count(len(hang.pending), 'pod')} left: {names(hang.pending, width)}"
    elif by:
        what = by.rstrip("; ")
    else:
        what = cut_middle(" ".join(hang.error.split()) or f"phase {hang.phase}", 200)
    node = obj.at("spec", "nodeName").text
    yield Finding(
        obj.at("status", "phase").path,
        f"the drain does not complete ({what}), so the node stays cordoned. Remove what refuses "
        "(virt-admit drain), or delete the NodeMaintenance.",
        value=hang.phase,
        command=shell("virt-admit", "drain", argument(node)) if node else "",
    )


def _refusing(error: str) -> str:
    """Return which webhook refuses evictions, before the pods that are left; empty: none does."""
    found = next((each for each in eviction_answers.of(error) if each.webhook), None)
    if found is None:
        return ""
    does = "denies evictions" if found.answers else "does not answer to evictions"
    return f"webhook {found.webhook} {does}; "
