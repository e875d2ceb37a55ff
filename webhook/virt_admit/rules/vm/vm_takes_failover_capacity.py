"""A VM takes the room that other VMs need after the loss of a node.

**Why.** After the loss of a node its VMs start on the others, if these have room. Every VM that starts or grows takes from
that room. KubeVirt starts it as long as any node has room for it, so the reserve is gone before anyone notices.

The rule speaks when the room was enough before the change and is certainly short after it. It adds up what all nodes with
KubeVirt have free, whatever node the VM gets: cordons, nodes that are not Ready, and migrations change nothing. It also
speaks about a VM that fits on one node alone. Requests count, not use. Restarts, migrations, label edits, VMs that stay
off and VMs that shrink are never findings.

``virtctl start`` and the button of a console are writes of KubeVirt's own account, so admission never sees them;
``virt-admit watch`` does. Two replicas of the webhook do not know of each other's admissions. Restores, imports and GitOps
create VMs like users: if a policy denies, exempt the accounts of backup and migration tools from this rule.

**Fix.** Make the VM smaller, stop VMs that are not needed, or add a node. The default is ``audit``, because a cluster
without any reserve would get a warning for each VM. Set ``action: deny`` to keep the reserve, and ``tolerate`` for what it
must survive. A cluster that is short already, or one with an autoscaler, leads to audit at most.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from virt_admit.forecasts.outage import failover, failover_demand, failover_remedy, failover_room
from virt_admit.forecasts.outage.failover import Shortage
from virt_admit.forecasts.outage.failover_demand import RoomDemand, Run
from virt_admit.forecasts.outage.failover_room import ONE_NODE, Room, Tolerance
from virt_admit.model.kubernetes.kinds import POOL, VM, VMIRS
from virt_admit.model.scheduler.resources import MEMORY, Resources, show
from virt_admit.rule import (
    Action,
    Context,
    Field,
    Finding,
    Findings,
    Object,
    choice,
    count,
    first_that_fits,
    names,
    param,
    rule,
)


@dataclass(frozen=True)
class Params:
    tolerate: Tolerance = param(  # noqa: RUF009 - both are frozen
        ONE_NODE, "what the cluster must survive: nodes, zones, a reserve of what nodes offer; all 0 is off"
    )
    count: str = choice("vms", ("vms", "everything"), "what needs room after a loss: VMs, or pods of controllers too")
    short: str = choice(
        "audit", ("audit", "silent"), "what to do about a VM that starts while the room is short already"
    )


@rule(
    kinds=(VM, POOL, VMIRS),
    reads=failover.READS,
    action=Action.AUDIT,
    in_scan=False,
    params=Params(),
    sources=(
        "kubernetes/kubernetes:pkg/scheduler/framework/plugins/noderesources/fit.go",
        "kubevirt/kubevirt:pkg/virt-controller/services/renderresources.go",
        "VMware docs, vSphere Availability, Admission control",
    ),
)
def check(obj: Object, context: Context[Params]) -> Findings:
    cluster, params = context.cluster, context.params
    if params.tolerate == Tolerance(0, 0, 0):
        return
    asked = failover_demand.demand(obj, context.old, cluster)
    if asked is None:
        return
    room = failover_room.room(cluster)
    run = failover_demand.run(cluster)
    ahead = run.ahead.get(failover_demand.identity(obj), {})
    everything = params.count == "everything"
    short = failover.shortage(room, asked, ahead, params.tolerate, cluster, everything=everything)
    if short is not None:
        crosses = short.crosses
        if not crosses and (params.short == "silent" or ahead):  # another object of the same run has the finding
            return
        decisive = failover_demand.field_of(obj, short.resource, asked)
        yield Finding(
            decisive.path,
            first_that_fits(decisive.path, check.id, *_messages(obj, short, asked, run, context)),
            value=f"{short.resource} {asked.requests[short.resource]}",
            max_action=_strongest(crosses, short.seen, context),
        )
        return
    if not ahead and params.tolerate.nodes:
        yield from _only_place(obj, asked, room, context)


def _strongest(crosses: bool, seen: bool, context: Context[Params]) -> Action:
    """Return the strongest action: room may grow where nodes are added, and a VM that is only starting may not stay."""
    if not crosses or failover.grows(context.cluster):
        return Action.AUDIT
    return Action.DENY if seen else Action.WARN


def _messages(obj: Object, short: Shortage, asked: RoomDemand, run: Run, context: Context[Params]) -> Iterator[str]:
    amount = show(short.resource, asked.requests[short.resource])
    missing = f"{show(short.resource, short.missing)} of {short.resource} short"
    see = "see virt-admit outage --worst 1"
    effect = _effect(short, context.params.tolerate)
    if not short.crosses:
        yield f"{amount} more: {effect} already, now {missing}. Stop VMs or add a node; {see}."
        yield f"{amount} more: {effect} already. Stop VMs or add a node."
        return
    if len(run.demands) > 1 and run.number:
        yield from _of_the_run(short, run, run.ahead.get(failover_demand.identity(obj), {}), effect)
        return
    value = failover_remedy.largest(obj, context.old, short, asked, context.cluster)
    most = f"Use at most {value}{_unit(obj, short, asked)}, stop VMs" if value is not None else "Stop VMs"
    yield f"{amount} more: once this VM runs, {effect}: {missing}. {most} or add a node; {see}."
    yield f"{amount} more: once this VM runs, {effect}: {missing}. {most} or add a node."
    yield f"{amount} more: {effect}: {missing}. {most} or add a node."


def _effect(short: Shortage, tolerance: Tolerance) -> str:
    if short.loss is None:
        return f"less than the reserve of {tolerance.reserve}% stays free"
    return f"the loss of {names((str(short.loss),), 63)} leaves VMs without room"


def _unit(obj: Object, short: Shortage, asked: RoomDemand) -> str:
    last = str(failover_demand.field_of(obj, short.resource, asked).path[-1])
    return f" {last}" if last in ("replicas", "sockets", "cores") else ""


def _of_the_run(short: Shortage, run: Run, ahead: Resources, effect: str) -> Iterator[str]:
    total = run.total.get(short.resource, 0)
    room = max(0, short.room + ahead.get(short.resource, 0))
    start = run.that_fit(short.resource, room)
    needs = f"the {count(run.number, 'new VM')} of this run need {show(short.resource, total)} of {short.resource}"
    remedy = f"Start at most {start} of them" if start else "Stop VMs or add a node first"
    yield f"{needs}, {show(short.resource, room)} can start before {effect}. {remedy}."
    yield f"{needs}, {show(short.resource, room)} can start. {remedy}."


def _only_place(obj: Object, asked: RoomDemand, room: Room, context: Context[Params]) -> Findings:
    places = failover.only_places(room, asked, context.cluster)
    if places is None:
        return
    decisive: Field = failover_demand.field_of(obj, MEMORY, asked)
    amount, where = show(MEMORY, asked.requests[MEMORY]), names(places.nodes, 63)
    if len(places.nodes) == 1:
        problem = f"{amount}: only {where} has room for this VM, so it does not restart when {where} is lost"
    else:
        problem = f"{amount}: only {where} have room for this VM, and the loss of one of them leaves a VM without room"
    free = f" or free {show(MEMORY, places.missing)} on {places.other}" if places.other else " or add a node"
    yield Finding(
        decisive.path,
        first_that_fits(decisive.path, check.id, f"{problem}. Make it smaller{free}.", f"{problem}. Make it smaller."),
        value=f"{MEMORY} {asked.requests[MEMORY]}",
        max_action=_strongest(crosses=True, seen=False, context=context),
    )
