"""The Machine of a node is being deleted for long and waits for a hook,
or another Machine has that node by now.

**Why.** The controller of a hook holds the deletion, and no time-out ends that. The node stays: it
is not drained, or it stays after its drain. Where the controller of the hook is gone, or waits for
a Machine that nothing makes, the deletion never ends. A node that was installed again with its name
has a new Machine: Cluster API cordons it for the old one, and deletes it in the end.

**Fix.** ``virt-admit explain node/NAME`` says what the hook waits for. Provide that, or repair the
controller of the hook. The hook must stay: it guards data or the quorum of etcd.
"""

from datetime import timedelta

from virt_admit.forecasts.drain import node_notes
from virt_admit.forecasts.drain.control import machine_twins
from virt_admit.forecasts.drain.control.machine_twins import TwinMachine
from virt_admit.model import machine_nodes
from virt_admit.model.commands import shell
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE, NODE
from virt_admit.model.messages import advice_of, names
from virt_admit.model.node_updates.operators import machine_hooks
from virt_admit.model.remediation import etcd_guard, machine_drain
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, cut, rule, union


@rule(
    kinds=(NODE,),
    reads=union(
        clock.READS,
        machine_nodes.READS,
        machine_hooks.READS,
        etcd_guard.HOOK_READS,
        {
            MACHINE: ("metadata.deletionTimestamp", "spec.providerID", "status.v1beta2.conditions"),
            CAPI_MACHINE: ("metadata.deletionTimestamp",),
        },
    ),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="DeletionHeld",
    at_admission=False,
    sources=(
        (
            "kubernetes-sigs/cluster-api:core/reconcilers/machine/"
            "machine_controller.go#reconcileDelete"
        ),
        "openshift/machine-api-operator:pkg/controller/machine/drain_controller.go",
        (
            "openshift/cluster-control-plane-machine-set-operator:test/e2e/helpers/"
            "cases.go#ItShouldPerformARollingUpdate"
        ),
    ),
)
def check(node: Object, context: Context) -> Findings:
    path, cluster = node.metadata["name"].path, context.cluster
    see = shell("virt-admit", "explain", f"node/{node.name}")
    left = {each.machine.full_name: each for each in machine_twins.of_node(node.name, cluster)}
    for held in node_notes.held_deletions(cluster).get(node.name, ()):
        twin = left.pop(held.machine.full_name, None)
        age = _age(held.machine, cluster)
        if age is None or age < machine_hooks.patience(held.machine, cluster):
            continue
        begin = f"{_begin(held.machine, twin, age)}, but its hook {cut(held.hooks[0], 60)}"
        advice = held.brief or "Provide what the hook waits for."
        message = f"{begin} is set, which no time-out ends. {advice}"
        if paused := machine_hooks.pause(held.machine, cluster):
            message = f"{begin} stays, as {paused.title}. {advice_of(paused.remedy)}"
        yield Finding(path, message, value=node.name, command=see)
    for twin in left.values():
        age = _age(twin.machine, cluster)
        if age is not None and age >= machine_hooks.PATIENCE:
            message = f"{_begin(twin.machine, twin, age)}. See what its deletion waits for."
            yield Finding(path, message, value=node.name, command=see)


def _age(machine: Object, cluster: Cluster) -> timedelta | None:
    return clock.since(machine.metadata["deletionTimestamp"].text, cluster)


def _begin(machine: Object, twin: TwinMachine | None, age: timedelta) -> str:
    lasts, name = clock.duration(age), cut(machine.full_name, 60)
    if twin is None:
        return f"Machine {name} is being deleted for {lasts}"
    again = "cordoned again and again, because " if machine_drain.cordons_again(machine) else ""
    return (
        f"{again}Machine {name} has this node next to Machine {names(twin.stay, 60)} and is being "
        f"deleted for {lasts}"
    )
