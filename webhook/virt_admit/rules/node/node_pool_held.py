"""A MachineConfigPool does not go on with its update, as nodes that are cordoned or not Ready use
up its maxUnavailable.

**Why.** The machine-config operator counts each such node as unavailable, also one cordoned by
hand, and starts no other one while ``maxUnavailable`` is reached. The pool then says Updating for
days, and no node is drained.

**Fix.** Uncordon or repair the node. With a greater ``maxUnavailable`` the others go on first.
"""

from virt_admit.forecasts.upgrade.pools import away_nodes
from virt_admit.model.kubernetes.cluster import Unseen, more_may_exist
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE, MACHINE_CONFIG_POOL, NODE
from virt_admit.model.messages import advice_of, command_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, cut, rule


@rule(
    kinds=(MACHINE_CONFIG_POOL,),
    reads=away_nodes.READS,
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        (
            "openshift/machine-config-operator:pkg/controller/node/"
            "node_controller.go#getAllCandidateMachines"
        ),
        "https://github.com/openshift/machine-config-operator/pull/2758",
    ),
)
def check(pool: Object, context: Context) -> Findings:
    held = away_nodes.held(context.cluster).get(pool.name)
    if held is None:
        yield from more_may_exist(context.cluster, NODE)
        return
    if isinstance(held, Unseen):
        yield held
        return
    unread = [
        each for kind in (CAPI_MACHINE, MACHINE) for each in more_may_exist(context.cluster, kind)
    ]
    if unread:  # a node whose Machine is being deleted goes by itself
        yield from unread
        return
    path = pool.at("status", "unavailableMachineCount").path
    remedy, command = advice_of(held.remedy), command_of(held.remedy)
    most = check.room(path) - len(remedy) - 3
    reason = cut(held.reason.replace(f"MachineConfigPool {pool.name}", "it", 1), max(most, 87))
    yield Finding(
        path, f"{reason}. {remedy}", value=pool.name, problem=held.problem, command=command
    )
