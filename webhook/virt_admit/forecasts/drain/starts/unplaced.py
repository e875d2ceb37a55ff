"""Why kube-scheduler finds no node for the pod of a VM that starts, whether that passes,
and what ends it.

Sources: kubevirt/kubevirt:pkg/virt-controller/watch/topology/hinter.go#LowestTSCFrequencyOnCluster,
:nodetopologyupdater.go; kubernetes/kubernetes:pkg/scheduler/framework/plugins/volumebinding.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from virt_admit.forecasts.drain.starts import scattered_disks
from virt_admit.forecasts.drain.starts.devices import absent_resources, missing_devices
from virt_admit.forecasts.drain.starts.storage import chosen_places, misplaced_disks, thin_pools
from virt_admit.forecasts.placement import candidates, no_target
from virt_admit.forecasts.placement.absent import larger_nodes, owed_nodes, scale_ups
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.components import left_taints
from virt_admit.forecasts.placement.components.linstor import lost_quorums
from virt_admit.forecasts.placement.refusals import busy_nodes, contrary_demands, static_cpus
from virt_admit.model.commands import argument, kubectl, merge_patch, shell, typed
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import CSI_CAPACITY, KUBEVIRT, NODE, PVC
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.selectors import integer
from virt_admit.model.kubevirt.instances import tsc
from virt_admit.model.kubevirt.settings import configuration, versions
from virt_admit.model.kubevirt.settings.running_release import is_managed, may_be_managed
from virt_admit.model.kubevirt.settings.versions import Feature
from virt_admit.model.messages import capital, names
from virt_admit.model.node_updates import cordoners
from virt_admit.model.node_updates.operators import cordons
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler import volumes
from virt_admit.model.scheduler.volumes import Claim, VolumePlace

READS: Final[Reads] = union(
    absent_resources.READS,
    candidates.READS,
    contrary_demands.READS,
    cordoners.READS,
    left_taints.READS,
    lost_quorums.READS,
    missing_devices.READS,
    misplaced_disks.READS,
    scattered_disks.READS,
    thin_pools.READS,
    owed_nodes.READS,
    scale_ups.READS,
    static_cpus.READS,
    tsc.READS,
)

_VOLUME: Final = "volume of claim "
_TSC: Final = tsc.DEMANDED
_MISSING: Final = " missing"
_SCALABLE: Final = tsc.SCALABLE
_STAYS: Final = "It does not start before that changes"
_ONCE_READY: Final = "It starts by itself once one is ready"


def problem(
    vmi: Object, target: SchedulingTarget, cluster: Cluster, pod: Object | None = None
) -> Problem | None:
    """Return what keeps the pod of a VMI off all nodes; None: nothing does,
    or that is not known.

    ``pod``: the one that waits for a node, of which the cluster-autoscaler may speak.
    """
    refusals = no_target.kubevirt_refusals(target, cluster)
    if refusals is None:
        return None
    if absent := absent_resources.problem(vmi, target, cluster) or missing_devices.problem(
        vmi, target, cluster
    ):
        return absent
    if passing := busy_nodes.not_ready_now(refusals, cluster, starts=True):
        return _passing(passing, vmi, refusals)
    return (
        _storage(target, refusals, cluster)
        or _volumes(target, refusals, cluster)
        or _frequency(vmi, refusals, cluster)
        or _other(target, refusals, cluster, pod)
    )


def _passing(found: Problem, vmi: Object, refusals: Mapping[str, str]) -> Problem:
    """Return that a pod starts once a node is ready, with what keeps it off the others for good."""
    lasting = {why for why in refusals.values() if any(map(_is_of_volume, why.split("; ")))}
    bound = {cause for why in lasting for cause in why.split("; ") if _is_of_volume(cause)}
    others = f", and its {names(sorted(bound))}" if bound else ""
    frequency = vmi.at("status", "topologyHints", "tscFrequency").integer
    if f"{_TSC}{frequency}" in refusals.values():
        others += f", and others lack its {_TSC}{frequency} ({tsc.demand(vmi)})"
    stays = found.reason.endswith(cordons.STAYS.rstrip("."))
    reason = f"{found.reason}{others}" + ("" if stays else f". {_ONCE_READY}")
    return Problem(reason, typed(found.remedy, found.command), ProblemCause.NO_TARGET)


# --- storage that is not there yet ----------------------------------------------------------------


def _storage(
    target: SchedulingTarget, refusals: Mapping[str, str], cluster: Cluster
) -> Problem | None:
    """Return that nodes would take a pod, but for the storage that their CSI driver has left; None:
    that is not the cause.
    """
    barred = sorted(
        name for name, why in refusals.items() if all(map(_is_of_storage, why.split("; ")))
    )
    claim = refusals[barred[0]].split("; ")[0].split()[3].rstrip(":") if barred else ""
    free = _claim(target.pod.namespace, claim, cluster)
    if not barred or free is None or free.free is None:
        return None
    storage, nodes = free.free, candidates.scheduler(cluster).state.nodes
    lacking: dict[str, list[str]] = {}
    for name in barred:
        lacking.setdefault(storage.says(nodes[name].labels), []).append(name)
    said = names(f"{words} on {names(some)}" for words, some in lacking.items())
    most = {name: storage.most(nodes[name].labels) for name in barred}
    there = barred[0] if len(barred) == 1 else f"one of {names(barred)}"
    add = f"free or add storage of {storage.driver} on {there}"
    listed = shell("kubectl", "get", CSI_CAPACITY.plural, "-A")
    thin = thin_pools.of(storage.storage_class, most, cluster)
    reason = (
        f"no node has the {storage.needed} for its claim {claim}: CSIStorageCapacity of "
        f"StorageClass {storage.storage_class} says {said}{thin.words if thin is not None else ''}"
        f"{_elsewhere(refusals, barred)}. {_ENDS_WITH_STORAGE}"
    )
    if thin is not None:
        return Problem(reason, thin.remedy(storage.driver), ProblemCause.NO_TARGET)
    remedy = add if any(most.values()) else f"{_WRONG_CAPACITY.format(storage.driver)}; else {add}"
    return Problem(reason, typed(remedy, listed), ProblemCause.NO_TARGET)


def _elsewhere(refusals: Mapping[str, str], barred: Collection[str]) -> str:
    """Return what keeps a pod off the nodes where storage alone would not help, as an insertion."""
    others: dict[str, list[str]] = {}
    for name, why in sorted(refusals.items()):
        if name not in barred:
            lasting = [cause for cause in why.split("; ") if not _is_of_storage(cause)]
            others.setdefault("; ".join(lasting), []).append(name)
    said = names(f"{names(some)}: {why}" for why, some in others.items())
    return f"; {said}" if said else ""


_ENDS_WITH_STORAGE: Final = "It starts by itself once the driver reports enough"
_WRONG_CAPACITY: Final = (
    "if these nodes have free storage (a driver may not count what is left in a thin pool), update "
    "{0} and set storageCapacity: false in its CSIDriver until then"
)
"""openebs/lvm-localpv issues 458 and 463: the driver looked at the volume group alone."""


def _is_of_storage(cause: str) -> bool:
    return cause.startswith(volumes.NO_STORAGE)


def _claim(namespace: str, claim: str, cluster: Cluster) -> Claim | None:
    try:
        return volumes.claim(cluster, namespace, claim) if claim else None
    except Unseen:
        return None


# --- volumes --------------------------------------------------------------------------------------


def _volumes(
    target: SchedulingTarget, refusals: Mapping[str, str], cluster: Cluster
) -> Problem | None:
    """Return that the volumes of a pod keep it off the nodes that would take it; None:
    that is not the cause.
    """
    barred = {
        name: why
        for name, why in sorted(refusals.items())
        if all(map(_is_of_volume, why.split("; ")))
    }
    if not barred:
        return None
    claims = sorted({cause.split()[3] for why in barred.values() for cause in why.split("; ")})
    places = {
        claim: found
        for claim in claims
        if (found := _place(target.pod.namespace, claim, cluster)) is not None
    }
    if not places:
        return None
    said = [f"its claim {claim} is {place.words} alone" for claim, place in places.items()]
    command = kubectl("describe", PVC, next(iter(places)), target.pod.namespace)
    if len(set(places.values())) > 1 and len(barred) == len(refusals):
        apart = chosen_places.of_claims(target.pod.namespace, list(places), cluster)
        why = f". {apart.why}" if apart.why else ""
        reason = f"no node reaches all of its disks: {names(said)}{why}. {_STAYS}"
        return Problem(
            reason,
            scattered_disks.remedy(target.pod.namespace, places, apart, cluster),
            ProblemCause.NO_TARGET,
        )
    place = next(iter(places.values()))
    there = {name: why for name, why in refusals.items() if name not in barred}
    cause = f" ({names(f'{name}: {why}' for name, why in sorted(there.items()))})" if there else ""
    gone = place.is_node and not there and _is_absent(place, cluster)
    where = f", where no node can run it{cause}. It does not start before one can"
    where = (
        ", and no such node exists. It does not start before that disk can be reached"
        if gone
        else where
    )
    reason = f"{names(said)}{where}"
    if len(set(places.values())) == 1 and not gone:
        chosen = (
            misplaced_disks.problem(each, refusals, target, names(said), cluster) for each in places
        )
        if (misplaced := next(filter(None, chosen), None)) is not None:
            return misplaced
    small = bool(larger_nodes.remedy(target, there, cluster))
    advice = typed(way(place, there.values(), small=small), command)
    return Problem(reason, advice, ProblemCause.NO_TARGET)


def _is_absent(place: VolumePlace, cluster: Cluster) -> bool:
    """Return whether certainly no node has the label of a place, as after its Node was removed."""
    key, _, value = place.label.partition("=")
    several = " or " in place.words  # of which the label has one alone
    try:
        return not several and all(node.labels.get(key) != value for node in cluster.list(NODE))
    except Unseen:
        return False


def _is_of_volume(cause: str) -> bool:
    return cause.startswith(_VOLUME)


def _place(namespace: str, claim: str, cluster: Cluster) -> VolumePlace | None:
    found = _claim(namespace, claim, cluster)
    return found.place if found is not None else None


def way(place: VolumePlace, there: Collection[str] = (), *, small: bool = False) -> str:
    """Return what brings back a VM whose disk can be used in one place alone.

    ``there``: why the nodes there refuse it. ``small``: they are too small for it even if empty.
    """
    short = bool(there) and all(
        cause.endswith(_MISSING) for why in there for cause in why.split("; ")
    )
    freed = "make the VM smaller, or " if small else "free that much there, or "
    room = freed if short else ""
    if place.is_node:
        back = room or (
            "remove these causes, or " if there else f"bring that node back ({place.label}), or "
        )
        return f"{back}restore the disk on another node"
    return f"{room}add a node {place.words} ({place.label}), or restore the disk elsewhere"


# --- the time stamp counter -----------------------------------------------------------------------


def _frequency(vmi: Object, refusals: Mapping[str, str], cluster: Cluster) -> Problem | None:
    """Return that a VMI was given a TSC frequency which the nodes that would take it do not have.

    KubeVirt takes the lowest of all nodes that run virt-handler, also of those on which no VM may
    run, as it does not ask whether they are cordoned; before 1.0.1 of all nodes that virt-handler
    has ever labelled (kubevirt/kubevirt#10181, #10433).
    """
    frequency = vmi.at("status", "topologyHints", "tscFrequency").integer
    barred = sorted(name for name, why in refusals.items() if why == f"{_TSC}{frequency}")
    if not barred:
        return None
    nodes = candidates.scheduler(cluster).state.nodes
    own = {name: integer(node.labels.get(tsc.TSC_FREQUENCY)) or 0 for name, node in nodes.items()}
    theirs = names(sorted({str(own[name]) for name in barred}))
    begin = (
        f"no node that could take it has the TSC frequency {frequency}, which KubeVirt chose at "
        f"its start ({tsc.demand(vmi)}): "
        f"{names(barred)} {'has' if len(barred) == 1 else 'have'} {theirs}"
    )
    lowest = min(own[name] for name in barred)
    suits = all(
        own[name] == lowest or nodes[name].labels.get(_SCALABLE) == "true" for name in barred
    )
    fixed, command = _minimum(lowest, cluster) if lowest and suits else ("", "")
    if _is_set(frequency, cluster):
        reason = f"{begin}. It is set in KubeVirt (minimumClusterTSCFrequency). {_STAYS}"
        return Problem(reason, typed(fixed or f"remove that setting and {_AGAIN}", command), _CAUSE)
    by_label = versions.has_release(cluster, Feature.TSC_OF_SCHEDULABLE.since)
    bringing = sorted(
        name
        for name, value in own.items()
        if value == frequency and (not by_label or nodes[name].labels.get(SCHEDULABLE) == "true")
    )
    if not bringing:
        reason = f"{begin}, and no node brings it now. {_STAYS}"
        return Problem(
            reason, "stop and start the VM, which then gets the frequency of these nodes", _CAUSE
        )
    reserved = all(cordoners.is_reserved(name, cluster) for name in bringing)
    why = [cause for name in bringing for cause in refusals.get(name, "").split("; ")]
    if any(cause.endswith(_MISSING) for cause in why):
        return None  # nodes with that frequency are full
    whose = (
        f"the control plane ({names(bringing)}), which is kept cordoned"
        if reserved
        else f"{names(bringing)}, where this VM cannot run ({names(dict.fromkeys(why))})"
    )
    of = "virt-handler" if by_label else "such a label"
    reason = f"{begin}. It takes the lowest one of the nodes with {of}, that of {whose}. {_STAYS}"
    if not reserved and not all(cause.startswith("taint ") for cause in why):
        return Problem(reason, typed(fixed or f"let it run there and {_AGAIN}", command), _CAUSE)
    ended, labelled = _without_handler(bringing, by_label)
    ways = "; or ".join(filter(None, (fixed, ended, tsc.undemanded(vmi))))
    return Problem(reason, typed(ways, command or labelled), _CAUSE)


def _without_handler(bringing: Sequence[str], by_label: bool) -> tuple[str, str]:
    """Return what takes nodes that no VM may use out of the choice of a TSC frequency: words and
    the command.
    """
    label = (f"{SCHEDULABLE}=false", "--overwrite") if by_label else (f"{tsc.TSC_FREQUENCY}-",)
    labelled = shell("kubectl", "label", "nodes", *map(argument, bringing), *label)
    later = "label them"
    if not by_label:
        later = (
            f"update KubeVirt to {Feature.TSC_OF_SCHEDULABLE.since} or later, or remove their "
            f"label {tsc.TSC_FREQUENCY}"
        )
    end = f"end virt-handler on {names(bringing)} (nodePlacement of its workloads)"
    return f"{end}, then {later}, and {_AGAIN}", labelled


def _minimum(frequency: int, cluster: Cluster) -> tuple[str, str]:
    """Return how to set the lowest TSC frequency, with the command.

    HyperConverged writes KubeVirt, and has no such field.
    """
    found = configuration.known_or_none(configuration.kubevirt, cluster)
    known = configuration.known_or_none(configuration.hyperconverged, cluster) is not None
    if known or (found is not None and is_managed(found)):
        return "", ""
    words = f"set {_MINIMUM} of KubeVirt to {frequency} and {_AGAIN}"
    if found is None or may_be_managed(found, cluster):
        return f"if no HyperConverged writes KubeVirt, {words}", ""
    data = {
        "spec": {
            "configuration": {"developerConfiguration": {"minimumClusterTSCFrequency": frequency}}
        }
    }
    return words, merge_patch(KUBEVIRT, found.name, found.namespace, data)


def _is_set(frequency: int | None, cluster: Cluster) -> bool:
    try:
        return configuration.minimum_tsc_frequency(cluster) == frequency
    except Unseen:
        return False


_AGAIN: Final = "stop and start the VM"
_MINIMUM: Final = "minimumClusterTSCFrequency (spec.configuration.developerConfiguration)"
_CAUSE: Final = ProblemCause.NO_TARGET


# --- all others -----------------------------------------------------------------------------------


def _awaited(refusals: Mapping[str, str], cluster: Cluster) -> Problem | None:
    """Return that only control-plane nodes are left, and the next node does not come; None:
    that is not so.
    """
    if not refusals or not all(why in _CONTROL_PLANE for why in refusals.values()):
        return None
    found = owed_nodes.first(cluster)
    if found is None:
        return None
    begin = "only control-plane nodes are left, and the next node does not come: "
    return Problem(f"{begin}{found.reason}", found.remedy, ProblemCause.NO_TARGET)


_CONTROL_PLANE: Final = frozenset(f"taint {key}" for key in nodes.CONTROL_PLANE)
_ENDS: Final[Mapping[str, str]] = {
    ProblemCause.NO_ROOM: "It starts by itself once there is room",
    ProblemCause.NO_NODE_READY: "It starts by itself once that node is ready",
}
PASSES: Final = (*_ENDS.values(), _ONCE_READY, _ENDS_WITH_STORAGE, _STAYS)
"""How a reason ends that passes or stays without the VM being started again."""


def _other(
    target: SchedulingTarget, refusals: Mapping[str, str], cluster: Cluster, pod: Object | None
) -> Problem | None:
    found = no_target.reason(target, cluster, moves=False, starts=True)
    if found is None:
        return None
    if (
        found.cause == ProblemCause.NO_TARGET
        and (awaited := _awaited(refusals, cluster)) is not None
    ):
        return awaited
    reason = found.reason.replace("no other node", "no node", 1)
    ends = _ENDS.get(found.cause, _STAYS)
    unscaled, tried = scale_ups.refused(pod, cluster), scale_ups.tried(pod, cluster)
    if tried is not None:
        reason = f"{reason}. {capital(tried.words)}"
        ends = _STAYS if found.cause == ProblemCause.NO_ROOM else ends
    if unscaled is not None:
        reason = f"{reason}. {capital(unscaled.reason)}"
        if found.cause != ProblemCause.NO_ROOM or found.command:
            return Problem(f"{reason}. {ends}", typed(found.remedy, found.command), found.cause)
        remedy = f"{unscaled.remedy}; or {found.remedy}" if unscaled.remedy else found.remedy
        return Problem(f"{reason}. {_STAYS}", typed(remedy, unscaled.command), found.cause)
    lacks_room = found.cause == ProblemCause.NO_ROOM and tried is None and unscaled is None
    coming = scale_ups.coming(pod, cluster) if lacks_room else None
    if coming is not None:
        remedy = typed(coming.remedy, coming.command)
        return coming._replace(reason=f"{coming.reason}. {ends}", remedy=remedy)
    remedy = typed(found.remedy, found.command)
    if tried is not None and not found.command and found.cause == ProblemCause.NO_ROOM:
        remedy = typed(tried.remedy or scale_ups.SEE_WHY, scale_ups.SHOWN, f"or {found.remedy}")
    return Problem(f"{reason}. {ends}", remedy, found.cause, brief=found.brief)
