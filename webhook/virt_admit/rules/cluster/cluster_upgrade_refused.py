"""Harvester refuses to start an upgrade, because a chart of it is not ready.

**Why.** Its webhook wants every ManagedChart Ready, also those that are paused. A chart stays
Modified while a field of one of its objects differs from the chart. Waiting does not change that.

**Fix.** Remove what the finding names. ``virt-admit upgrade`` says the same with its command.
"""

from virt_admit.model.commands import shell
from virt_admit.model.kubernetes.kinds import MANAGED_CHART
from virt_admit.model.messages import advice_of, command_of
from virt_admit.model.node_updates.rancher import managed_charts
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule


@rule(
    kinds=(MANAGED_CHART,),
    reads=managed_charts.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "harvester/harvester:pkg/webhook/resources/upgrade/validator.go#checkManagedCharts",
        "https://github.com/harvester/harvester/issues/4537",
    ),
)
def check(chart: Object, context: Context) -> Findings:
    for found in managed_charts.refusals(context.cluster):
        own = found.order
        if found.certain and (own.namespace, own.name) == (chart.namespace, chart.name):
            path = chart.condition("Ready")["status"].path
            texts = (f"{why}. {advice_of(found.remedy)}" for why in (found.reason, found.brief))
            message = check.first_that_fits(path, *texts, f"{found.brief}.")
            yield Finding(
                path,
                message,
                value=chart.name,
                problem=problem_of(ProblemCause.ORDER_STANDS, chart),
                command=command_of(found.remedy) or shell("virt-admit", "upgrade"),
            )
