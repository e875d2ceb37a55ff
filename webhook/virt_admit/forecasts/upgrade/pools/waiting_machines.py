"""New Machines of a MachineDeployment that do not become Nodes: it deletes no old one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import stalled_machines
from virt_admit.forecasts.remediation import (
    control_plane_deadlocks,
    inactive_reasons,
    machine_notes,
    remediation_steps,
)
from virt_admit.forecasts.upgrade import pool_obstacles
from virt_admit.forecasts.upgrade.pool_obstacles import Obstacle
from virt_admit.model import machine_nodes, machine_pools
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.kinds import (
    BARE_METAL_HOST,
    CAPI_CLUSTER,
    CAPI_MACHINE,
    CAPI_MACHINE_SET,
    CAPI_MHC,
    KUBEADM,
    MACHINE_DEPLOYMENT,
    METAL3_MACHINE_TEMPLATE,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.selectors import Selector
from virt_admit.model.kubernetes.units import format_duration
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import capital, count, names
from virt_admit.model.node_updates import machine_rollouts
from virt_admit.model.node_updates.operators.paused_clusters import cluster_of
from virt_admit.model.problems import ProblemCause, problem_of
from virt_admit.model.remediation import bare_metal, check_scope, machine_starts
from virt_admit.model.remediation.check_scope import WatchedNodes
from virt_admit.model.remediation.health_checks import HealthCheck

READS: Final[Reads] = union(
    stalled_machines.READS,
    machine_starts.SHORT_READS,
    machine_notes.READS,
    bare_metal.HOST_READS,
    bare_metal.SELECTOR_READS,
    {
        CAPI_MHC: (),
        CAPI_MACHINE_SET: ("metadata.labels",),
        KUBEADM: (
            *("spec.machineTemplate", "spec.replicas", "spec.rollout", "spec.rolloutStrategy"),
            *("metadata.labels", "metadata.ownerReferences", "status.replicas"),
        ),
        MACHINE_DEPLOYMENT: ("spec",),
    },
)


def without_machine(deployment: Object, cluster: Cluster) -> Iterator[Obstacle]:
    """Yield why a MachineDeployment deletes no old Machine: the new one does not become a Node."""
    yield from _deadlocked(deployment, cluster)
    yield from stalled(deployment, cluster)
    yield from (each.obstacle for each in _short_starts(deployment, cluster) if each.certain)
    found = machine_rollouts.held(deployment, cluster)
    if found is not None:
        why, machine = found.waits_for.why, found.waits_for.machine
        missing = (
            f"{count(found.unavailable, 'node')} may be missing meanwhile, set maxSurge 0 and "
            "maxUnavailable"
        )
        yield Obstacle(
            f"{why}. MachineDeployment {deployment.full_name} deletes no old Machine before that "
            "one is available",
            typed(
                f"Provide what it waits for. If {missing} {found.unavailable} instead, which "
                "deletes an old Machine first",
                about("describe", machine, CAPI_MACHINE),
            ),
            problem_of(ProblemCause.MACHINE_WAITS, machine),
        )
    else:
        yield from _without_host(deployment, cluster)


def _without_host(deployment: Object, cluster: Cluster) -> Iterator[Obstacle]:
    """Yield that MachineDeployments of bare metal make a new Machine before they delete an old one,
    for which there is no host: the same for all of a namespace whose templates select the same
    hosts, as it is one cause.

    The hosts in use get free only with old Machines. While a roll-out has its surplus Machine, or a
    Machine is being deleted, the next one gets the host of that. Those that Ironic works on would
    be the first to be deleted (kubernetes-sigs/cluster-api:internal/controllers/machinedeployment/
    machinedeployment_rolling.go#cleanupUnhealthyReplicas).
    """
    for found in cluster.cached(_hostless).get(deployment.namespace, ()):
        if deployment.name in found.names or cluster_of(deployment) in found.clusters:
            yield found.obstacle


def _host_doubt(deployments: Sequence[Object], cluster: Cluster) -> Iterator[str]:
    """Yield that it is not known whether there is a host for the next Machine of the first one."""
    for each in deployments:
        if not (_is_metal(each) and _replaces_first(each, cluster)):
            continue
        unseen = unlisted(cluster, BARE_METAL_HOST)
        if not unseen and _selects(cluster)(each) is None:
            unseen = unlisted(cluster, METAL3_MACHINE_TEMPLATE)
        if unseen:
            yield (
                f"whether a BareMetalHost is free for the next Machine of MachineDeployment "
                f"{each.full_name}: {unseen} could not be read"
            )
            return


class _Hostless(NamedTuple):
    """The MachineDeployments and control planes of a namespace whose next Machine gets no host."""

    names: frozenset[str]
    clusters: frozenset[tuple[str, str]]
    """Of the control planes: they are updated before the nodes."""
    obstacle: Obstacle


def _hostless(cluster: Cluster) -> Mapping[str, Sequence[_Hostless]]:
    """Return them by namespace."""
    if unlisted(cluster, CAPI_MACHINE):
        return {}
    metal = grouped(filter(_is_metal, cluster.known(MACHINE_DEPLOYMENT)), _namespace)
    return {each: tuple(_of_namespace(each, own, cluster)) for each, own in metal.items()}


def _of_namespace(namespace: str, every: Sequence[Object], cluster: Cluster) -> Iterator[_Hostless]:
    if any(each.deleted for each in cluster.known(CAPI_MACHINE, namespace)):
        return
    first = sorted((each for each in every if _replaces_first(each, cluster)), key=_key)
    planes = sorted(filter(_is_surging, cluster.known(KUBEADM, namespace)), key=_key)
    if taken := bare_metal.all_taken(namespace, cluster):
        if first:
            yield _without(first, planes, taken, cluster)
        return
    for selector, alike in grouped((*first, *planes), _selects(cluster)).items():
        taken = bare_metal.all_taken(namespace, cluster, selector) if selector is not None else ""
        if taken:
            own = [each for each in alike if each.kind == MACHINE_DEPLOYMENT.kind]
            others = [each for each in alike if each not in own]
            yield _without(own, others, taken, cluster, f" with {selector}")


def _selects(cluster: Cluster) -> Callable[[Object], Selector | None]:
    """Return what tells which hosts the Machines of an object can get; None: that is not known."""

    def of(obj: Object) -> Selector | None:
        name = _infrastructure(obj)["name"].text or ""
        template = find(cluster, METAL3_MACHINE_TEMPLATE, obj.namespace, name)
        return bare_metal.host_selector(template) if template is not None else None

    return of


def _without(
    alike: Sequence[Object],
    planes: Sequence[Object],
    taken: str,
    cluster: Cluster,
    with_labels: str = "",
) -> _Hostless:
    every = (*alike, *planes)
    verb, they = ("makes", "it deletes") if len(every) == 1 else ("make", "they delete")
    plural = f"MachineDeployment{'s' * (len(alike) > 1)} {names(each.full_name for each in alike)}"
    subject = " and ".join(
        (*([plural] if alike else ()), *(f"{each.kind} {each.full_name}" for each in planes))
    )
    limit = "" if planes else " (maxUnavailable 0)"
    busy = [
        f"{each.name} ({_work(each)})" for each in bare_metal.at_work(cluster, every[0].namespace)
    ]
    back = "is" if len(busy) == 1 else "are"
    after = f"once {names(busy, 120)} {back} back and " if busy else ""
    alone = not alike and all(_replicas(each, 1) < _FEWEST for each in planes)
    less = f"set maxSurge 0{' and maxUnavailable 1' if alike else ''}"
    each = " in each" if len(alike) > 1 else ""
    add = f"Add a host{with_labels}"
    way = (
        add
        if alone
        else f"{add}, or, {after}if one node may be missing meanwhile, {less}{each}"
        f"{_of_planes(planes) if alike else ''}"
    )
    kind = MACHINE_DEPLOYMENT if alike else KUBEADM
    obstacle = Obstacle(
        f"{subject} {verb} a new Machine before {they} an old one{limit}, and {taken}",
        typed(way, about("edit", every[0], kind)),
        problem_of(ProblemCause.MACHINE_WAITS, every[0]),
    )
    of = frozenset(map(_cluster_of, () if alike else planes))
    return _Hostless(frozenset(each.name for each in alike), of, obstacle)


def _of_planes(planes: Sequence[Object]) -> str:
    """Return what control planes need, in brackets. Those with fewer Machines cannot be without one
    (controlplane/kubeadm/webhooks/admission/kubeadmcontrolplane.go).
    """
    small = [each for each in planes if _replicas(each, 1) < _FEWEST]
    if not planes:
        return ""
    if not small:
        return " (KubeadmControlPlane: maxSurge 0)"
    many = "maxSurge 0, and " if len(planes) > len(small) else ""
    which = names(each.full_name for each in small)
    return f" (KubeadmControlPlane: {many}{which} needs a further host, as it has few Machines)"


_FEWEST: Final = 3
"""Machines of a control plane that may be scaled in first."""


def _is_metal(deployment: Object) -> bool:
    return (_infrastructure(deployment)["kind"].text or "").startswith(_METAL)


def _infrastructure(obj: Object) -> Field:
    """Return what a MachineDeployment or control plane refers to as the template of its machines
    (api/controlplane/kubeadm/v1beta2: one level deeper than v1beta1).
    """
    spec, ref = obj["spec"], "infrastructureRef"
    template = spec["machineTemplate"]
    ways = (template[ref], template.at("spec", ref), spec.at("template", "spec", ref))
    return next((each for each in ways if each.present), ways[-1])


def _replaces_first(deployment: Object, cluster: Cluster) -> bool:
    """Return whether the next step of a MachineDeployment is a new Machine."""
    total = _replicas(deployment, 0)
    if not total or machine_pools.waits_for_deletions(deployment):
        return False
    surplus = len(machine_rollouts.machines_of(deployment, cluster)) > total
    return not surplus and not machine_pools.may_be_missing(deployment, total)


def _replicas(obj: Object, default: int) -> int:
    number = obj.at("spec", "replicas").integer
    return default if number is None else number


def _namespace(obj: Object) -> str:
    return obj.namespace


def _is_surging(plane: Object) -> bool:
    """Return whether the next step of a control plane of bare metal is a new Machine, as is the
    default (controlplane/kubeadm/controllers/update.go#rollingUpdate).
    """
    surges = (
        plane.at("spec", *each, "rollingUpdate", "maxSurge").value
        for each in (("rolloutStrategy",), ("rollout", "strategy"))
    )
    surplus = (plane.at("status", "replicas").integer or 0) > _replicas(plane, 1)
    return _is_metal(plane) and not surplus and not any(each in (0, "0") for each in surges)


def _cluster_of(plane: Object) -> tuple[str, str]:
    own = plane.owned_by(CAPI_CLUSTER.kind)
    return (plane.namespace, own) if own else cluster_of(plane)


def _work(host: Object) -> str:
    status = host["status"]
    state = status["operationalStatus"].text
    return state if state == bare_metal.SERVICED else status["provisioning"]["state"].text or ""


_METAL: Final = "Metal3"


def stalled(deployment: Object, cluster: Cluster) -> Iterator[Obstacle]:
    """Yield why a Machine of a MachineDeployment does not become a node here,
    whatever the rest of its Machines do.
    """
    for each in stalled_machines.here(cluster):
        if machine_pools.owner_key(each.machine) == _key(deployment):
            problem = problem_of(ProblemCause.MACHINE_WAITS, each.machine)
            yield Obstacle(each.why, capital(each.remedy), problem)


def _deadlocked(deployment: Object, cluster: Cluster) -> Iterator[Obstacle]:
    """Yield that the control plane of the Cluster waits for itself:
    it is updated before the nodes.
    """
    for stuck in control_plane_deadlocks.deadlocks(cluster).values():
        if cluster_of(stuck.machine) == cluster_of(deployment):
            problem = problem_of(ProblemCause.MACHINE_WAITS, stuck.machine)
            yield Obstacle(stuck.reason, capital(stuck.remedy), problem)


class _ShortStart(NamedTuple):
    """A health check that deletes Machines before they can become Nodes, so that a roll-out does
    not get its new ones.
    """

    obstacle: Obstacle
    certain: bool
    """Whether every Machine of which it is known took longer than the check allows, or the check
    has acted on new ones.
    """


def _short_starts(deployment: Object, cluster: Cluster) -> Iterator[_ShortStart]:
    """Yield the health checks that act on the new Machines of a MachineDeployment while these still
    start.
    """
    own = machine_rollouts.machines_of(deployment, cluster)
    status = deployment["status"]
    updated = status["upToDateReplicas"].integer or status["updatedReplicas"].integer or 0
    if any(machine.deleted for machine in own) and updated >= (
        deployment.at("spec", "replicas").integer or 1
    ):
        return  # every new Machine exists, and the old ones go
    mine = {machine.full_name for machine in own}
    for watch in check_scope.watches(cluster, CAPI_MHC).of(deployment.namespace):
        watched = any(machine.full_name in mine for machine in watch.selection.objects)
        if watched and not _is_idle(watch, cluster):
            yield from _short_start(watch.check, deployment, cluster)


def _is_idle(watch: WatchedNodes, cluster: Cluster) -> bool:
    """Return whether a health check certainly deletes nothing until an object is changed."""
    stops = (
        *inactive_reasons.lasting(watch.check, cluster),
        *inactive_reasons.stopped_cluster(watch.check, cluster),
    )
    never = remediation_steps.budget(watch.check, watch.selection).never
    return never or any(isinstance(stop, str) for stop in stops)


def _short_start(check: HealthCheck, deployment: Object, cluster: Cluster) -> Iterator[_ShortStart]:
    try:
        short = machine_starts.short_start(check.obj, cluster)
    except Unseen:  # of Machines or Nodes, without which nothing is known of the roll-out either
        return
    if short is None:
        return
    acts = "acts on" if check.template.present else "deletes"
    sets = {
        each.name
        for each in cluster.known(CAPI_MACHINE_SET)
        if machine_pools.owner_key(each) == _key(deployment)
    }
    undone = machine_starts.undone(check.obj, sets, cluster)
    reason = (
        f"MachineHealthCheck {check.obj.full_name} {acts} each new Machine of "
        f"MachineDeployment {deployment.full_name} in a loop: {short.words}"
    ) + (f". It has done so with {names(undone)}" if undone and not short.seen else "")
    remedy = typed(
        capital(
            f"{short.doubt}set its start-up time-out to {format_duration(short.enough)} or more"
        ),
        about("edit", check.obj, CAPI_MHC),
    )
    found = Obstacle(reason, remedy, problem_of(ProblemCause.START_TOO_SHORT, check.obj))
    yield _ShortStart(found, certain=bool(undone) or (short.certain and not short.seen))


def _key(deployment: Object) -> tuple[str, str]:
    return deployment.namespace, deployment.name


def machine_doubts(nodes: frozenset[str], cluster: Cluster) -> Iterator[str]:
    """Yield what pauses the owners of these nodes for a short time, and which Machines of the same
    Cluster do not become Nodes, so that the next ones may not either.
    """
    by_deployment = machine_pools.of_deployments(cluster)
    rolled = [
        each
        for each in cluster.known(MACHINE_DEPLOYMENT)
        if not nodes.isdisjoint(by_deployment.get(_key(each), ()))
    ]
    paused = (doubt for each in rolled for doubt in pool_obstacles.pause_doubts(each, cluster))
    yield from dict.fromkeys(paused)
    yield from _host_doubt(rolled, cluster)
    found = (
        short for each in rolled for short in _short_starts(each, cluster) if not short.certain
    )
    yield from (f"whether {each.obstacle.reason}. {each.obstacle.remedy}" for each in found)
    own = (
        each
        for each in cluster.known(CAPI_MACHINE)
        if machine_nodes.node_name(each, cluster) in nodes
    )
    clusters = {cluster_of(machine) for machine in own}
    waiting = [
        each for each in machine_starts.overdue(cluster) if cluster_of(each.machine) in clusters
    ]
    yield from (
        f"{each.why}. See: {about('describe', each.machine, CAPI_MACHINE)}" for each in waiting[:1]
    )
