"""Why nothing new starts where controllers keep every node cordoned, and what ends that first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import names
from virt_admit.model.node_updates import maintenance_updates
from virt_admit.model.node_updates.operators.cordons import Cordon
from virt_admit.model.problems import Problem, ProblemCause


def problem(
    nodes: Sequence[Object], cordons: Mapping[str, Cordon], full: str = "", *, starts: bool = True
) -> Problem:
    """Return that controllers keep all nodes cordoned that could take a VM, with the first that
    does not end by itself.

    Args:
        nodes: the nodes.
        cordons: what cordoned each of them, by name.
        full: which other nodes have no room, as a clause that follows.
        starts: whether a VM is to start. One that runs waits for the end of what was begun.
    """
    by = dict.fromkeys(cordon.closed for cordon in cordons.values())
    said = (
        f"{names(cordons, 200)} ({'all ' if len(cordons) > 1 else ''}{next(iter(by))})"
        if len(by) == 1
        else names((f"{name} ({cordon.closed})" for name, cordon in cordons.items()), 300)
    )
    reason = f"no node that could take it is schedulable now: {said}{full}"
    lasting = {name: cordon for name, cordon in cordons.items() if cordon.ends is False} or cordons
    name, cordon = next(iter(lasting.items()))
    then = cordon.remedy or "wait until that node is uncordoned"
    if cordon.uncordon and starts:
        now = typed(
            f"uncordon {name} to let the VM start now", shell("kubectl", "uncordon", argument(name))
        )
        then = f"{now}. To end what keeps it cordoned, {cordon.remedy}"
    elif nodes and all(map(maintenance_updates.is_requested, nodes)):
        then = typed(*maintenance_updates.way_back(*nodes))
    command = "" if cordon.remedy else shell("virt-admit", "explain", f"node/{name}")
    why = ". ".join(filter(None, (reason, cordon.reason.rstrip("."))))
    return Problem(why, then, ProblemCause.NO_TARGET, command=command)
