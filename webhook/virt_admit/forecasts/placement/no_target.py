"""Why a VM has no place to go to, and what helps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from virt_admit.forecasts.placement import candidates, headroom, pod_networks, virt_handlers
from virt_admit.forecasts.placement.absent import larger_nodes, owed_nodes, unready_nodes
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.common_model import host_only, models_first, other_model
from virt_admit.forecasts.placement.components import (
    left_taints,
    missing_networks,
    node_initializers,
)
from virt_admit.forecasts.placement.components.node_drivers import LACKS
from virt_admit.forecasts.placement.refusals import (
    affinity_partners,
    busy_nodes,
    contrary_demands,
    crowded_domains,
    dying_claims,
    fenced_nodes,
    repelling_pods,
    static_cpus,
    unreached_nodes,
    unreached_settings,
    unserved_nodes,
    volume_limits,
)
from virt_admit.forecasts.placement.refusals.refusal_remedies import (
    DOWNTIME,
    KEPT,
    absent_resource,
    asked,
    broken_claim,
    cause_of,
    common_causes,
    either,
    has_no_room,
    is_gone_at_home,
    lasting_remedy,
    of_host_model,
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
from virt_admit.model.kubevirt.instances import networks, tsc, vmis
from virt_admit.model.kubevirt.instances.tsc import FrequencyGap
from virt_admit.model.kubevirt.launcher import hotplugs
from virt_admit.model.lookups import find
from virt_admit.model.messages import advice_of, command_of, names
from virt_admit.model.node_updates import cordoners
from virt_admit.model.node_updates.operators import node_removals
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler import controller_taints
from virt_admit.model.scheduler.inter_pod_affinity import follows
from virt_admit.model.scheduler.resources import PODS

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
    otherwise, kept = ("", "") if starts else (DOWNTIME[moves], KEPT)
    starting = _starting(target.placement.refusals, refusals, cluster, kept)
    if not refusals:
        return starting or _absent(target, refusals, cluster) or _alone(otherwise, cluster)
    if unserved := (
        _busy(target, refusals, cluster, starts=starts)
        or _absent(target, refusals, cluster)
        or unserved_nodes.problem(refusals, NOWHERE, cluster)
        or _unserved(target, refusals, cluster)
        or _fenced(refusals, cluster)
    ):
        return unserved
    refusals, lacked, left_out = _chosen(refusals, cluster)
    causes = tuple(dict.fromkeys(_causes(refusals, lacked)))
    host, known = of_host_model(target, causes, cluster), _known(target, refusals, lacked, cluster)
    claim, namespace = broken_claim(causes), target.pod.namespace
    larger = "" if lacked or claim else larger_nodes.remedy(target, refusals, cluster)
    lasting = (
        known.remedy
        or other_model(common_causes(refusals), cluster, starts=starts)
        or lasting_remedy(target, refusals, cluster, starts=starts)
        or (offer(lacked, refusals, cluster) or larger)
        or virt_handlers.own_tolerations(refusals, cluster)
    )
    if lacked and not starts and is_gone_at_home(lacked, target, cluster):
        otherwise = ""  # a guest that is shut down stays so
        lasting = f"{lasting}{kept}" if lasting else ""
    if left := _tainted(target, refusals, kept, cluster):
        return left._replace(reason=f"{NOWHERE}{_told(refusals, lacked)}: {left.reason}")
    if unfit := unfit_remedy(refusals, kept, cluster):
        return unfit._replace(reason=f"{NOWHERE}{_told(refusals, lacked)}{unfit.reason}")
    if starting:
        return starting
    down = otherwise * hotplugs.keeps_off(namespace, target.pod.name, claim, cluster)
    remedy = either(lasting, otherwise) if lasting else remedy_of(causes, down, cluster, host)
    command = kubectl("describe", PVC, claim, namespace) if claim else ""
    if claim and (dying := dying_claims.of_claim(namespace, claim, cluster)) is not None:
        remedy, command = f"{dying.way}{kept * bool(down)}", dying.command
    why = f"{vanished(causes, cluster) or _told(refusals, lacked)}{host_only(causes, cluster)}"
    why += f"{asked(target.pod, causes) * starts}{host}{known.reason}"
    why += f"{affinity_partners.words(target.pod, causes, cluster)}{left_out}"
    cause = ProblemCause.NO_TARGET if lacked else cause_of(causes)
    lacks_room = lasting == larger and not claim and any(" missing on " in each for each in causes)
    if lacks_room and (owed := owed_nodes.first(cluster)) is not None:
        why = f"the next node is missing ({owed.reason}); {why}"
        other = either(f"else {larger or 'add a node or free that much on one'}", otherwise)
        remedy, command = _first(owed.remedy, f"if that node would fit; {other}")
    return Problem(f"{NOWHERE}{why}", remedy, cause, command=known.command or command)


def _tainted(
    target: SchedulingTarget, refusals: Mapping[str, str], kept: str, cluster: Cluster
) -> Problem | None:
    """Return the taint that nothing removes from nodes, and what ends it; None: there is none."""
    left = left_taints.of_refusals(refusals, cluster)
    if left is None:
        return None
    advice = f"{left.advice}{kept * (target.placement.without in left.nodes)}"
    return Problem(left.reason, advice, ProblemCause.NO_TARGET, command=left.command)


def _busy(
    target: SchedulingTarget, refusals: Mapping[str, str], cluster: Cluster, *, starts: bool
) -> Problem | None:
    """Return that nodes would take a pod but for causes that pass; None: there are none."""
    found = busy_nodes.not_ready_now(refusals, cluster, starts=starts)
    return crowded_domains.completed(found, target, refusals, cluster) if found else None


def _known(
    target: SchedulingTarget, refusals: Mapping[str, str], lacked: str, cluster: Cluster
) -> Problem:
    """Return what other objects say of a cause for which nodes refuse a pod, after a colon, and
    what ends it; both empty: nothing.
    """
    gap = _frequency_gap(refusals, cluster)
    if gap is not None:
        return Problem(f": {gap.words}", gap.remedy)
    contrary = contrary_demands.of(target, refusals, cluster)
    counted = contrary or crowded_domains.of(target, refusals, cluster)
    unset = static_cpus.of(refusals, cluster) or unreached_settings.of(lacked, refusals, cluster)
    return volume_limits.of(refusals, cluster) or counted or unset or Problem("", "")


def frequency_gap(vmi: Object, cluster: Cluster) -> FrequencyGap | None:
    """Return that all other nodes refuse a running VMI, and some for its TSC frequency alone."""
    refusals = kubevirt_refusals(candidates.target(vmi, cluster, moves=True), cluster)
    return _frequency_gap(refusals, cluster) if refusals else None


def updated_target(vmi: Object, cluster: Cluster, *, moves: bool) -> SchedulingTarget:
    """Return where a running VMI could go if its TSC frequency, and a taint that only the pod which
    attaches its volumes does not tolerate, kept it from no node.
    """
    needed = candidates.demand(vmi, cluster, moves=moves)
    selector = needed.pod.node_selector.items()
    kept = {key: value for key, value in selector if not key.startswith(tsc.SELECTED)}
    needed = needed._replace(pod=replace(needed.pod, node_selector=kept), attaching=None)
    return candidates.placed(vmi, needed, cluster, moves=moves)


def _frequency_gap(refusals: Mapping[str, str], cluster: Cluster) -> FrequencyGap | None:
    nodes = candidates.scheduler(cluster).state.nodes
    return tsc.gap(refusals, {name: nodes[name].labels for name in refusals}, cluster)


def _first(remedy: str, otherwise: str) -> tuple[str, str]:
    """Return what is to be done first, with what else helps, and its command."""
    words = advice_of(remedy).rstrip(".")
    return f"{words[:1].lower()}{words[1:]} ({otherwise})", command_of(remedy)


def _absent(
    target: SchedulingTarget, refusals: Mapping[str, str], cluster: Cluster
) -> Problem | None:
    """Return that a node would take the pod if it were Ready, on which virt-handler has never run;
    None: there is none.

    ``refusals``: those of the nodes with KubeVirt.
    """
    for name, unready in unready_nodes.known(cluster).items():
        why = target.placement.refusals.get(name, "")
        if name in refusals or not why or not unready.for_vms:
            continue
        if not _ends_once_ready(why):
            continue
        others = f"; {_told(refusals)}" if refusals else ""
        reason = f"{NOWHERE}{name} could, but {unready.is_not_ready}{others}"
        other = "else add a node or free room on one"
        if unready.every_new_one:
            other = "another new node would not become Ready either; else free room on one"
        remedy, command = _first(unready.remedy, other)
        return Problem(reason, remedy, ProblemCause.NO_TARGET, command=command)
    return None


def _ends_once_ready(why: str) -> bool:
    """Return whether a node refuses a pod for nothing but what passes once it is Ready."""
    return all(
        cause in _NOT_READY
        or cause.startswith((pod_networks.BROKEN, LACKS))
        or virt_handlers.is_of_handler(cause)
        for cause in why.split("; ")
    )


_NOT_READY: Final = (
    "not Ready",
    "taint node.kubernetes.io/not-ready",
    "taint node.kubernetes.io/network-unavailable",
)


def _alone(otherwise: str, cluster: Cluster) -> Problem | None:
    """Return that no other node runs KubeVirt; None: none does."""
    every = candidates.scheduler(cluster).state.nodes.values()
    if not any(SCHEDULABLE in node.labels for node in every):
        return None
    alone = otherwise and len(every) == 1
    remedy = otherwise if alone else either("add one", otherwise)
    return Problem("no other node runs KubeVirt", remedy, ProblemCause.NO_TARGET)


def _chosen(refusals: dict[str, str], cluster: Cluster) -> tuple[dict[str, str], str, str]:
    """Return the nodes that the selector and the node affinity of a pod leave, what all of them
    lack, and which others there are, in words.

    What those others lack is not why. All nodes: there is none left, or some device decides.
    """
    lacked = absent_resource(refusals, cluster)
    chosen = {
        name: why
        for name, why in refusals.items()
        if not any(cause.startswith(_ELSEWHERE) for cause in why.split("; "))
    }
    elsewhere = [name for name in refusals if name not in chosen]
    if not elsewhere or not chosen or absent_resource(chosen, cluster) != lacked:
        return refusals, lacked, ""
    return chosen, lacked, f"; its node selector or affinity leaves out {names(elsewhere, 60)}"


_ELSEWHERE: Final = ("node selector ", "node affinity")


def kubevirt_refusals(target: SchedulingTarget, cluster: Cluster) -> dict[str, str] | None:
    """Return why each node with KubeVirt refuses a pod; None: one takes it, or that is unknown."""
    placement, nodes = target.placement, candidates.scheduler(cluster).state.nodes
    if placement.has_candidate or not placement.is_certain:
        return None
    there = {name for name, node in nodes.items() if SCHEDULABLE in node.labels}
    return {name: why for name, why in placement.refusals.items() if name in there}


def _fenced(refusals: Mapping[str, str], cluster: Cluster) -> Problem | None:
    """Return that a node would take the pod, but for the taint of its fencing, though it is back,
    or for what an autoscaler has left on it; None: there is none.
    """
    found = fenced_nodes.first(refusals, cluster)
    if found is None:
        return _forgotten(refusals, cluster)
    others = {other: each for other, each in refusals.items() if other != found.name}
    causes = "; ".join((found.reason, *dict.fromkeys(_causes(others))))
    cause = ProblemCause.NO_TARGET
    return Problem(f"{NOWHERE}{causes}", found.remedy, cause, command=found.command)


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
    """Return that a node would take the pod if virt-handler worked there; None: none would."""
    every, own = target.placement.refusals, target.pod.tolerations
    if (unreached := unreached_nodes.problem(every, NOWHERE, cluster, own)) is not None:
        return unreached
    for name, why in sorted(every.items()):
        if not virt_handlers.lacks_handler(why):
            continue
        fault = virt_handlers.problem(cluster, name)
        if not fault:
            continue
        left = {other: each for other, each in refusals.items() if other != name}
        others, brief = dict.fromkeys(_causes(left)), ""
        if virt_handlers.is_starting(cluster, name):
            first = f"virt-handler starts on {name}, which can take it then"
            remedy, cause = f"wait until virt-handler runs on {name}", ProblemCause.NO_NODE_READY
        else:
            contest = headroom.contest(target.pod, name, virt_handlers.lacks_handler, cluster)
            first = f"{name} takes no VM, as {fault}{contest.reason}"
            remedy = contest.completed(virt_handlers.remedy(cluster, name))
            cause = ProblemCause.NO_TARGET
            brief = f"{name} takes no VM, as {virt_handlers.problem(cluster, name, brief=True)}"
        return Problem(f"{NOWHERE}{'; '.join((first, *others))}", remedy, cause, brief=brief)
    return None


def _starting(
    every: Mapping[str, str], refusals: Mapping[str, str], cluster: Cluster, kept: str
) -> Problem | None:
    """Return that a new node would take the pod, but for the taint that a controller removes, or as
    virt-handler cannot go to any node; None: there is none.

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
        known = f"{who} has not removed taint {key} from {name}"
        repair = f"see why {who} does not remove it"
        if waiting is not None:
            known, repair = waiting.reason, waiting.remedy
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
    return None if refusals else unreached_nodes.problem(every, NOWHERE, cluster)


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
    bound = state.pods.get(here, ())
    own = candidates.own_pods(vmi, bound)
    others = (each for each in bound if each not in own)
    found = (each for each in others if follows(pod, each, state) and not follows(each, pod, state))
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
    common, there = common_causes(refusals), sorted(refusals.items(), key=has_no_room)
    owners: dict[str, list[str]] = {}
    for name, why in there:
        for cause in _causes({name: why}, lacked):
            owners.setdefault(cause, []).append(name)
    full: dict[str, list[str]] = {}
    repelled = repelling_pods.together(owners)
    every = []
    for cause, nodes in owners.items():
        if (told := repelled.get(cause, cause)) != cause:
            every += [told] if told else []
        elif cause.startswith(f"{PODS}: "):  # each node alike: its limit is the cause
            full.setdefault(cause.partition(", ")[0], []).extend(nodes)
        elif cause in common or len(nodes) == len(refusals) or " missing on " in cause:
            every.append(cause)
        else:
            every.append(f"{cause} ({names(nodes, 60)})")
    every += [f"{limit} on {names(nodes, 60)}" for limit, nodes in full.items()]
    return names(models_first(every), noun="cause")


def _causes(refusals: Mapping[str, str], lacked: str = "") -> Iterator[str]:
    """Yield the causes, each with its node where an amount is missing.

    ``lacked``: what none of them has.
    """
    for name, why in sorted(refusals.items()):
        for cause in why.split("; "):
            none = lacked and cause.startswith(f"{lacked}: ")
            on = f" on {name}" if cause.endswith("missing") else ""
            yield f"none has any {lacked}" if none else f"{cause}{on}"
