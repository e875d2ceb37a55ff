"""Where the VMs of a cluster could go just now: kube-scheduler's filters over launcher pods.

Every statement has three answers. A node refuses a VM for a reason that is certain, or it accepts
it after everything was read, or it is undetermined because something could not be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from virt_admit.forecasts.placement import network_reach, running_launchers, scheduler_reads
from virt_admit.forecasts.placement.network_reach import NetworkReach
from virt_admit.forecasts.placement.running_launchers import launchers
from virt_admit.model.kubernetes.cluster import (
    Cluster,
    Unseen,
    cached,
    check_time,
    each,
    gather,
    more_may_exist,
    unlisted,
)
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NAMESPACE, NODE, POD, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, union
from virt_admit.model.kubernetes.workloads import CONTAINERS
from virt_admit.model.kubevirt.instances import expand as effective_module
from virt_admit.model.kubevirt.instances import networks as instance_networks
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.kubevirt.instances.expand import expand
from virt_admit.model.kubevirt.instances.networks import NodeLabel
from virt_admit.model.kubevirt.launcher import (
    hotplugs,
    launcher_pod,
    launcher_resources,
    left_selectors,
    migration_target,
)
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.lookups import find, keep_of, once
from virt_admit.model.messages import names
from virt_admit.model.scheduler import pod_size, search_cost, volumes
from virt_admit.model.scheduler.filters import FilterPipeline
from virt_admit.model.scheduler.pod_placement import Placement
from virt_admit.model.scheduler.pod_size import PodSize
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.preemption import HIGHEST, LOWEST, Preemption
from virt_admit.model.scheduler.resources import Resources, is_sized, pod_requests
from virt_admit.model.scheduler.snapshot import Node, SchedulerSnapshot, read_node

_RESIZED: Final = ("allocatedResources", "resources.requests")

READS: Final = union(
    effective_module.READS,
    launcher_resources.READS,
    left_selectors.READS,
    left_selectors.AIMED_READS,
    network_reach.READS,
    vmis.READS,
    volumes.READS,
    {
        NODE: (
            *("metadata.labels", "spec.unschedulable", "spec.taints", "status.allocatable"),
            *CONDITIONS,
        ),
        POD: (
            "metadata.labels",
            "metadata.ownerReferences",
            "spec.affinity",
            "spec.containers.name",
            "spec.containers.resources",
            "spec.initContainers.name",
            "spec.initContainers.resources",
            "spec.initContainers.restartPolicy",
            "spec.nodeName",
            "spec.nodeSelector",
            "spec.overhead",
            "spec.preemptionPolicy",
            "spec.priority",
            "spec.resources.requests",
            "spec.tolerations",
            "spec.topologySpreadConstraints",
            "spec.volumes.persistentVolumeClaim.claimName",
            *(f"status.{field}" for field in _RESIZED),
            *(f"status.{kind}.{field}" for kind in CONTAINERS for field in ("name", *_RESIZED)),
            "status.phase",
        ),
        NAMESPACE: ("metadata.labels", "metadata.annotations.openshift.io/node-selector"),
        VMI: ("metadata.uid", "spec", "status.machine.type", "status.topologyHints.tscFrequency"),
    },
)
"""The fields that decide where the VMs of a cluster could go."""


# --- the state that kube-scheduler would see ------------------------------------------------------


def scheduler(cluster: Cluster) -> FilterPipeline:
    """Return kube-scheduler's filters over the cluster as it is now."""
    return cluster.cached(whole_scheduler)


def whole_scheduler(cluster: Cluster) -> FilterPipeline:
    """Read the scheduler's state from all pods of a cluster.

    Use ``scheduler``, which remembers it.
    """
    read = cluster.cached(_read_state)
    bound = [pod.with_most(read.most_terms) for pod in read.bound]
    state = SchedulerSnapshot.of(read.nodes, bound, read.namespaces)
    return FilterPipeline(
        state,
        scheduler_reads.volumes_of(cluster),
        read.unseen,
        read.complete,
        most_terms=read.most_terms,
        unread_namespaces=unlisted(cluster, NAMESPACE),
    )


class _ReadState(NamedTuple):
    """What kube-scheduler's filters are made of. Most changes of pods and VMIs leave it equal."""

    nodes: Sequence[Node]
    complete: bool
    bound: Sequence[Pod]
    unseen: tuple[str, ...]
    namespaces: Mapping[str, Mapping[str, str]]
    """Their labels. ``_unseen_of`` says if there are more."""
    most_terms: int


def _read_state(cluster: Cluster) -> _ReadState:
    nodes = each(cluster, NODE, read_node)
    bound = [pod for pod in each(cluster, POD, scheduler_reads.bound) if pod is not None]
    unseen = unlisted(cluster, POD)
    if not unseen:
        computed, unseen = gather(_of_vmis_without_pod(cluster))
        bound += computed
    moving = [pod for pod in each(cluster, VMI, scheduler_reads.moving) if pod is not None]
    namespaces = {item.name: item.labels for item in cluster.known(NAMESPACE)}
    most = search_cost.most_terms(bound, moving, len(nodes))
    return _ReadState(
        nodes, not unlisted(cluster, NODE), bound, (unseen,) if unseen else (), namespaces, most
    )


def _of_vmis_without_pod(cluster: Cluster) -> Iterator[Pod]:
    """Yield a pod for each running VMI that has none in the snapshot,
    with the requests that KubeVirt computes.

    Raises:
        Unseen: after the others, if there may be more, or what decides on the requests of some
            could not be read.
    """
    placed = set(filter(None, each(cluster, POD, running_launchers.place)))
    unseen = unlisted(cluster, VMI)
    for place in filter(None, each(cluster, VMI, _place)):
        if place not in placed:
            check_time()
            namespace, name, node = place
            vmi = cluster.get(VMI, namespace, name)
            if vmi is None:  # impossible: it is one of those that were listed
                continue
            given = expand(vmi, cluster)
            blind = next(launcher_resources.unseen(given, cluster), "")
            if blind:
                unseen = unseen or blind
                continue
            requests = launcher_resources.pod(given, cluster).requests
            unknown = LOWEST if given.spec["priorityClassName"].text else 0
            yield replace(
                launcher_pod.fresh_pod(given, cluster, requests), node=node, priority=unknown
            )
    if unseen:
        raise Unseen(unseen)


def _place(vmi: Object) -> running_launchers.Place | None:
    """Return where a VMI runs that has not ended."""
    found = vmis.on_its_node(vmi)
    return None if found is None else (vms.namespace_of(vmi), vmi.name, found[0])


def _most_terms(cluster: Cluster) -> int:
    """Return how many affinity terms of one pod are searched. It rarely changes with the pods."""
    return scheduler(cluster).most_terms


@cached
def preemption(cluster: Cluster) -> Preemption:
    """Return what kube-scheduler's preemption could do in the cluster as it is now."""
    return Preemption(scheduler(cluster))


# --- one VMI --------------------------------------------------------------------------------------


def pod_to_place(vmi: Object, cluster: Cluster, *, moves: bool) -> Pod:
    """Return the pod for which a running VMI needs a place when its node is drained.

    ``moves``: the target pod of a migration, which the source node's processor binds; else a fresh
    pod, after the source pod is gone. The requests are those of the running pod where it can be
    seen, else as KubeVirt computes them.
    """
    given = expand(vmi, cluster)
    running = launchers(cluster).on_node(vmi)
    fresh = launcher_pod.fresh_pod(given, cluster, requests(vmi, cluster)).with_most(
        cluster.cached(_most_terms)
    )
    pod = _prioritized(fresh, vmi, running)
    if not moves:
        pod = launcher_pod.restarted(pod, given)
        return left_selectors.without(pod, vmi, cluster).with_few_demands()
    pod = left_selectors.after_migration(pod, vmi, cluster)
    selected = running.at("spec", "nodeSelector").texts if running is not None else {}
    host_model = launcher_pod.uses_host_model(given, cluster)
    source = _source_labels(vmi, cluster)
    demanded = tuple(
        migration_target.labels(source, selected, pod.node_selector, cluster, host_model=host_model)
    )
    return replace(
        pod,
        node_selector={**pod.node_selector, **{key: value for key, value, _ in demanded}},
        meanings={**pod.meanings, **{key: words for key, _, words in demanded}},
    ).with_few_demands()


def _prioritized(pod: Pod, vmi: Object, running: Object | None) -> Pod:
    """Return the pod with the priority of the running one: KubeVirt gives both the same class.

    PriorityClasses are not read. So the priority of a class is not known without the running pod,
    and may be the highest.
    """
    spec = running["spec"] if running is not None else Field(None)
    priority = spec["priority"].integer
    if priority is None:
        priority = HIGHEST if vmi.at("spec", "priorityClassName").text else 0
    never = spec["preemptionPolicy"].text == "Never"
    return replace(pod, priority=priority, never_preempts=never) if priority or never else pod


def _source_labels(vmi: Object, cluster: Cluster) -> Mapping[str, str]:
    """Return the labels of the node that the VMI runs on; none where it cannot be read
    (``_unseen_of`` says so).
    """
    source = find(cluster, NODE, "", vmi.at("status", "nodeName").text)
    return source.labels if source is not None else {}


def requests(vmi: Object, cluster: Cluster) -> Resources:
    """Return what the next launcher pod of a VMI requests: what the running one does,
    else as KubeVirt computes.

    After a hotplug the next pod is larger than the running one.
    """
    return once(_requests, vmi, cluster)


def _requests(vmi: Object, cluster: Cluster) -> Resources:
    running = launchers(cluster).on_node(vmi)
    if running is None:
        return launcher_resources.pod(expand(vmi, cluster), cluster).requests
    found = pod_requests(running["spec"], running["status"])
    if not vmis.is_resized(vmi):
        return found
    larger = launcher_resources.pod(expand(vmi, cluster), cluster).requests
    return {name: max(found.get(name, 0), larger.get(name, 0)) for name in {**found, **larger}}


def new_pod(vmi: Object, cluster: Cluster) -> PodSize:
    """Return the size of a second launcher pod: as the running one's, else as KubeVirt computes."""
    running = launchers(cluster).on_node(vmi)
    if running is not None and not vmis.is_resized(vmi):
        return pod_size.read(running["spec"])
    return launcher_resources.pod(expand(vmi, cluster), cluster)


def unseen_size(vmi: Object, cluster: Cluster) -> str:
    """Return what could not be read although the requests of the launcher pod rest on it; empty:
    they are certain.
    """
    known = launchers(cluster)
    if known.on_node(vmi) is not None and not vmis.is_resized(vmi):
        return ""
    return known.unseen or next(launcher_resources.unseen(expand(vmi, cluster), cluster), "")


class SchedulingTarget(NamedTuple):
    """The pod for which a VMI needs a place, and the nodes on which it would be schedulable now."""

    pod: Pod
    placement: Placement
    gone: tuple[Pod, ...] = ()
    """Pods that have ended when this one starts."""


class VmiDemand(NamedTuple):
    """What a VMI needs of its next node. No other node, and no other VMI, has a part in it."""

    pod: Pod
    """With the labels of the networks that kube-scheduler is told of."""
    networks: NetworkReach
    attached: tuple[str, ...]
    """The claims of its hotplugged volumes, which kube-scheduler does not know."""
    unseen: tuple[str, ...]
    """What could not be read although it may add to the demands of the pod."""
    sized: bool
    """Whether the requests of the pod are known."""
    attaching: list[Any] | None = None
    """The tolerations of the pod that attaches them; None: as those of the launcher pod."""


def demand(vmi: Object, cluster: Cluster, *, moves: bool) -> VmiDemand:
    """Return what a VMI needs of its next node, as a migration's target pod or as a fresh pod."""
    networks = network_reach.of(vmi, launchers(cluster).on_node(vmi), cluster)
    pod = _demanding(pod_to_place(vmi, cluster, moves=moves), networks.enforced)
    if fault := instance_networks.fault(vmi, cluster):
        pod = replace(pod, fault=fault)
    unseen = (*_unseen_of(vmi, pod, cluster, moves=moves), *networks.unseen)
    attached = hotplugs.awaited_claims(vmi, cluster, moves=moves)
    sized = not unseen_size(vmi, cluster)
    waits = bool(attached) and moves  # a start waits for the launcher pod alone
    second = running_launchers.attachment_tolerations(vmi, cluster) if waits else None
    return VmiDemand(pod, networks, attached, unseen, sized, second)


def _kept_demand(vmi: Object, cluster: Cluster, moves: bool) -> VmiDemand:
    return keep_of(
        cluster, VMI, vmi, (demand, moves), lambda vmi, cluster: demand(vmi, cluster, moves=moves)
    )


def target(
    vmi: Object, cluster: Cluster, *, moves: bool, preemptor: Preemption | None = None
) -> SchedulingTarget:
    """Return where a running VMI of the cluster could go, without its own node.

    While a migration runs its source pod still counts: for room, anti-affinity and topology spread.
    A VMI that is shut down first has none.

    ``preemptor``: kube-scheduler over another state than that of the cluster now, such as after a
    loss of nodes.
    """
    return placed(vmi, _kept_demand(vmi, cluster, moves), cluster, moves=moves, preemptor=preemptor)


def placed(
    vmi: Object,
    needed: VmiDemand,
    cluster: Cluster,
    *,
    moves: bool,
    preemptor: Preemption | None = None,
) -> SchedulingTarget:
    """Return where a VMI with this demand could go, as ``target`` does.

    The VMI need not be one of the cluster.
    """
    pod, networks = needed.pod, needed.networks
    here = vmi.at("status", "nodeName").text or ""
    preemptor = preemptor or preemption(cluster)
    filters = preemptor.scheduler
    gone = () if moves else own_pods(vmi, filters.state.pods.get(here, ()))
    placement = filters.place(pod, without=here, gone=gone)
    unseen = needed.unseen
    if networks.ignored:
        demanding = _demanding(pod, networks.ignored)
        reached = filters.place(demanding, without=here, gone=gone)
        unseen += tuple(network_reach.chosen(placement, reached, names(networks.networks)))
        # else it goes where it cannot be reached
        if reached.candidates or not placement.candidates:
            pod, placement = demanding, reached
    if needed.attached:
        launched, claims = placement, (*pod.claims, *needed.attached)
        pod = replace(pod, claims=claims, attachment_tolerations=needed.attaching)
        placement = filters.place(pod, without=here, gone=gone)
        if placement.candidates:
            unseen += tuple(network_reach.chosen(launched, placement, "the hotplugged volumes"))
    if not needed.sized:
        placement = replace(placement, guessed=True)
    if lost := _unlabelled(vmi, pod, placement, filters):
        kept = {key: value for key, value in pod.node_selector.items() if key not in lost}
        pod = replace(pod, node_selector=kept)
        placement = filters.place(pod, without=here, gone=gone)
        if placement.candidates:  # else they refuse it for another reason as well
            unseen += tuple(
                f"{OFFERED}{pod.meanings.get(key, key)}: not even {here}, on which it runs, has "
                f"label {key}"
                for key in lost
            )
    placement = preemptor.weigh(pod, placement, gone)
    return SchedulingTarget(
        pod, replace(placement, unseen=(*placement.unseen, *unseen)) if unseen else placement, gone
    )


OFFERED: Final = "whether another node offers "
"""How the sentence begins that names what no node is labelled with, although a VM runs with it."""


def _unlabelled(
    vmi: Object, pod: Pod, placement: Placement, filters: FilterPipeline
) -> tuple[str, ...]:
    if placement.has_candidate:
        return ()
    every = {name: node.labels for name, node in filters.state.nodes.items()}
    return migration_target.unlabelled(vmi, pod.node_selector, every)


class FreshPod(NamedTuple):
    """The pod with which a VMI starts again after its old one is gone."""

    pod: Pod
    unseen: tuple[str, ...]
    """What could not be read although it may add to the demands of the pod."""
    sized: bool
    """Whether its requests are known."""
    plain: bool
    """Whether all that decides on its nodes is in the pod. Else ``target`` tells more."""


def fresh(vmi: Object, cluster: Cluster) -> FreshPod:
    """Return the pod with which a running VMI starts again, without looking at any node."""
    found = _kept_demand(vmi, cluster, moves=False)
    plain = found.sized and not (found.networks.ignored or found.attached)
    return FreshPod(found.pod, found.unseen, found.sized, plain)


def _demanding(pod: Pod, labels: Sequence[NodeLabel]) -> Pod:
    """Return the pod with node labels that its networks demand."""
    return replace(
        pod,
        node_selector={**pod.node_selector, **{label.key: label.value for label in labels}},
        meanings={**pod.meanings, **{label.key: label.words for label in labels}},
    )


def own_pods(vmi: Object, pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return those of some pods that are launcher pods of a VMI."""
    namespace, name, uid = vms.namespace_of(vmi), vmi.name, vmi.metadata["uid"].text
    return tuple(
        pod
        for pod in pods
        if pod.namespace == namespace
        and (
            pod.labels.get(launcher_pod.NAME) == name
            or (uid and pod.labels.get(launcher_pod.CREATED_BY) == uid)
        )
    )


def _unseen_of(vmi: Object, pod: Pod, cluster: Cluster, *, moves: bool) -> Iterable[str]:
    """Yield what could not be read although it may add to the pod's demands."""
    source = [(NODE, vmi.at("status", "nodeName").text or "")] if moves else []
    for kind, name in ((NAMESPACE, pod.namespace), *source):
        try:
            cluster.get(kind, "", name)
        except Unseen as unseen:
            yield unseen.what
    if pod.unsearched:
        yield from (unread.what for unread in more_may_exist(cluster, NAMESPACE))
    # dynamic resource allocation: no ResourceSlices are read
    for claim in vmi.at("spec", "resourceClaims").items():
        yield f"the nodes with devices for resource claim {claim['name'].text}"
    given = expand(vmi, cluster)
    running = launchers(cluster).on_node(vmi)
    if running is None or vmis.is_resized(vmi):
        yield from launcher_resources.unseen(given, cluster)
    if running is None:
        return
    if not is_sized(running["spec"]):
        yield f"the requests of pod {running.full_name}, which are not quantities"
    yield from given.unseen
    if configuration.is_unread(cluster):  # its node selectors and CPU model count for every pod
        yield str(KUBEVIRT)
