"""Why a VM has no place to go to, and what helps."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from virt_admit.forecasts.placement import candidates, headroom, virt_handlers
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.common_model import host_only, other_model
from virt_admit.forecasts.placement.components import (
    left_taints,
    missing_networks,
    node_initializers,
)
from virt_admit.forecasts.placement.refusals import (
    affinity_partners,
    busy_nodes,
    dying_claims,
    unserved_nodes,
)
from virt_admit.forecasts.placement.refusals.refusal_remedies import (
    KEPT,
    STATIC,
    absent_resource,
    broken_claim,
    cause_of,
    common_causes,
    either,
    lasting_remedy,
    offer,
    remedy_of,
    unfit_remedy,
)
from virt_admit.forecasts.placement.start_candidates import vanished
from virt_admit.model.commands import argument, kubectl, shell
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, PVC
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import networks, vmis
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import find
from virt_admit.model.messages import advice_of, command_of, names
from virt_admit.model.node_updates import cordoners
from virt_admit.model.node_updates.operators import node_removals
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.remediation import fence_taints
from virt_admit.model.scheduler import controller_taints
from virt_admit.model.scheduler.inter_pod_affinity import follows

NOWHERE: Final = "no other node can take it: "
"""How the reason begins that names what keeps the pod off each node."""


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
    kept = "" if starts else KEPT
    starting = _starting(target.placement.refusals, refusals, cluster, kept)
    if not refusals:
        if starting:
            return starting
        every = candidates.scheduler(cluster).state.nodes.values()
        if not any(SCHEDULABLE in node.labels for node in every):
            return None
        alone = otherwise and len(every) == 1
        remedy = otherwise if alone else either("add one", otherwise)
        return Problem("no other node runs KubeVirt", remedy, ProblemCause.NO_TARGET)
    if unserved := (
        busy_nodes.not_ready_now(refusals, cluster)
        or unserved_nodes.problem(refusals, NOWHERE, cluster)
        or _unserved(target, refusals, cluster)
    ):
        return unserved
    if (locked := _fenced(refusals, cluster) or _forgotten(refusals, cluster)) is not None:
        return locked
    lacked = absent_resource(refusals, cluster)
    causes = tuple(dict.fromkeys(_causes(refusals, lacked)))
    lasting = (
        other_model(common_causes(refusals), cluster, starts=starts)
        or lasting_remedy(refusals, cluster, starts=starts)
        or offer(lacked, refusals, cluster)
        or virt_handlers.own_tolerations(refusals, cluster)
    )
    if left := left_taints.of_refusals(refusals, cluster):
        reason = f"{NOWHERE}{_told(refusals, lacked)}: {left.reason}"
        return Problem(reason, left.advice, ProblemCause.NO_TARGET, command=left.command)
    if unfit := unfit_remedy(refusals, kept, cluster):
        return unfit._replace(reason=f"{NOWHERE}{_told(refusals, lacked)}{unfit.reason}")
    if starting:
        return starting
    remedy = either(lasting, otherwise) if lasting else remedy_of(causes, otherwise, cluster)
    claim, namespace = broken_claim(causes), target.pod.namespace
    command = kubectl("describe", PVC, claim, namespace) if claim else ""
    if claim and (dying := dying_claims.of_claim(namespace, claim, cluster)) is not None:
        remedy, command = f"{dying.way}{kept}", dying.command
    if lasting.startswith(STATIC):
        command = shell("kubectl", "get", "nodes", "-L", launcher_pod.CPU_MANAGER)
    why = f"{vanished(causes, cluster) or _told(refusals, lacked)}{host_only(causes, cluster)}"
    why += affinity_partners.words(target.pod, causes, cluster)
    cause = ProblemCause.NO_TARGET if lacked else cause_of(causes)
    return Problem(f"{NOWHERE}{why}", remedy, cause, command=command)


def kubevirt_refusals(target: SchedulingTarget, cluster: Cluster) -> dict[str, str] | None:
    """Return why each node with KubeVirt refuses a pod; None: one takes it, or that is unknown."""
    placement, nodes = target.placement, candidates.scheduler(cluster).state.nodes
    if placement.has_candidate or not placement.is_certain:
        return None
    there = {name for name, node in nodes.items() if SCHEDULABLE in node.labels}
    return {name: why for name, why in placement.refusals.items() if name in there}


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
    return all(map(virt_handlers.is_of_handler, why.split("; ")))


def _starting(
    every: Mapping[str, str], refusals: Mapping[str, str], cluster: Cluster, kept: str
) -> Problem | None:
    """Return that a new node would take the pod, but for the taint that a controller removes; None:
    there is none.

    ``every``: why each node refuses the pod. No virt-handler starts on a node with such a taint.
    ``refusals``: the same of the nodes with KubeVirt. ``kept``: how the remedy ends.
    """
    for name, why in sorted(every.items()):
        causes = [cause for cause in why.split("; ") if not virt_handlers.is_of_handler(cause)]
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


def _told(refusals: Mapping[str, str], lacked: str = "") -> str:
    """Return the causes in a list, each with the nodes that have it unless all do: first those of
    nodes which have the room, as they are the cheapest to open.
    """
    common, there = common_causes(refusals), sorted(refusals.items(), key=_has_no_room)
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
