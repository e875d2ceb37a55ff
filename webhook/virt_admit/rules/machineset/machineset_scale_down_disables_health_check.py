"""A MachineSet scales down so far that a health check no longer remediates.

**Why.** A MachineHealthCheck rounds its percentage down. With the machines that remain the limit
becomes 0, so the check still counts unhealthy machines but silently stops remediating them.

**Fix.** Write an absolute number in ``maxUnhealthy`` of the health check, such as 1 for small sets.
"""

from virt_admit.model.kubernetes.int_or_percent import allowed_unhealthy
from virt_admit.model.kubernetes.kinds import MACHINE_SET, MHC
from virt_admit.model.kubernetes.labels import Selection
from virt_admit.model.messages import names
from virt_admit.model.remediation import check_scope, machines
from virt_admit.model.remediation.check_scope import WatchedNodes
from virt_admit.model.remediation.machines import ScaleDown
from virt_admit.rule import Action, Context, Finding, Findings, Object, Operation, rule, union


@rule(
    kinds=(MACHINE_SET,),
    reads=union(machines.SET_READS, {MHC: ()}),
    operations=(Operation.UPDATE,),
    subresources=("scale",),
    action=Action.WARN,
    sources=(
        (
            "openshift/machine-api-operator:pkg/controller/machinehealthcheck/"
            "machinehealthcheck_controller.go#getMaxUnhealthy"
        ),
    ),
)
def check(obj: Object, context: Context) -> Findings:
    change = machines.scale_down(obj, context.old, context.subresource, context.cluster)
    if change is None:
        return
    members = machines.of_set(change.machine_set, context.cluster)
    members.demand_all()
    watches = check_scope.watches(context.cluster, MHC)
    disabled = [
        watch.check.obj.name
        for watch in watches.of(change.machine_set.namespace)
        if not watch.check.handler and _is_disabled(watch, members, change)
    ]
    if disabled:
        yield Finding(
            obj.at("spec", "replicas").path,
            f"with so few machines maxUnhealthy of {names(disabled, 60)} rounds down to 0, so "
            "nothing is remediated. Set an absolute number there, such as 1.",
        )
    watches.demand_all()


def _is_disabled(watch: WatchedNodes, members: Selection, change: ScaleDown) -> bool:
    limit = watch.check.known_limit()
    selected = watch.selection.positions
    if limit is None or not limit.percent or selected.isdisjoint(members.positions):
        return False
    remaining = len(selected - members.positions) + change.after
    before, after = (
        allowed_unhealthy(limit, size, watch.check.limit_of) for size in (len(selected), remaining)
    )
    return before > 0 and after == 0
