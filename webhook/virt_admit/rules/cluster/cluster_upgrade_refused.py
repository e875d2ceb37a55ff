"""Harvester refuses to start an upgrade, because a chart of it is not ready or a node has no
Machine.

**Why.** Its webhook wants every ManagedChart Ready, also those that are paused. A chart stays
Modified while a field of one of its objects differs from the chart. Waiting does not change that.
Rancher updates the nodes of Machines alone: releases before 1.6 start the upgrade and never end it.

**Fix.** Remove what the finding names. ``virt-admit upgrade`` says the same with its command.
"""

from virt_admit.model.commands import shell
from virt_admit.model.kubernetes.kinds import MANAGED_CHART, NODE
from virt_admit.model.messages import advice_of, command_of
from virt_admit.model.node_updates.rancher import machineless_nodes, managed_charts
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union


@rule(
    kinds=(MANAGED_CHART, NODE),
    reads=union(managed_charts.READS, machineless_nodes.READS),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "harvester/harvester:pkg/webhook/resources/upgrade/validator.go#checkManagedCharts",
        "https://github.com/harvester/harvester/issues/4537",
        "https://github.com/harvester/harvester/issues/8236",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    of_nodes = obj.kind == NODE.kind
    reader = machineless_nodes if of_nodes else managed_charts
    for found in reader.refusals(context.cluster):
        own = found.order
        if found.certain and (own.namespace, own.name) == (obj.namespace, obj.name):
            path = (obj.metadata["name"] if of_nodes else obj.condition("Ready")["status"]).path
            texts = (f"{why}. {advice_of(found.remedy)}" for why in (found.reason, found.brief))
            message = check.first_that_fits(path, *texts, f"{found.brief}.")
            yield Finding(
                path,
                message,
                value=obj.name,
                problem=problem_of(ProblemCause.ORDER_STANDS, obj),
                command=command_of(found.remedy) or shell("virt-admit", "upgrade"),
            )
