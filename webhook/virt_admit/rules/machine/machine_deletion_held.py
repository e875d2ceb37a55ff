"""A Machine is being deleted for long, for a hook without its Node or without the limit of others.

**Why.** The controller of a hook holds the deletion, and no time-out ends that. Its owner makes no
replacement before the Machine is gone. The provider of RKE2 waits without end for a Machine whose
Node was deleted first: it looks on that Node for the mark that etcd removed the member. The rule
node-machine-deletion-held is about hooks of Machines whose Node exists. A ``nodeDrainTimeout`` that
is set later in a MachineDeployment does not reach a Machine that is being deleted before Cluster
API 1.8, so that its drain goes on without a limit.

**Fix.** Provide what the hook waits for, or repair its controller. Remove the hook only if what it
guards is done: for a member of etcd, if etcd is healthy and does not list it any more. Delete no
Node before its Machine. Let what holds the drain leave, or set the limit on the Machine itself:
what is left on the node ends with it then.
"""

from datetime import timedelta

from virt_admit.forecasts.drain.control import machine_twins
from virt_admit.forecasts.drain.endless import given_time_outs
from virt_admit.model import machine_nodes
from virt_admit.model.commands import about
from virt_admit.model.kubernetes import clock, kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE, NODE
from virt_admit.model.messages import advice_of, command_of, cut
from virt_admit.model.node_updates.operators import machine_hooks
from virt_admit.model.remediation import machine_drain
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union


@rule(
    kinds=(MACHINE, CAPI_MACHINE),
    reads=union(
        clock.READS,
        machine_nodes.READS,
        machine_hooks.READS,
        given_time_outs.READS,
        {MACHINE: ("metadata.deletionTimestamp",), CAPI_MACHINE: ("status.v1beta2.conditions",)},
    ),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="DeletionHeld",
    at_admission=False,
    of_deleted=True,
    sources=(
        (
            "kubernetes-sigs/cluster-api:core/reconcilers/machine/"
            "machine_controller.go#reconcileDelete"
        ),
        "openshift/machine-api-operator:pkg/controller/machine/drain_controller.go",
        (
            "kubernetes-sigs/cluster-api:core/reconcilers/machineset/"
            "machineset_controller.go#syncMachines"
        ),
        "rancher/cluster-api-provider-rke2:pkg/rke2/workload_cluster_etcd.go"
        "#isMemberRemovedForNode",
    ),
)
def check(machine: Object, context: Context) -> Findings:
    cluster = context.cluster
    yield from _without_limit(machine, cluster)
    hooks = machine_hooks.hooks(machine) if machine.deleted else ()
    age = clock.since(machine.metadata["deletionTimestamp"].text, cluster) if hooks else None
    if age is None or age < machine_hooks.patience(machine, cluster):
        return
    node = machine_nodes.emptied_node(machine, cluster)
    if node and cluster.get(NODE, "", node) is not None:
        return  # node-machine-deletion-held says it of the node
    path = machine.metadata["name"].path
    begin = f"it is being deleted for {clock.duration(age)} and waits for its hook"
    if lost := machine_hooks.of_lost_member(machine, cluster):
        short = lost.why.replace(f"annotation {machine_hooks.REMOVED}", "the end of its member")
        hook, advice = machine_hooks.RKE2, advice_of(lost.advice)
        ways = (f"{begin} {hook}: {why}. {advice}" for why in (lost.why, short))
        message = check.first_that_fits(path, *ways)
        yield Finding(path, message, value=machine.name, command=lost.command)
        return
    if paused := machine_hooks.pause(machine, cluster):
        hook, why = cut(hooks[0].partition(" of ")[0], 60), paused.title
        message = f"{begin} {hook}, which stays, as {why}. {advice_of(paused.remedy)}"
        yield Finding(path, message, value=machine.name, command=command_of(paused.remedy))
        return
    kind = CAPI_MACHINE if kinds.of(machine) is CAPI_MACHINE else MACHINE
    known = machine_twins.rancher_wait(machine, cluster)
    advice = known[-1] if known is not None else "Provide what that waits for."
    yield Finding(
        path,
        f"{begin} {cut(hooks[0], 60)}, which no time-out ends. {advice}",
        value=machine.name,
        command=about("describe", machine, kind),
    )


def _without_limit(machine: Object, cluster: Cluster) -> Findings:
    """Yield that a drain goes on after the limit that the owner sets, as the Machine lacks it."""
    missed = given_time_outs.not_got(machine, cluster)
    limit = given_time_outs.owner_seconds(machine, cluster)
    said, began = machine_drain.reported(machine)
    if missed is None or limit is None or not said:
        return
    age = clock.since(machine.metadata["deletionTimestamp"].text, cluster) if began else None
    if age is None or age <= timedelta(seconds=clock.bounded(limit)):
        return
    message = check.first_that_fits(
        machine.metadata["name"].path,
        *(
            f"its node is drained for {clock.duration(age)} without a limit: {why}. Free the node, "
            "or set the limit on this Machine."
            for why in (missed.reason, missed.brief)
        ),
    )
    path = machine.metadata["name"].path
    yield Finding(path, message, value=machine.name, command=missed.remedy)
