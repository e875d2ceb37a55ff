"""Why a pod may not start on a node that takes it:
kube-scheduler knows nothing of the pod network and of old volumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement import pod_networks, virt_handlers, volume_attachments
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.components import driver_daemons, node_drivers
from virt_admit.forecasts.placement.components.drivers import driver_faults, shared_taints
from virt_admit.forecasts.placement.components.missing_networks import makes_room
from virt_admit.forecasts.placement.refusals import unserved_nodes
from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import PVC, VOLUME_ATTACHMENT
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.launcher import without_kvm
from virt_admit.model.kubevirt.launcher.launcher_pod import UNSERVED
from virt_admit.model.lookups import find
from virt_admit.model.messages import advice_of, cut_middle, names, shorten
from virt_admit.model.node_updates import cordoners
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler import controller_taints
from virt_admit.model.scheduler.filters import FilterPipeline
from virt_admit.model.scheduler.pods import Pod

READS: Final[Reads] = union(
    cordoners.READS,
    unserved_nodes.READS,
    volume_attachments.READS,
    node_drivers.READS,
    shared_taints.READS,
)
"""The fields that say it."""
_PATIENCE: Final = timedelta(minutes=10)
"""The attach controller of Kubernetes waits six minutes for a volume to be unmounted,
then it is detached by force.
"""


def without_broken_nodes(target: SchedulingTarget, cluster: Cluster) -> SchedulingTarget:
    """Return a target without the nodes on which its pod would not start although kube-scheduler
    may choose them.
    """
    broken, lacking = cluster.cached(virt_handlers.broken), node_drivers.unserving(cluster)
    chosen, pod = target.placement.candidates, target.pod
    faults = driver_faults.refusals(pod.namespace, pod.claims, chosen, cluster)
    if not broken and not lacking and not faults:
        return target
    found = {name: broken[name] for name in chosen if name in broken}
    needed = (
        node_drivers.needed_by(target.pod.namespace, target.pod.claims, cluster) if lacking else ()
    )
    reasons = node_drivers.reasons(cluster) if needed else {}
    for name in chosen if needed else ():
        absent = reasons.get(name, {})
        driver = next((each for each in needed if each in absent), "")
        if driver:
            found.setdefault(name, absent[driver])
    found = faults | found
    if not found:
        return target
    return target._replace(
        placement=replace(target.placement, judged={**target.placement.judged, **found})
    )


def network(takes: Callable[[str], bool], cluster: Cluster) -> Problem | None:
    """Return that kube-scheduler may choose a node on which no pod starts; None: there is none.

    Such a node is Ready, and each attempt may end there again: nothing remembers where the last one
    failed.

    Args:
        takes: whether a node takes the pod by what kube-scheduler knows.
        cluster: the cluster.
    """
    for name, why in sorted(cluster.cached(virt_handlers.broken).items()):
        if why.startswith(pod_networks.BROKEN) and takes(name):
            command = shell("kubectl", "cordon", argument(name))
            reason = f"kube-scheduler may choose {name}, and {why}"
            return Problem(reason, typed("cordon it until its pod network works", command))
    return None


def reach(target: SchedulingTarget, cluster: Cluster) -> Problem | None:
    """Return that a pod may go to a node whose pod network may not reach it, and no migration
    either; None: it does not."""
    doubtful = cluster.cached(pod_networks.doubtful)
    chosen = target.placement.candidates if doubtful else ()
    node = min(filter(doubtful.__contains__, chosen), default="")
    if not node:
        return None
    if all(name in doubtful for name in chosen):
        others = f"only {names(sorted(chosen))} can take it, and {doubtful[node]}"
        return Problem(others, pod_networks.remedy(cluster, node))
    cordon = typed(
        "cordon it until its pod network works", shell("kubectl", "cordon", argument(node))
    )
    return Problem(f"kube-scheduler may choose {node}, and {doubtful[node]}", cordon)


def drivers(
    judged: Mapping[str, str | None], namespace: str, claims: Sequence[str], cluster: Cluster
) -> Problem | None:
    """Return that kube-scheduler may choose a node that lacks the driver of a volume; None:
    there is none.

    ``judged``: why each node does not take the pod.
    """
    for name, why in sorted(judged.items()):
        if why is None or not why.startswith(node_drivers.LACKS) or "; " in why:
            continue
        driver = node_drivers.missing(name, namespace, claims, cluster)
        if not driver:  # a fault of the driver is that of all nodes
            continue
        command = shell("kubectl", "cordon", argument(name))
        until = typed(f"or cordon {name} until then", command)
        ways = f"{node_drivers.words(driver, name, cluster)}; {until}"
        return Problem(f"kube-scheduler may choose {name}, and {why}", ways)
    return None


def plugins(target: SchedulingTarget, cluster: Cluster) -> Problem | None:
    """Return that no node is left which certainly has the drivers of a pod; None:
    one may have them.

    The pod of a driver is not there, but may come back: its DaemonSet is updated, or a taint
    passes.
    """
    gone = driver_daemons.without_pod(cluster)
    if not gone or not any(name in gone for name in target.placement.candidates):
        return None
    needed = node_drivers.needed_by(target.pod.namespace, target.pod.claims, cluster)
    found = {
        name: next((each for each in needed if each in gone.get(name, ())), "")
        for name in target.placement.candidates
    }
    if not all(found.values()):
        return None
    node, driver = min(found.items())
    absent = gone[node][driver]
    reason = f"it is not known whether driver {driver} works on {names(found)} ({absent.words})"
    return Problem(reason, absent.remedy)


def unserved(pod: Pod, filters: FilterPipeline, cluster: Cluster) -> Problem | None:
    """Return the same of a pod that filters place which know the drivers."""
    lacking = node_drivers.unserving(cluster)
    needed = node_drivers.needed_by(pod.namespace, pod.claims, cluster) if lacking else ()
    if not any(driver in each for driver in needed for each in lacking.values()):
        return None
    return drivers(filters.place(pod).judged, pod.namespace, pod.claims, cluster)


def best_refusal(found: SchedulingTarget, filters: FilterPipeline, cluster: Cluster) -> str:
    """Return why the node with the fewest causes refuses a pod, ``on n2 memory: 6Gi missing``;
    empty: no such node.
    """
    refusals = found.placement.refusals.items()
    hosts = {name: why for name, why in refusals if SCHEDULABLE in filters.state.nodes[name].labels}
    if not hosts:
        return ""
    name, why = min(hosts.items(), key=_ease)
    if why == _CORDONED:
        return f"{name} is {_CORDONED}"
    if why == UNSERVED and (down := virt_handlers.problem(cluster, name, brief=True)):
        return f"on {name} {down.replace(f' on {name}', '', 1)}"
    why = without_kvm.told(why) if without_kvm.is_off(name, cluster) else why
    longest = 300 if why.startswith((node_drivers.LACKS, without_kvm.OFF)) else 100
    return f"on {name} {shorten(virt_handlers.needs(why), longest)}"


_HANDLER: Final = "virt-handler "
_MISSING: Final = "missing"
"""How the refusal of a node ends that lacks room (model/scheduler/filters.py)."""
_CORDONED: Final = "cordoned"


def _ease(item: tuple[str, str]) -> tuple[bool, bool, int, bool, str]:
    """Return how easily a refusal ends: lack of room, a cordon, few causes, a driver."""
    name, why = item
    lasts = not why.endswith(_MISSING), why != _CORDONED, why.count("; ")
    return *lasts, not why.startswith(node_drivers.LACKS), name


def opens(why: str, fault: str, cluster: Cluster) -> str:
    """Return what lets a pod start that no node takes, without a command: a driver, a network,
    room.

    ``why``: the refusal of the best node, as ``best_refusal`` says it. ``fault``: of the pod.
    """
    node, _, cause = why.removeprefix("on ").partition(" ")
    if cause == f"is {_CORDONED}":
        kept = cordoners.is_reserved(node, cluster)
        way = "" if kept else f"uncordon {node}, if its maintenance is over, or "
        return makes_room(fault, f"{way}add a node that takes it")
    if not why.startswith("on "):
        return makes_room(fault, "add a node that runs KubeVirt")
    if cause.startswith(without_kvm.OFF):
        return without_kvm.way([node], cluster)
    if cause.startswith(_HANDLER) and (repair := virt_handlers.repair(cluster, node)):
        words = advice_of(repair).rstrip(".")
        return f"{words[:1].lower()}{words[1:]}"
    if not cause.startswith(node_drivers.LACKS):
        is_room = cause.endswith((_MISSING, "…"))
        if is_room:
            return makes_room(fault)
        if fenced := _fenced(cause, cluster):
            return makes_room(fault, f"add a node that takes it, or {fenced}")
        if owned := _owned(cause):
            return makes_room(fault, f"add a node that takes it, or {owned} on {node}")
        return makes_room(fault, f"add a node that takes it, or let {node} take it ({cause})")
    words = advice_of(node_drivers.remedy(cause.split()[2], node, cluster)).rstrip(".")
    return f"{words[:1].lower()}{words[1:]}"


def _fenced(cause: str, cluster: Cluster) -> str:
    """Return what ends a taint of podmon, which no VM may tolerate: its volumes may be written
    there; empty: a node refuses for other reasons alone.
    """
    keys = (each.removeprefix("taint ") for each in cause.split("; "))
    key = next(filter(controller_taints.is_of_podmon, keys), "")
    if not key:
        return ""
    found = shared_taints.known(cluster).get(key)
    return found.advice if found is not None else f"wait until podmon removes taint {key}"


def _owned(cause: str) -> str:
    """Return what ends a taint that a controller sets, which no pod should tolerate; empty: a node
    refuses for other reasons alone."""
    keys = (each.removeprefix("taint ") for each in cause.split("; ") if each.startswith("taint "))
    key = next(filter(controller_taints.owner, keys), "")
    who = controller_taints.owner(key)
    return f"repair what {who} reports with taint {key}" if who else ""


def volumes(node: str, namespace: str, claims: Sequence[str], cluster: Cluster) -> Problem | None:
    """Return that the volumes of a pod may not leave a node, as others of their driver do not;
    None: nothing says so.
    """
    stuck = volume_attachments.stuck(node, cluster)
    drivers = (
        {driver for claim in claims if (driver := _driver(namespace, claim, cluster))}
        if stuck
        else ()
    )
    for found in stuck:
        driver = found.at("spec", "attacher").text or ""
        age = clock.since(found.metadata["deletionTimestamp"].text, cluster)
        if driver in drivers and age is not None and age >= _PATIENCE:
            name = volume_attachments.volume(found) or found.name
            error = volume_attachments.detach_error(found)
            minutes = int(age.total_seconds() // 60)
            reason = (
                f"{driver} has not detached volume {name} from {node} for {minutes} min "
                f"({cut_middle(error, 120)})"
            )
            command = kubectl("describe", VOLUME_ATTACHMENT, found.name)
            return Problem(
                f"{reason}, so its own volumes may stay there, too",
                typed("repair the driver", command),
            )
    return None


def _driver(namespace: str, claim: str, cluster: Cluster) -> str:
    """Return the driver of a volume that one node alone may have; empty: it is another one,
    or could not be read.
    """
    found = find(cluster, PVC, namespace, claim)
    if found is None or not volume_attachments.is_of_one_node(found):
        return ""
    return node_drivers.of_claim(namespace, claim, cluster)
