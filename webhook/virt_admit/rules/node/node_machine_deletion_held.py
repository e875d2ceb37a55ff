"""The Machine of a node is being deleted for long and waits for a hook.

**Why.** The controller of a hook holds the deletion, and no time-out ends that. The node stays: it is not drained, or it stays
after its drain. Where the controller of the hook is gone, or waits for a Machine that nothing makes, the deletion never ends.

**Fix.** ``virt-admit explain node/NAME`` says what the hook waits for. Provide that, or repair the controller of the hook. The
hook must stay: it guards data or the quorum of etcd.
"""

from datetime import timedelta

from virt_admit.forecasts.drain import node_notes
from virt_admit.model import machine_nodes
from virt_admit.model.commands import shell
from virt_admit.model.kubernetes import clock
from virt_admit.model.remediation import etcd_guard, machine_drain
from virt_admit.rule import (
    CAPI_MACHINE,
    MACHINE,
    NODE,
    Action,
    Context,
    Finding,
    Findings,
    Object,
    cut,
    rule,
    union,
)

_PATIENCE = timedelta(hours=1)
"""A controller that moves data needs minutes."""
_OF_ETCD = timedelta(hours=3)
"""A replacement is installed and joins etcd first, on bare metal too, and Machines that were deleted together take turns. The
test of its operator gives a roll-out of three virtual machines an hour."""


@rule(
    kinds=(NODE,),
    reads=union(
        clock.READS,
        machine_nodes.READS,
        machine_drain.READS,
        etcd_guard.HOOK_READS,
        {
            MACHINE: ("metadata.deletionTimestamp", "spec.providerID", "status.v1beta2.conditions"),
            CAPI_MACHINE: ("metadata.deletionTimestamp",),
        },
    ),
    action=Action.WARN,
    event="DeletionHeld",
    at_admission=False,
    sources=(
        "kubernetes-sigs/cluster-api:core/reconcilers/machine/machine_controller.go#reconcileDelete",
        "openshift/machine-api-operator:pkg/controller/machine/drain_controller.go",
        "openshift/cluster-control-plane-machine-set-operator:test/e2e/helpers/cases.go#ItShouldPerformARollingUpdate",
    ),
)
def check(node: Object, context: Context) -> Findings:
    for held in node_notes.held_deletions(context.cluster).get(node.name, ()):
        age = clock.since(held.machine.metadata["deletionTimestamp"].text, context.cluster)
        if age is None or age < (_OF_ETCD if etcd_guard.is_held(held.machine) else _PATIENCE):
            continue
        path = node.metadata["name"].path
        message = (
            f"Machine {cut(held.machine.full_name, 60)} is being deleted for {clock.duration(age)}, but its hook "
            f"{cut(held.hooks[0], 50)} is set, which no time-out ends. Provide what the hook waits for."
        )
        yield Finding(path, message, value=node.name, command=shell("virt-admit", "explain", f"node/{node.name}"))
