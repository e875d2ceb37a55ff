"""A Machine has no node, long after it was created.

**Why.** Its node never comes: no host or instance is free, or the host does not start, or its
kubelet does not join. The room for VMs that it was made for is missing. A MachineSet that is scaled
down later may delete a Machine that works instead.

Cluster API itself may wait: its controllers need a node too, and one that does not tolerate the
taints of control-plane nodes finds none when the last other node is replaced.

An hour is enough, or twice the time of the slowest Machine whose node came. A Machine that is being
deleted does not count.

On Harvester a Machine of a host that never joined stays, and no upgrade starts with it.

**Fix.** Provide what it waits for. Delete one of Harvester that no host has. Or mark it for
deletion, and lower the replicas of its MachineSet: it is deleted first then.
"""

from collections.abc import Mapping

from virt_admit.forecasts.placement.components import stalled_machines
from virt_admit.forecasts.remediation import control_plane_deadlocks
from virt_admit.model import machine_pools
from virt_admit.model.commands import about
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, CAPI_MACHINE_SET, MACHINE, MACHINE_SET
from virt_admit.model.messages import advice_of, command_of, sentence
from virt_admit.model.node_updates.rancher import nodeless_machines
from virt_admit.model.remediation import bare_metal, machine_starts, machines
from virt_admit.model.remediation.machine_starts import OverdueMachine
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union

_CAPI_FIRST = "cluster.x-k8s.io/delete-machine"
_REPLICAS = ("spec.replicas", "status.readyReplicas")


@rule(
    kinds=(MACHINE, CAPI_MACHINE),
    reads=union(
        bare_metal.RECORD_READS,
        machine_starts.READS,
        nodeless_machines.READS,
        control_plane_deadlocks.READS,
        stalled_machines.READS,
        {MACHINE: (), CAPI_MACHINE: (), MACHINE_SET: _REPLICAS, CAPI_MACHINE_SET: _REPLICAS},
    ),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="MachineWithoutNode",
    at_admission=False,
    sources=(
        (
            "openshift/cluster-api-provider-baremetal:pkg/cloud/baremetal/actuators/machine/"
            "actuator.go#Create"
        ),
        "openshift/machine-api-operator:pkg/controller/machineset/delete_policy.go",
        "kubernetes-sigs/cluster-api:core/reconcilers/machine/machine_controller_status.go",
        "kubernetes-sigs/cluster-api:core/reconcilers/machineset/machineset_deletion_order.go",
    ),
)
def check(machine: Object, context: Context) -> Findings:
    path = machine.metadata["name"].path
    stuck = control_plane_deadlocks.deadlocks(context.cluster).get(machine.full_name)
    if kinds.of(machine) is CAPI_MACHINE and stuck is not None:
        message = f"{stuck.reason}. {advice_of(stuck.remedy)}"
        yield Finding(path, message, value=machine.name, command=command_of(stuck.remedy))
        return
    is_capi = kinds.of(machine) is CAPI_MACHINE
    stalled = (
        stalled_machines.of_cluster(context.cluster).get(machine.full_name) if is_capi else None
    )
    if stalled is not None:
        message = check.first_that_fits(
            path, f"{sentence(stalled.why)} {advice_of(stalled.remedy)}", stalled.why
        )
        yield Finding(path, message, value=machine.name, command=command_of(stalled.remedy))
        return
    left = nodeless_machines.left_over(machine, context.cluster) if is_capi else None
    late = context.cluster.cached(_late_of_capi if is_capi else _late_of_openshift).get(
        machine.full_name
    )
    if left is not None and late is not None and late.certain:
        brief = f"{sentence(left.why)} {advice_of(left.remedy)}"
        message = check.first_that_fits(path, f"{sentence(late.why)} {brief}", brief)
        yield Finding(path, message, value=machine.name, command=command_of(left.remedy))
        return
    if late is not None and late.certain:
        owner = _set_of(machine, context)
        has = _count(owner)
        if late.shortage is not None and late.shortage.record is not None:
            remedy = bare_metal.record_remedy(late.shortage.record, context.cluster)
            told = (
                f"{sentence(late.why)} {advice_of(each)}"
                for each in (remedy, remedy.partition("; ")[0])
            )
            message = check.first_that_fits(path, *told, late.why)
            yield Finding(path, message, value=machine.name, command=command_of(remedy))
            return
        provide = "Register another host" if late.shortage else "Provide what it waits for"
        key = _CAPI_FIRST if is_capi else machines.DELETE_ANNOTATIONS[0]
        why, instead = sentence(late.why), ""
        if owner:
            lower = f"lower the replicas of {_scaled(machine, owner)}"
            instead = f", or mark it with {key} and {lower}"
        ways = (f"{why}{has} {provide}{instead}.", f"{why} {provide}.")
        command = about("describe", machine, CAPI_MACHINE if is_capi else MACHINE)
        yield Finding(path, check.first_that_fits(path, *ways), value=machine.name, command=command)


def _late_of_capi(cluster: Cluster) -> Mapping[str, OverdueMachine]:
    return {late.machine.full_name: late for late in machine_starts.overdue(cluster)}


def _late_of_openshift(cluster: Cluster) -> Mapping[str, OverdueMachine]:
    return {late.machine.full_name: late for late in machine_starts.overdue_of_openshift(cluster)}


def _set_of(machine: Object, context: Context) -> Object | None:
    """Return the MachineSet of a Machine, as far as it is known."""
    kind = CAPI_MACHINE_SET if kinds.of(machine) is CAPI_MACHINE else MACHINE_SET
    name = machine.owned_by(kind.kind)
    known = context.cluster.known(kind, machine.namespace) if name else ()
    return next((each for each in known if each.name == name), None)


def _scaled(machine: Object, owner: Object) -> str:
    """Return what an administrator scales: a MachineDeployment sets the replicas of its
    MachineSets.
    """
    deployment = machine_pools.owner_key(machine)[1]
    return f"MachineDeployment {deployment}" if deployment else f"MachineSet {owner.name}"


def _count(owner: Object | None) -> str:
    if owner is None:
        return ""
    wanted = owner.at("spec", "replicas").integer
    ready = owner.at("status", "readyReplicas").integer
    if wanted is None or ready is None:
        return ""
    return f" MachineSet {owner.name} has {ready} of {wanted}."
