"""A pre-drain hook blocks the remediation of a machine that a MachineHealthCheck watches.

**Why.** Remediation deletes the machine, and the deletion waits before the drain until the owner of
the hook removes it. Until then a failed machine is not replaced and its volumes stay attached.

**Fix.** Make sure that the owner of the hook also removes it for failed nodes, or exclude the
machine from health checks.
"""

from typing import Final

from virt_admit.model.kubernetes.kinds import MACHINE, MHC
from virt_admit.model.remediation import check_scope, machines
from virt_admit.rule import Action, Context, Finding, Findings, Object, names, rule, show, union

_OPERATOR: Final = "clusteroperator/"
"""Owner prefix of the cluster operators, such as etcd. They remove their hooks in time."""


@rule(
    kinds=(MACHINE,),
    reads=union(machines.SELECT_READS, {MHC: ()}),
    action=Action.WARN,
    sources=("openshift/machine-api-operator:pkg/controller/machine/drain_controller.go",),
)
def check(machine: Object, context: Context) -> Findings:
    hooks = [
        hook
        for hook in machine.at("spec", "lifecycleHooks", "preDrain").items()
        if not (hook["owner"].text or "").startswith(_OPERATOR)
    ]
    if not hooks:
        return
    watches = check_scope.watches(context.cluster, MHC)
    checks = [
        watch.check.obj.name
        for watch in watches.of(machine.namespace)
        if not watch.check.paused.present and watch.check.selector.matches(machine.labels)
    ]
    if not checks:
        watches.demand_all()
        return
    for hook in hooks:
        owner = show(hook["owner"].value) if hook["owner"].present else "its owner"
        yield Finding(
            hook.path,
            f"remediation by {names(checks, 40)} waits until {owner} removes this hook. "
            "Make sure that it does so for failed nodes.",
        )
