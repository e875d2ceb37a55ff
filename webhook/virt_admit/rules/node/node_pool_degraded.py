"""A MachineConfigPool is degraded: a node of it has stopped with an error,
or its configuration cannot be rendered.

**Why.** The node stays cordoned and takes a place of ``maxUnavailable``, so the pool goes on with
no other node. The daemon tries again and again, and stops with the same error until its cause is
removed.

**Fix.** ``virt-admit upgrade`` has the whole error, and the remedy for it with its command.
"""

from datetime import timedelta

from virt_admit.model.commands import shell
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import more_may_exist
from virt_admit.model.kubernetes.kinds import MACHINE_CONFIG_POOL, NODE
from virt_admit.model.messages import cut_middle
from virt_admit.model.node_updates import config_pool_updates
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union

_PATIENCE = timedelta(minutes=10)
"""A daemon that tries again, as after the API was away for a moment,
has ended its error by then.
"""
_KINDS = ("NodeDegraded", "RenderDegraded", "Degraded")


@rule(
    kinds=(MACHINE_CONFIG_POOL,),
    reads=union(clock.READS, {MACHINE_CONFIG_POOL: ()}),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    event="UpdateHeld",
    at_admission=False,
    sources=(
        "openshift/machine-config-operator:pkg/controller/node/status.go#calculateStatus",
        "https://github.com/openshift/machine-config-operator/issues/5133",
    ),
)
def check(pool: Object, context: Context) -> Findings:
    said = config_pool_updates.degraded(pool)
    found = next(
        (each for kind in _KINDS if (each := pool.condition(kind))["status"].text == "True"), None
    )
    if found is None or not said or pool.at("spec", "paused").boolean:
        return
    since = found["lastTransitionTime"].text
    age = clock.since(since, context.cluster)
    if age is None and since:
        yield from more_may_exist(context.cluster, NODE)  # whose heartbeats tell the time
        return
    if age is not None and age < _PATIENCE:
        return
    lasts = f" for {clock.duration(age)}" if age is not None else ""
    begin, end, path = (
        f"it is degraded{lasts}: ",
        ". virt-admit upgrade has the remedy.",
        found["status"].path,
    )
    words = cut_middle(said.rstrip("."), check.room(path) - len(begin) - len(end))
    yield Finding(
        path,
        f"{begin}{words}{end}",
        value=pool.name,
        problem=problem_of(ProblemCause.POOL_DEGRADED, pool),
        command=shell("virt-admit", "upgrade"),
    )
