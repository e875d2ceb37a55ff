"""Harvester starts or ends no upgrade: a chart of it is not ready, a node has no Machine, a Machine
has no node, a volume in use has one replica, or a schedule of backups runs.

**Why.** Its webhook wants every ManagedChart Ready, also those that are paused. A chart stays
Modified while a field of one of its objects differs from the chart. Waiting does not change that.
Rancher updates the nodes of Machines alone: releases before 1.6 start the upgrade and never end it.
It waits for the plan of each Machine, also for that of a host which was removed while only its Node
was deleted: no other node is promoted or updated meanwhile.
The last two are a note, and only where Harvester offers a newer release: they harm nothing else.

**Fix.** Remove what the finding names. ``virt-admit upgrade`` says the same with its command.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from virt_admit.forecasts.upgrade.pools import refusing_parts, upgrade_refusals
from virt_admit.model.commands import shell
from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.cluster import Cluster, cached, entry
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    HARVESTER_SCHEDULE,
    LONGHORN_VOLUME,
    MANAGED_CHART,
    NODE,
)
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import advice_of, command_of, cut
from virt_admit.model.node_updates.rancher import (
    machineless_nodes,
    managed_charts,
    nodeless_machines,
)
from virt_admit.model.node_updates.update_orders import StandingOrder
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.model.remediation import machine_drain
from virt_admit.rule import Action, Context, Field, Finding, Findings, Object, Urgency, rule, union


def _by_object(
    refusals: Callable[[Cluster], Iterable[StandingOrder]],
) -> Callable[[Cluster], Mapping[tuple[str, str], Sequence[StandingOrder]]]:
    """Let refusals be looked up by the namespace and name of their object."""
    return cached(
        lambda cluster: grouped(
            refusals(cluster), lambda each: (each.order.namespace, each.order.name)
        )
    )


_READERS = {
    CAPI_MACHINE.kind: _by_object(nodeless_machines.refusals),
    MANAGED_CHART.kind: _by_object(managed_charts.refusals),
    NODE.kind: _by_object(machineless_nodes.refusals),
}


@rule(
    kinds=(CAPI_MACHINE, MANAGED_CHART, NODE, LONGHORN_VOLUME, HARVESTER_SCHEDULE),
    reads=union(
        managed_charts.READS,
        machineless_nodes.READS,
        nodeless_machines.READS,
        upgrade_refusals.READS,
    ),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "harvester/harvester:pkg/webhook/resources/upgrade/validator.go#checkManagedCharts",
        "https://github.com/harvester/harvester/issues/4537",
        "https://github.com/harvester/harvester/issues/8236",
        "https://github.com/harvester/harvester/issues/5158",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    if kinds.of(obj) in (LONGHORN_VOLUME, HARVESTER_SCHEDULE):
        yield from _of_offered(obj, context)
        return
    refusals = entry(context.cluster, _READERS[obj.kind], (obj.namespace, obj.name))
    for found in refusals or ():
        if found.certain:
            path = _place(obj).path
            texts = (f"{why}. {advice_of(found.remedy)}" for why in (found.reason, found.brief))
            message = check.first_that_fits(path, *texts, f"{found.brief}.")
            yield Finding(
                path,
                message,
                value=obj.name,
                problem=problem_of(ProblemCause.ORDER_STANDS, obj),
                command=command_of(found.remedy) or shell("virt-admit", "upgrade"),
            )


def _of_offered(obj: Object, context: Context) -> Findings:
    """Yield that an object keeps Harvester from the release that it offers."""
    for found in upgrade_refusals.lasting(context.cluster):
        own = found.obj
        if (own.kind, own.namespace, own.name) == (obj.kind, obj.namespace, obj.name):
            to = cut(refusing_parts.offered(context.cluster), 30)
            why = f"until {found.until}" if found.until else f"while {found.why}"
            begin = f"Harvester offers {to}, and refuses to start that upgrade {why}."
            path = obj.metadata["name"].path
            texts = (f"{begin} {advice_of(found.remedy)}", begin)
            yield Finding(
                path,
                check.first_that_fits(path, *texts),
                value=obj.name,
                max_action=Action.AUDIT,
                command=command_of(found.remedy),
            )


def _place(obj: Object) -> Field:
    """Return the field that says it."""
    if obj.kind == NODE.kind:
        return obj.metadata["name"]
    if obj.kind == CAPI_MACHINE.kind:
        return machine_drain.condition(obj, nodeless_machines.HEALTHY)["status"]
    return obj.condition("Ready")["status"]
