"""A MachineConfigPool is degraded: a node of it has stopped with an error,
or its configuration cannot be rendered.

**Why.** The node stays cordoned and takes a place of ``maxUnavailable``, so the pool goes on with
no other node. The daemon tries again and again, and stops with the same error until its cause is
removed.

**Fix.** ``virt-admit upgrade`` has the whole error, and the remedy for it with its command.
"""

from collections.abc import Sequence
from datetime import timedelta

from virt_admit.model import machine_pools, messages
from virt_admit.model.commands import shell
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.kinds import MACHINE_CONFIG_POOL, NODE
from virt_admit.model.messages import cut_middle
from virt_admit.model.node_updates import config_pool_updates, daemon_errors
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union

_PATIENCE = timedelta(minutes=10)
"""A daemon that tries again, as after the API was away for a moment,
has ended its error by then.
"""
_SHORTEST = 200
"""What of the error has to remain beside the remedy."""
_KINDS = ("NodeDegraded", "RenderDegraded", "Degraded")


@rule(
    kinds=(MACHINE_CONFIG_POOL,),
    reads=union(clock.READS, {MACHINE_CONFIG_POOL: (), NODE: config_pool_updates.ERROR_FIELDS}),
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
    if not clock.is_overdue(since, _PATIENCE, context.cluster):
        return
    begin = f"it is degraded{clock.lasting(since, context.cluster)}: "
    path = found["status"].path
    nodes = _nodes(pool, context)
    whole = daemon_errors.of_pool(pool, nodes)
    # upgrade has the command
    remedy = messages.advice_of(whole.partition(": oc ")[0].partition("; ")[0])
    shortest = min(_SHORTEST, len(said))
    room = check.room(path) - len(begin) - shortest
    if len(remedy) > room and (brief := daemon_errors.brief_of_pool(nodes)):
        whole = remedy = f"{brief}."
        said = daemon_errors.brief(said)
    fits = whole and len(remedy) <= room
    end = f". {remedy}" if fits else ". virt-admit upgrade has the remedy."
    words = cut_middle(said.rstrip("."), check.room(path) - len(begin) - len(end))
    yield Finding(
        path,
        f"{begin}{words}{end}",
        value=pool.name,
        problem=problem_of(ProblemCause.POOL_DEGRADED, pool),
        command=(fits and messages.command_of(whole)) or shell("virt-admit", "upgrade"),
    )


def _nodes(pool: Object, context: Context) -> Sequence[Object]:
    """Return the known nodes of a pool."""
    cluster = context.cluster
    known = machine_pools.members(cluster.known(MACHINE_CONFIG_POOL), cluster.known(NODE))
    return next((nodes for each, nodes in known if each.name == pool.name), ())
