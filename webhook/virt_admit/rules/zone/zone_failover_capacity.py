"""The loss of this zone leaves VMs without room in the others.

**Why.** After the loss of a zone its VMs start in the others. Those without room stay Pending until
an administrator makes room. The rule runs only where ``tolerate`` names a number of zones, because
most clusters do not keep the room of a zone free. It names the first node of the zone with the
largest shortage.

**Fix.** Add nodes in the other zones, make VMs smaller, or stop VMs that are not needed.
"""

from dataclasses import dataclass

from virt_admit.forecasts.outage import failover, failover_nodes
from virt_admit.forecasts.outage.tolerance import ONE_NODE, Tolerance
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.scheduler.resources import show
from virt_admit.rule import Action, Context, Finding, Findings, Object, choice, param, rule


@dataclass(frozen=True)
class Params:
    tolerate: Tolerance = param(  # noqa: RUF009 - both are frozen
        ONE_NODE, "what the cluster must survive; this rule is about zones, 0 is off"
    )
    count: str = choice(
        "vms",
        ("vms", "everything"),
        "what needs room after a loss: VMs, or pods of controllers too",
    )


@rule(
    kinds=(NODE,),
    reads=failover.READS,
    action=Action.WARN,
    event="NoFailover",
    at_admission=False,
    params=Params(),
    sources=(
        (
            "kubernetes/kubernetes:staging/src/k8s.io/api/core/v1/"
            "well_known_labels.go#LabelTopologyZone"
        ),
    ),
)
def check(node: Object, context: Context[Params]) -> Findings:
    params, cluster = context.params, context.cluster
    if params.tolerate.zones < 1:
        return
    tolerance = Tolerance(nodes=0, zones=params.tolerate.zones)
    everything = params.count == "everything"
    found = failover_nodes.worst_now(tolerance, cluster, everything=everything)
    if found is None or min(found.loss.nodes) != node.name:
        return
    path = node.metadata["labels"].path
    if found.size:
        size = show(found.resource, found.size)
        short = (
            f"{found.vms} of its VMs need {size} of memory each or more, and the others have "
            f"{found.places} such places"
        )
    else:
        needed, free = show(found.resource, found.needed), show(found.resource, found.free)
        short = f"its VMs need {needed} of {found.resource}, and the others have {free} free"
    problem = f"the loss of {found.loss} leaves VMs without room: {short}"
    yield Finding(
        path,
        check.first_that_fits(
            path,
            f"{problem}. Add nodes in other zones or stop VMs; see virt-admit outage --zone "
            f"{found.loss.zone}.",
            f"{problem}. Add nodes in other zones or stop VMs.",
        ),
        value=found.loss.zone,
    )
