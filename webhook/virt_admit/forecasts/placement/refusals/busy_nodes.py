"""Nodes that would take a VM but for causes that pass, such as a cordon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from virt_admit.forecasts.placement import pod_networks, virt_handlers
from virt_admit.forecasts.placement.absent import unready_nodes
from virt_admit.forecasts.placement.components import node_drivers
from virt_admit.forecasts.placement.components.drivers import driver_faults
from virt_admit.forecasts.placement.components.node_drivers import LACKS
from virt_admit.forecasts.placement.refusals import unreached_nodes, volume_limits
from virt_admit.forecasts.placement.refusals.unserved_nodes import is_unregistered
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.node_health import PRESSURES
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import find
from virt_admit.model.messages import command_of, names, without_command
from virt_admit.model.node_updates import cordoners, maintenance_updates
from virt_admit.model.node_updates.operators.cordons import Cordon
from virt_admit.model.problems import Problem, ProblemCause

_MOMENT: Final = frozenset(("cordoned", "not Ready", launcher_pod.UNSERVED))
_PRESSURE: Final = {f"taint {each.taint}": each for each in PRESSURES}
"""The pressures by the refusal of a node that has one."""
_NONE_READY: Final = "no node that could take it is schedulable now: "
_REPAIR: Final = "uncordon or repair one of them"


def not_ready_now(
    refusals: Mapping[str, str], cluster: Cluster, *, starts: bool = False
) -> Problem | None:
    """Return that nodes would take a pod, but for causes that pass; None: there are none."""
    busy = {
        name: why
        for name, why in sorted(refusals.items())
        if all(map(_passes, why.split("; ")))
        and not is_unregistered(name, cluster)
        and not ("cordoned" in why and cordoners.is_reserved(name, cluster))
    }
    if not busy:
        return None
    limited, way = volume_limits.full(refusals)
    full = f"{_full(refusals)}{limited}"
    found = _broken(busy, full, cluster) or _pressed(busy, full) or _without_handler(busy, cluster)
    found = found or _closed(busy, full, cluster, starts)
    if not way:
        return found
    return found._replace(remedy=typed(found.remedy, found.command, f"or, {way}"), command="")


def _full(refusals: Mapping[str, str]) -> str:
    """Return which nodes lack nothing but room, as a clause without amounts, so that VMs of all
    sizes have the same words; empty: none.
    """
    lacking: dict[str, list[str]] = {}
    for name, why in sorted(refusals.items()):
        causes = why.split("; ")
        if all(cause.endswith(" missing") for cause in causes):
            what = names((cause.partition(": ")[0] for cause in causes), 60)
            lacking.setdefault(what, []).append(name)
    return "".join(f"; too little {what} on {names(some, 60)}" for what, some in lacking.items())


def _passes(cause: str) -> bool:
    passing = cause in _MOMENT or cause in _PRESSURE
    return passing or cause.startswith((virt_handlers.BROKEN, pod_networks.BROKEN, LACKS))


def _broken(refusals: Mapping[str, str], full: str, cluster: Cluster) -> Problem | None:
    """Return that a node lacks its pod network or a driver; None: none does."""
    for start in (pod_networks.BROKEN, LACKS):
        for node, why in refusals.items():
            if why.startswith(start):
                if start == LACKS:
                    remedy = node_drivers.remedy(why.split()[2], node, cluster)
                else:
                    remedy = pod_networks.remedy(cluster, node)
                reason = f"{_NONE_READY}{names(refusals)} ({why}){full}"
                if driver_faults.ATTACHES_NONE in why:  # whatever becomes of the nodes
                    reason = f"no other node can take it: {why}"
                return Problem(reason, remedy, ProblemCause.NO_TARGET)
    return None


def _pressed(refusals: Mapping[str, str], full: str) -> Problem | None:
    """Return that the only nodes which could take a VM lack disk space, memory or processes; None:
    there are others.
    """
    if not all(why in _PRESSURE for why in refusals.values()):
        return None
    each = names(f"{name} ({_PRESSURE[why].words})" for name, why in refusals.items())
    node, why = next(iter(refusals.items()))
    pressure = _PRESSURE[why]
    more = f" ({pressure.what})" if pressure.what else ""
    remedy = pressure.remedy.replace(" it", f" {node}", 1) + more
    command = shell("kubectl", "describe", "node", argument(node))
    return Problem(f"{_NONE_READY}{each}{full}", remedy, ProblemCause.NO_TARGET, command=command)


def _without_handler(refusals: Mapping[str, str], cluster: Cluster) -> Problem | None:
    """Return that virt-handler serves none of the nodes; None: it serves some,
    or something else is to be repaired there first.
    """
    unserved = _unserved(refusals)
    if len(unserved) < len(refusals) or any(
        "cordoned" in each or "not Ready" in each for each in refusals.values()
    ):
        return None
    if (gone := unreached_nodes.first(unserved, cluster)) is not None:
        reason = f"no virt-handler runs on {names(unserved)}: {gone.why}"
        return Problem(reason, gone.remedy, ProblemCause.NO_TARGET)
    faults = {name: virt_handlers.problem(cluster, name) for name in unserved}
    first, why = next(((name, each) for name, each in faults.items() if each), ("", ""))
    because = f" ({why})" if why else ""
    reason = f"virt-handler serves none of the nodes that could take it: {names(unserved)}{because}"
    if why:
        return Problem(reason, virt_handlers.remedy(cluster, first), ProblemCause.NO_TARGET)
    remedy = "repair virt-handler on one of them"
    command = "kubectl get pods -A -l kubevirt.io=virt-handler -o wide"
    return Problem(reason, remedy, ProblemCause.NO_TARGET, command=command)


def _unserved(refusals: Mapping[str, str]) -> list[str]:
    causes = (launcher_pod.UNSERVED, virt_handlers.BROKEN)
    return [name for name, why in refusals.items() if any(cause in why for cause in causes)]


def _closed(refusals: Mapping[str, str], full: str, cluster: Cluster, starts: bool) -> Problem:
    """Return that nodes are cordoned or not Ready, and which one is to be uncordoned."""
    known = [find(cluster, NODE, "", name) for name, why in refusals.items() if why == "cordoned"]
    cordoned = sorted(filter(None, known), key=maintenance_updates.is_in_maintenance)
    found = {node.name: cordoners.of_node(node, cluster) for node in cordoned}
    cordons = {name: cordon for name, cordon in found.items() if cordon is not None}
    if cordons and len(cordons) == len(refusals):
        return _cordoned(cordoned, cordons, full, starts=starts)
    found_unready = {name: unready_nodes.named(name, cluster) for name in refusals}
    unready = {name: each for name, each in found_unready.items() if each is not None}
    closed = {name: each.is_not_ready.removeprefix("is ") for name, each in unready.items()}
    closed |= dict.fromkeys(found, "cordoned")
    closed |= {name: cordon.closed for name, cordon in cordons.items()}
    by_state: dict[str, list[str]] = {}
    for name, why in refusals.items():
        state = "" if why == launcher_pod.UNSERVED else why
        by_state.setdefault(closed.get(name, state), []).append(name)
    said = (
        f"{names(some)} ({'all ' * (len(some) > 1)}{why})" if why else names(some)
        for why, some in by_state.items()
    )
    unserved = names(_unserved(refusals))
    more = f"; virt-handler does not serve {unserved}" if unserved else ""
    reason = f"{_NONE_READY}{names(said, 300)}{more}{full}"
    free = {name: not cordoners.is_emptied(name, cluster) for name in found if name not in cordons}
    if not free and (absent := next(iter(unready.values()), None)) is not None:
        words, command = without_command(absent.remedy), command_of(absent.remedy)
        return Problem(reason, words, ProblemCause.NO_TARGET, command=command)
    if not free:
        command = shell("kubectl", "describe", "node", argument(next(iter(refusals))))
        return Problem(reason, _REPAIR, ProblemCause.NO_TARGET, command=command)
    first = next(iter(sorted(free, key=lambda name: not free[name])))
    later = len(free) == len(refusals) and not free[first]
    words = f"uncordon {first}, if its maintenance is over" if len(refusals) == 1 else _REPAIR
    if later:
        words = f"uncordon {first} once its drain and its maintenance are over"
    command = shell("kubectl", "uncordon", argument(first))
    return Problem(reason, words, ProblemCause.NO_TARGET, command=command)


def _cordoned(
    nodes: Sequence[Object], cordons: Mapping[str, Cordon], full: str, *, starts: bool
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
    reason = f"{_NONE_READY}{said}{full}"
    lasting = {name: cordon for name, cordon in cordons.items() if cordon.ends is False} or cordons
    name, cordon = next(iter(lasting.items()))
    then = cordon.remedy or "wait until that node is uncordoned"
    if cordon.uncordon and starts:
        now = typed(
            f"uncordon {name} to let the VM start now", shell("kubectl", "uncordon", argument(name))
        )
        then = f"{now}; to end what keeps it cordoned, {cordon.remedy}"
    elif nodes and all(map(maintenance_updates.is_requested, nodes)):
        then = typed(*maintenance_updates.way_back(*nodes))
    command = "" if cordon.remedy else shell("virt-admit", "explain", f"node/{name}")
    why = ". ".join(filter(None, (reason, cordon.reason.rstrip("."))))
    return Problem(why, then, ProblemCause.NO_TARGET, command=command)
