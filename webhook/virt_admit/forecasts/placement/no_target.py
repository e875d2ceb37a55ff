"""Why a VM has no place to go to, and what helps."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from virt_admit.forecasts.placement import candidates, headroom, pod_networks, virt_handlers
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.common_model import common_model, host_only, other_model
from virt_admit.forecasts.placement.components import (
    left_taints,
    missing_networks,
    node_drivers,
    node_initializers,
)
from virt_admit.forecasts.placement.components.node_drivers import LACKS
from virt_admit.forecasts.placement.start_candidates import vanished
from virt_admit.model import node_bridges
from virt_admit.model.commands import argument, kubectl, shell
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, PVC
from virt_admit.model.kubernetes.node_health import PRESSURES
from virt_admit.model.kubernetes.nodes import CONTROL_PLANE, SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import networks, vmis
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import find
from virt_admit.model.messages import advice_of, command_of, names
from virt_admit.model.node_updates import cordoned_everywhere, cordoners, maintenance_updates
from virt_admit.model.node_updates.operators import node_removals
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.remediation import fence_taints
from virt_admit.model.scheduler import controller_taints
from virt_admit.model.scheduler.inter_pod_affinity import follows

NOWHERE: Final = "no other node can take it: "
"""How the reason begins that names what keeps the pod off each node."""
_KEPT: Final = ", and do not stop the VM before"
_PAGES: Final = "hugepages-"
_MOMENT: Final = frozenset(("cordoned", "not Ready", launcher_pod.UNSERVED))
_PRESSURE: Final = {f"taint {each.taint}": each for each in PRESSURES}
"""The pressures by the refusal of a node that has one."""


def nowhere_to_go(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return why a running VMI can migrate to no other node now; None: it can,
    or that is unknown.
    """
    return reason(candidates.target(vmi, cluster, moves=True), cluster, moves=True)


def reason(
    target: SchedulingTarget, cluster: Cluster, *, moves: bool, starts: bool = False
) -> Problem | None:
    """Return why no node certainly or possibly takes this pod; None: one does, or that is unknown.

    ``starts``: the VM does not run, so that its downtime does not help.
    """
    refusals = kubevirt_refusals(target, cluster)
    if refusals is None:
        return None
    if network := networks.of_fault(target.pod.fault):
        return missing_networks.problem(network, "target pod" if moves else "pod")
    otherwise = (
        "" if starts else "let drains shut the guest down" if moves else "plan for its downtime"
    )
    kept = "" if starts else _KEPT
    starting = _starting(target.placement.refusals, refusals, cluster, kept)
    if not refusals:
        if starting:
            return starting
        every = candidates.scheduler(cluster).state.nodes.values()
        if not any(SCHEDULABLE in node.labels for node in every):
            return None
        remedy = otherwise if otherwise and len(every) == 1 else _or("add one", otherwise)
        return Problem("no other node runs KubeVirt", remedy, ProblemCause.NO_TARGET)
    if busy := not_ready_now(refusals, cluster):
        return busy
    if unserved := _unserved(target, refusals, cluster):
        return unserved
    if (locked := _fenced(refusals, cluster) or _forgotten(refusals, cluster)) is not None:
        return locked
    lacked = absent(refusals, cluster)
    causes = tuple(dict.fromkeys(_causes(refusals, lacked)))
    lasting = other_model(_common(refusals), cluster, starts=starts) or _lasting(refusals)
    lasting = lasting or _offered(lacked, refusals, cluster)
    lasting = lasting or virt_handlers.own_tolerations(refusals, cluster)
    if left := left_taints.of_refusals(refusals, cluster):
        reason = f"{NOWHERE}{_told(refusals, lacked)}: {left.reason}"
        return Problem(reason, left.advice, ProblemCause.NO_TARGET, command=left.command)
    if unfit := _unfit(refusals, kept):
        command = shell("kubectl", "describe", "node", argument(min(refusals)))
        told = f"{NOWHERE}{_told(refusals, lacked)}"
        return Problem(told, unfit, ProblemCause.NO_TARGET, command=command)
    if starting:
        return starting
    remedy = _or(lasting, otherwise) if lasting else _remedy(causes, otherwise, cluster)
    claim, namespace = _broken_claim(causes), target.pod.namespace
    command = kubectl("describe", PVC, claim, namespace) if claim else ""
    if lasting.startswith(_STATIC):
        command = shell("kubectl", "get", "nodes", "-L", launcher_pod.CPU_MANAGER)
    why = f"{vanished(causes, cluster) or _told(refusals, lacked)}{host_only(causes, cluster)}"
    return Problem(
        f"{NOWHERE}{why}",
        remedy,
        ProblemCause.NO_TARGET if lacked else _cause(causes),
        command=command,
    )


def _or(remedy: str, otherwise: str) -> str:
    return f"{remedy}, or {otherwise}" if otherwise else remedy


def kubevirt_refusals(target: SchedulingTarget, cluster: Cluster) -> dict[str, str] | None:
    """Return why each node with KubeVirt refuses a pod; None: one takes it, or that is unknown."""
    placement, nodes = target.placement, candidates.scheduler(cluster).state.nodes
    if placement.has_candidate or not placement.is_certain:
        return None
    there = {name for name, node in nodes.items() if SCHEDULABLE in node.labels}
    return {name: why for name, why in placement.refusals.items() if name in there}


def not_ready_now(refusals: Mapping[str, str], cluster: Cluster) -> Problem | None:
    """Return that nodes would take a pod, but for causes that pass; None: there are none."""
    busy = {
        name: why for name, why in sorted(refusals.items()) if all(map(_passes, why.split("; ")))
    }
    return _not_ready_now(busy, cluster) if busy else None


def _fenced(refusals: Mapping[str, str], cluster: Cluster) -> Problem | None:
    """Return that a node which is back would take the pod, but for the taint of its fencing; None:
    there is none.
    """
    fences = fence_taints.known(cluster)
    for name, why in sorted(refusals.items()):
        left = fences.get(name)
        if left is None or not left.is_all(why):
            continue
        waits = fence_taints.waits_for(name, cluster)
        because = f", whose remediator waits for {waits}" if waits else ""
        known = f"{name} {left.reason}{because}"
        others = {other: each for other, each in refusals.items() if other != name}
        causes = "; ".join((known, *dict.fromkeys(_causes(others))))
        remedy, command = fence_taints.way_out(name, left, cluster)
        return Problem(f"{NOWHERE}{causes}", remedy, ProblemCause.NO_TARGET, command=command)
    return None


def _forgotten(refusals: Mapping[str, str], cluster: Cluster) -> Problem | None:
    """Return that a node would take the pod, but for what an autoscaler has left on it; None:
    there is none.
    """
    for name, why in sorted(refusals.items()):
        if not any(cause.startswith(_MARK) for cause in why.split("; ")):
            continue
        if any(cause != "cordoned" and not cause.startswith(_MARK) for cause in why.split("; ")):
            continue
        node = find(cluster, NODE, "", name)
        left = cordoners.of_node(node, cluster) if node is not None else None
        if left is None or not left.remedy or left.quiet:
            continue
        others = {other: each for other, each in refusals.items() if other != name}
        could = f"{name} could, but is {left.closed}"
        causes = f"{could}; {_told(others)}" if others else could
        return Problem(f"{NOWHERE}{causes}", left.remedy, ProblemCause.NO_TARGET)
    return None


_MARK: Final = f"taint {node_removals.AUTOSCALER}"


def _unserved(
    target: SchedulingTarget, refusals: Mapping[str, str], cluster: Cluster
) -> Problem | None:
    """Return that a node would take the pod if virt-handler worked there, which has never labelled
    it; None: none would.
    """
    for name, why in sorted(target.placement.refusals.items()):
        fault = (
            virt_handlers.problem(cluster, name)
            if name not in refusals and _lacks_handler(why)
            else ""
        )
        if not fault:
            continue
        others = tuple(dict.fromkeys(_causes(refusals)))
        if virt_handlers.is_starting(cluster, name):
            reason = (
                f"{NOWHERE}"
                f"{'; '.join((f'virt-handler starts on {name}, which can take it then', *others))}"
            )
            return Problem(
                reason, f"wait until virt-handler runs on {name}", ProblemCause.NO_NODE_READY
            )
        contest = headroom.contest(target.pod, name, _lacks_handler, cluster)
        reason = (
            f"{NOWHERE}{'; '.join((f'{name} takes no VM, as {fault}{contest.reason}', *others))}"
        )
        return Problem(
            reason, contest.completed(virt_handlers.remedy(cluster, name)), ProblemCause.NO_TARGET
        )
    return None


def _lacks_handler(why: str) -> bool:
    """Return whether a node refuses a pod for nothing but what virt-handler labels and offers there
    once it works.
    """
    return all(map(_is_of_handler, why.split("; ")))


_OF_HANDLER: Final = (
    "machine type ",
    "CPU feature ",
    "CPU model ",
    "host model ",
    "TSC frequency ",
    "hyperv ",
)


def _is_of_handler(cause: str) -> bool:
    device = cause.startswith("devices.kubevirt.io/") and cause.endswith(" missing")
    return (
        cause == launcher_pod.UNSERVED
        or device
        or cause.startswith((*_OF_HANDLER, virt_handlers.BROKEN))
    )


def _starting(
    every: Mapping[str, str], refusals: Mapping[str, str], cluster: Cluster, kept: str
) -> Problem | None:
    """Return that a new node would take the pod, but for the taint that a controller removes; None:
    there is none.

    ``every``: why each node refuses the pod. No virt-handler starts on a node with such a taint.
    ``refusals``: the same of the nodes with KubeVirt. ``kept``: how the remedy ends.
    """
    for name, why in sorted(every.items()):
        causes = [cause for cause in why.split("; ") if not _is_of_handler(cause)]
        key = causes[0].removeprefix("taint ") if len(causes) == 1 else ""
        who = controller_taints.owner(key) if controller_taints.is_of_start(key) else ""
        if not who:
            continue
        node = find(cluster, NODE, "", name)
        waiting = node_initializers.of_node(node, cluster) if node is not None else None
        known = (
            waiting.reason
            if waiting is not None
            else f"{who} has not removed taint {key} from {name}"
        )
        repair = waiting.remedy if waiting is not None else f"see why {who} does not remove it"
        others = {other: each for other, each in refusals.items() if other != name}
        # else whether virt-handler goes there is not known
        could = f"{name} could take it, but " if name in refusals else ""
        words = advice_of(repair).rstrip(".")
        return Problem(
            f"{NOWHERE}{'; '.join((f'{could}{known}', *dict.fromkeys(_causes(others))))}",
            f"{words[:1].lower()}{words[1:]}{kept}",
            ProblemCause.NO_TARGET,
            command=command_of(repair) or shell("kubectl", "describe", "node", argument(name)),
        )
    return None


def unless_it_follows(vmi: Object, target: SchedulingTarget, cluster: Cluster) -> Problem | None:
    """Return why no node takes a VMI that migrates, as ``reason`` does;
    None also where it can follow another pod.
    """
    found = reason(target, cluster, moves=True)
    if found is None or leader(vmi, target, cluster):
        return None
    if vmis.is_resized(vmi) and found.cause is ProblemCause.NO_ROOM:
        size = " (its next pod has the CPUs and memory that were hotplugged)"
        return found._replace(
            reason=f"{found.reason}{size}", remedy=f"take the hotplug back, or {found.remedy}"
        )
    return found


def leader(vmi: Object, target: SchedulingTarget, cluster: Cluster) -> str:
    """Return a pod that leaves the node with a VMI, and that its pod affinity alone demands
    elsewhere; empty: none.

    Where that pod goes, the VMI can follow. Two that demand each other both stay.
    """
    state, pod = candidates.scheduler(cluster).state, target.pod
    if (
        not pod.affinity
        or target.placement.has_candidate
        or _FOLLOWS not in map(_cause_of, target.placement.refusals.values())
    ):
        return ""
    here = vmi.at("status", "nodeName").text or ""
    others = (other for other in state.pods.get(here, ()) if not candidates.is_own(other, vmi))
    found = (
        other for other in others if follows(pod, other, state) and not follows(other, pod, state)
    )
    return next((other.full_name for other in found), "")


_FOLLOWS: Final = "pod affinity demands"


def _cause_of(why: str) -> str:
    """Return the only cause of a refusal, without its object; empty: there are several."""
    return " ".join(why.split()[:3]) if "; " not in why else ""


def _passes(cause: str) -> bool:
    passing = cause in _MOMENT or cause in _PRESSURE
    return passing or cause.startswith((virt_handlers.BROKEN, pod_networks.BROKEN, LACKS))


def _not_ready_now(refusals: Mapping[str, str], cluster: Cluster) -> Problem:
    """Return that the nodes which could take a VM are not ready, each for causes that pass."""
    nodes = list(refusals)
    without_network = next(
        (why for why in refusals.values() if why.startswith(pod_networks.BROKEN)), ""
    )
    if without_network:
        reason = f"no node that could take it is ready: {names(nodes)} ({without_network})"
        node = next(name for name, why in refusals.items() if why is without_network)
        return Problem(reason, pod_networks.remedy(cluster, node), ProblemCause.NO_TARGET)
    without_driver = next(
        ((name, why) for name, why in refusals.items() if why.startswith(LACKS)), None
    )
    if without_driver is not None:
        node, why = without_driver
        reason = f"no node that could take it is ready: {names(nodes)} ({why})"
        return Problem(
            reason, node_drivers.remedy(why.split()[2], node, cluster), ProblemCause.NO_TARGET
        )
    if pressed := _pressed(refusals):
        return pressed
    unserved = [
        name
        for name, why in refusals.items()
        if launcher_pod.UNSERVED in why or virt_handlers.BROKEN in why
    ]
    why = next(filter(None, (virt_handlers.problem(cluster, name) for name in unserved)), "")
    if unserved == nodes and not any(
        "cordoned" in each or "not Ready" in each for each in refusals.values()
    ):
        reason = (
            "virt-handler serves none of the nodes that could take it: "
            f"{names(nodes)}{f' ({why})' if why else ''}"
        )
        command = "kubectl get pods -A -l kubevirt.io=virt-handler -o wide"
        return Problem(
            reason, "repair virt-handler on one of them", ProblemCause.NO_TARGET, command=command
        )
    more = f"; virt-handler does not serve {names(unserved)}" if unserved else ""
    known = [find(cluster, NODE, "", name) for name in nodes if refusals[name] == "cordoned"]
    cordoned = sorted(filter(None, known), key=maintenance_updates.is_in_maintenance)
    cordons = {
        node.name: found
        for node in cordoned
        if (found := cordoners.of_node(node, cluster)) is not None
    }
    said = [f"{name} ({cordons[name].closed})" if name in cordons else name for name in nodes]
    reason = f"no node that could take it is ready: {names(said, 300)}{more}"
    if cordons and len(cordons) == len(nodes):
        return cordoned_everywhere.problem(cordoned, cordons)
    free = {
        node.name: not cordoners.is_emptied(node.name, cluster)
        for node in cordoned
        if node.name not in cordons
    }
    first = next((name for name in sorted(free, key=lambda name: not free[name])), "")
    command = shell(
        "kubectl", *(("uncordon",) if first else ("describe", "node")), argument(first or nodes[0])
    )
    later = len(free) == len(nodes) and not free[first]
    words = f"uncordon {first} once its drain and its maintenance are over" if later else _REPAIR
    return Problem(reason, words, ProblemCause.NO_TARGET, command=command)


_REPAIR: Final = "uncordon or repair one of them"


def _pressed(refusals: Mapping[str, str]) -> Problem | None:
    """Return that the only nodes which could take a VM lack disk space, memory or processes; None:
    there are others.
    """
    if not all(why in _PRESSURE for why in refusals.values()):
        return None
    each = names(f"{name} ({_PRESSURE[why].words})" for name, why in refusals.items())
    node, why = next(iter(refusals.items()))
    pressure = _PRESSURE[why]
    remedy = pressure.remedy.replace(" it", f" {node}", 1) + (
        f" ({pressure.what})" if pressure.what else ""
    )
    command = shell("kubectl", "describe", "node", argument(node))
    return Problem(
        f"no node that could take it is ready: {each}",
        remedy,
        ProblemCause.NO_TARGET,
        command=command,
    )


def _unfit(refusals: Mapping[str, str], kept: str) -> str:
    """Return what ends a taint of a controller that every node has; empty: there is none.

    A guest that stops stays off.
    """
    for cause in sorted(_common(refusals)):
        key = cause.removeprefix("taint ")
        who = controller_taints.owner(key) if key != cause else ""
        if who:
            return f"repair what {who} reports with that taint, which it then removes{kept}"
    return ""


def _common(refusals: Mapping[str, str]) -> set[str]:
    return set.intersection(*(set(why.split("; ")) for why in refusals.values()))


def _lasting(refusals: Mapping[str, str]) -> str:
    """Return what helps where every node is refused for the same cause, which no new node repairs;
    else empty.
    """
    common = _common(refusals)
    for start, remedy in _LASTING:
        found = next((cause for cause in sorted(common) if cause.startswith(start)), "")
        if found:
            return remedy.format(found.removeprefix(start).split()[0] if found != start else "")
    return ""


_STATIC: Final = "set cpuManagerPolicy static (with reserved CPUs) in the kubelet of a drained node"
_LASTING: Final = (
    ("volume of claim ", "move claim {} to storage that the other nodes reach"),
    ("node selector kubernetes.io/hostname=", "remove the node selector for {} from the VM"),
    ("node selector ", "set the label {} on another node, or remove the node selector from the VM"),
    ("network ", "set network {} up on another node, in Harvester by a VlanConfig that selects it"),
    ("node affinity", "change its node affinity, or the labels of another node"),
    (
        "dedicated CPUs",
        f"{_STATIC}, so that virt-handler labels it, or remove dedicatedCpuPlacement from the VM",
    ),
    (
        "machine type ",
        "set a machine type that another node offers instead of {}, and restart the VM",
    ),
    (
        "pod affinity demands ",
        "as a decision, make its required pod affinity a preferred one, and restart the VM",
    ),
)
"""What helps against a cause that no amount of room repairs; the first one that fits."""


def absent(refusals: Mapping[str, str], cluster: Cluster) -> str:
    """Return the device or huge pages that every node lacks because none of them has any; empty:
    there is none.
    """
    nodes = candidates.scheduler(cluster).state.nodes
    causes = [why.split("; ") for why in refusals.values()]
    lacking = [
        {cause.partition(": ")[0] for cause in each if cause.endswith(" missing")}
        for each in causes
    ]
    common = sorted(
        name for name in set.intersection(*lacking) if "/" in name or name.startswith(_PAGES)
    )
    none = (
        each
        for each in common
        if not any((nodes[name].allocatable or {}).get(each) for name in refusals)
    )
    return next(none, "")


def _offered(device: str, nodes: Collection[str], cluster: Cluster) -> str:
    """Return how a device comes to one of these nodes; empty: there is no such device.
    virt-handler offers its own.
    """
    if bridge := node_bridges.bridge(device):
        return node_bridges.remedy(bridge, nodes, cluster)
    if device.startswith("devices.kubevirt.io/"):
        return (
            f"see why virt-handler offers no {device} there (/dev/kvm, nested virtualization, "
            "kernel modules)"
        )
    if device.startswith(_PAGES):
        return (
            f"reserve huge pages of {device.removeprefix(_PAGES)} on one of them by its kernel "
            "arguments"
        )
    return f"add a node that has {device}" if device else ""


def _broken_claim(causes: Collection[str]) -> str:
    broken = (
        cause for cause in causes if cause.startswith("claim ") and "allows one pod" not in cause
    )
    return next((cause.split()[1] for cause in broken), "")


def _cause(causes: Collection[str]) -> ProblemCause:
    if _broken_claim(causes):
        return ProblemCause.CLAIM_BROKEN
    if all(" missing on " in cause for cause in causes):
        return ProblemCause.NO_ROOM
    if any(cause.startswith("host model ") for cause in causes):
        return ProblemCause.HOST_MODEL
    return ProblemCause.NO_TARGET


def is_lasting(
    target: SchedulingTarget, vmi: Object, cluster: Cluster, *, refused: Collection[str] = ()
) -> bool | None:
    """Return whether no other node can ever run the pod of a VMI; None: that cannot be determined.

    Capacity, cordons and readiness pass; a disk of the node, a selector or a device that others
    lack does not. ``refused``: nodes to which it never migrates, for reasons that kube-scheduler
    does not know.
    """
    here = vmi.at("status", "nodeName").text or ""
    runs = candidates.scheduler(cluster).ever(target.pod, here, SCHEDULABLE, refused)
    if runs is None or (runs and target.placement.unseen):
        return None
    return not runs


def _remedy(causes: Collection[str], otherwise: str, cluster: Cluster) -> str:
    """Return what helps. A VM that is restarted while a claim of it cannot be mounted stays off."""
    if claim := _broken_claim(causes):
        return f"repair claim {claim}{_KEPT if otherwise else ''}"
    if all(" missing on " in cause for cause in causes):
        return _or("add a node or free that much on one", otherwise)
    # no node's processor can be changed
    if any(cause.startswith("host model ") for cause in causes):
        model = common_model(cluster)
        other = (
            f"set CPU model {model}, which every node offers, and restart the VM" if model else ""
        )
        return _or(other or "add a node with the same processor", otherwise)
    # of the node on which the guest was started
    if any(cause.startswith("CPU feature ") for cause in causes):
        return _or(
            "restart the VM, which then needs the processor of the node where it starts", otherwise
        )
    if {cause.removeprefix("taint ") for cause in causes} <= set(CONTROL_PLANE):
        return _or("add a node, as these are control-plane nodes", otherwise)
    if all(cause.startswith("taint ") for cause in causes):
        return _or("remove the taint from one of the nodes, or let the VM tolerate it", otherwise)
    return _or("remove the causes on one of the nodes", otherwise)


def _told(refusals: Mapping[str, str], lacked: str = "") -> str:
    """Return the causes in a list, each with the nodes that have it unless all do: first those of
    nodes which have the room, as they are the cheapest to open.
    """
    common, there = _common(refusals), sorted(refusals.items(), key=_has_no_room)
    owners: dict[str, list[str]] = {}
    for name, why in there:
        for cause in _causes({name: why}, lacked):
            owners.setdefault(cause, []).append(name)
    every = [
        cause
        if cause in common or len(nodes) == len(refusals) or " missing on " in cause
        else f"{cause} ({names(nodes, 60)})"
        for cause, nodes in owners.items()
    ]
    return _MORE.sub(lambda more: f"{more[1]} cause{'s' * (more[2] != '1')}", names(every))


_MORE: Final = re.compile(r"( and (\d+) more)\Z")


def _has_no_room(item: tuple[str, str]) -> tuple[bool, str]:
    return item[1].endswith(" missing") or " missing;" in item[1], item[0]


def _causes(refusals: Mapping[str, str], lacked: str = "") -> Iterator[str]:
    """Yield the causes, each with its node where an amount is missing.

    ``lacked``: what none of them has.
    """
    for name, why in sorted(refusals.items()):
        for cause in why.split("; "):
            none = lacked and cause.startswith(f"{lacked}: ")
            on = f" on {name}" if cause.endswith("missing") else ""
            yield f"none has any {lacked}" if none else f"{cause}{on}"
