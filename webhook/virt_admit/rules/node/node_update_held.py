"""An order to update nodes stands still: a Plan, an upgrade of Harvester, or one of Talos.

**Why.** What acts on the order waits for something that does not come, such as a controller that
was scaled down, a health check that never passes, or a toleration. No node is drained, and nothing
reports an error.

**Fix.** End what the finding names. ``virt-admit upgrade`` has the whole reason, and the remedy
with its command.
"""

from virt_admit.forecasts.upgrade import pool_obstacles
from virt_admit.forecasts.upgrade.operators import standing_images, standing_logs, standing_nodes
from virt_admit.model.commands import shell
from virt_admit.model.messages import advice_of, command_of, cut, ended, first_within
from virt_admit.model.node_updates import rancher_updates, talos_upgrades, upgrade_plans
from virt_admit.model.node_updates.rancher import machineless_nodes, managed_charts
from virt_admit.rule import (
    HARVESTER_UPGRADE,
    KUBERNETES_UPGRADE,
    PLAN,
    TALOS_UPGRADE,
    UPGRADE_PLAN,
    Action,
    Context,
    Finding,
    Findings,
    Object,
    ProblemCause,
    Urgency,
    problem_of,
    rule,
    union,
)


@rule(
    kinds=(PLAN, HARVESTER_UPGRADE, UPGRADE_PLAN, TALOS_UPGRADE, KUBERNETES_UPGRADE),
    reads=union(
        upgrade_plans.READS,
        talos_upgrades.READS,
        rancher_updates.READS,
        machineless_nodes.READS,
        managed_charts.READS,
        standing_images.READS,
        standing_logs.READS,
        standing_nodes.READS,
        {HARVESTER_UPGRADE: ()},
    ),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    effect=True,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "rancher/system-upgrade-controller:pkg/upgrade/plan/plan.go#SelectConcurrentNodes",
        "https://github.com/harvester/harvester/issues/4119",
        "home-operations/tuppr:internal/healthcheck/checker.go#CheckHealth",
    ),
)
def check(order: Object, context: Context) -> Findings:
    for found in pool_obstacles.standing_orders(context.cluster):
        own = found.order
        if (own.kind, own.namespace, own.name) == (order.kind, order.namespace, order.name):
            path = order.metadata["name"].path
            begin = "" if found.certain else "it cannot be determined whether "
            most = check.room(path) - len(begin) - 1
            short = found.brief or cut(found.reason, most)
            advice = (
                f". {advice_of(found.remedy)}" if found.certain and command_of(found.remedy) else ""
            )
            words = first_within(
                most, f"{found.reason}{advice}", f"{short}{advice}", found.reason, short
            )
            message = ended(f"{begin}{words}")
            told = (
                command_of(found.remedy)
                if advice and words.endswith(advice)
                else shell("virt-admit", "upgrade")
            )
            problem = problem_of(ProblemCause.ORDER_STANDS, order) if found.certain else None
            yield Finding(path, message, value=order.name, problem=problem, command=told)
