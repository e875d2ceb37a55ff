"""What KubeVirt needs to move the VMs of a node: virt-api,
virt-controller and webhooks that fail closed.

Components decide. The conditions of the KubeVirt object say something else than their names: a
healthy update is Degraded, and one virt-handler that is not Ready, as on any node that reboots,
makes it not Available. So that object decides only where the components cannot be read. A component
of which nothing is known although everything was read is not judged: such a snapshot does not
describe the control plane. Sources:
kubevirt/kubevirt:pkg/virt-operator/resource/generate/components/webhooks.go,
:…/components/deployments.go, :pkg/virt-operator/util/readycheck.go,
:pkg/virt-operator/util/client.go#UpdateConditionsUpdating.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.budgets import evicted_pods
from virt_admit.forecasts.drain.budgets.drain_obstacles import Blocker
from virt_admit.forecasts.drain.control import denied_evictions, webhook_reach
from virt_admit.forecasts.drain.control.hindrances import Hindrance, leaves_with
from virt_admit.forecasts.drain.pod_evictions import PodEvictions
from virt_admit.forecasts.placement import virt_handlers
from virt_admit.forecasts.placement.components import broken_pods, cluster_controllers
from virt_admit.forecasts.placement.components.controllers import stopped_workloads
from virt_admit.forecasts.remediation import awaited_return
from virt_admit.model.commands import shell
from virt_admit.model.kubernetes import (
    node_health,
    nodes,
    service_endpoints,
    webhook_bundles,
    webhook_requests,
)
from virt_admit.model.kubernetes.cluster import (
    Cluster,
    Unseen,
    each,
    entry,
    keep,
    more_may_exist,
    unlisted,
)
from virt_admit.model.kubernetes.kinds import (
    API_SERVICE,
    DEPLOYMENT,
    KUBEVIRT,
    POD,
    SERVICE,
    VALIDATING_CONFIGURATION,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.settings import configuration, removed_operators, versions
from virt_admit.model.kubevirt.settings.removed_operators import RemovedProduct
from virt_admit.model.messages import sentence
from virt_admit.model.problems import Problem

READS: Final[Reads] = union(
    webhook_reach.READS,
    denied_evictions.READS,
    cluster_controllers.READS,
    cluster_controllers.LEASE_READS,
    virt_handlers.READS,
    awaited_return.READS,
    removed_operators.READS,
    stopped_workloads.READS,
    {
        API_SERVICE: (*CONDITIONS, "status.conditions.message"),
        DEPLOYMENT: ("status.readyReplicas",),
    },
)

API: Final = "virt-api"
CONTROLLER: Final = "virt-controller"
HANDLER: Final = "virt-handler"

_FAILS_CLOSED: Final = versions.Version(1, 5)
"""Since this release the API server refuses to evict virt-launcher pods if the webhook on evictions
does not answer. Before, a budget for each VM protected it.
"""


@dataclass(frozen=True, slots=True)
class Component:
    """One part of the control path, and whether it works for a drain of the node."""

    component: str
    healthy: bool | None
    reason: str = ""
    """Empty: it works."""
    remedy: str = ""


class ControlPath(NamedTuple):
    """The control path as a drain of one node needs it."""

    components: tuple[Component, ...]
    hindrances: tuple[Hindrance, ...]


class _State(NamedTuple):
    """What is known of a component in the whole cluster."""

    component: str
    problem: str
    """Why it does not work now; empty: it does."""
    remedy: str
    pods: tuple[Object, ...]
    """Its ready pods. Empty: not known."""
    namespace: str


def of_node(cluster: Cluster, node: str) -> ControlPath:
    """Return the control path as a drain of the node needs it, as far as it is known.

    Never raises.
    """
    removed = removed_operators.kubevirt(cluster)
    if removed is not None:
        return _without_kubevirt(removed, node, cluster)
    found: list[Hindrance] = []
    components: list[Component] = []
    for name in (API, CONTROLLER):
        state = cluster.cached(_STATES[name])
        if isinstance(state, str):
            components.append(
                Component(name, None, f"cannot see {state}", "let virt-admit read it")
            )
            found.append(Hindrance.unread(name, state))
        elif state is not None:
            hindrance = _hindrance(state, node, cluster)
            components.append(
                Component(
                    name,
                    not state.problem,
                    *((hindrance.reason, hindrance.remedy) if hindrance else ()),
                )
            )
            found += [hindrance] if hindrance else []
    handler = _handler(cluster, node)
    if handler is not None:
        components.append(handler)
        stops = bool(virt_handlers.repair(cluster, node))
        own = virt_handlers.pod(cluster, node) if stops else None
        place = (own.namespace, own.name) if own is not None else ("", "")
        found.append(
            Hindrance(
                HANDLER, POD.kind, *place, reason=handler.reason, remedy=handler.remedy, stops=stops
            )
        )
    found += (*_without_controller(cluster), *_unscheduled(cluster))
    found += _refusing(node, cluster, frozenset(_judged_services(cluster)))
    return ControlPath(tuple(components), tuple(found))


def _refusing(
    node: str, cluster: Cluster, judged: frozenset[tuple[str, str]]
) -> Iterator[Hindrance]:
    """Yield the webhooks that do not answer, and what else refuses evictions of a node now."""
    silent = list(webhook_reach.hindrances(cluster, node, without=judged))
    yield from silent
    named = {(each.kind, each.name) for each in silent if each.evictions and each.stops}
    for found in denied_evictions.of_node(node, cluster):
        if (found.hindrance.kind, found.hindrance.name) not in named:
            yield found.hindrance


def _without_kubevirt(removed: RemovedProduct, node: str, cluster: Cluster) -> ControlPath:
    """Return the control path without KubeVirt: its removal is the one cause of all VMs, which
    their forecasts tell.
    """
    return ControlPath((), tuple(_refusing(node, cluster, frozenset(removed.services))))


def of_migrations(cluster: Cluster, node: str) -> tuple[Hindrance, ...]:
    """Return the webhooks that keep the VMs of a node from a migration without a drain."""
    judged = frozenset(_judged_services(cluster))
    kept = webhook_reach.hindrances(cluster, node, without=judged, drains=False)
    return (*_unscheduled(cluster), *kept)


def of_starts(cluster: Cluster) -> Problem | None:
    """Return why no VM has started for minutes, on whichever node: nothing makes its pod, or gives
    it a node; None: nothing says so.
    """
    kept = (*_without_controller(cluster), *_unscheduled(cluster))
    return next((Problem(each.reason, each.remedy) for each in kept), None)


def _without_controller(cluster: Cluster) -> Iterator[Hindrance]:
    """Yield that nothing makes the pod of a VM that is to start again."""
    state = cluster.cached(_STATES[CONTROLLER])
    pods = cluster.cached(_components).pods.get(CONTROLLER, ())
    if isinstance(state, _State) and state.problem and broken_pods.all_down(pods, cluster):
        why = f"{state.problem}, so KubeVirt starts no VM"
        yield Hindrance(CONTROLLER, reason=why, remedy=state.remedy, stops=True, starts=True)


def _unscheduled(cluster: Cluster) -> Iterator[Hindrance]:
    """Yield that no pod gets a node: no target of a migration, and no VM that starts again."""
    name = cluster_controllers.SCHEDULER
    down = cluster_controllers.places_none(cluster)
    if down is not None and down.id is not None:
        made = Hindrance(
            name,
            POD.kind,
            down.id.namespace,
            down.id.name,
            reason=down.reason,
            remedy=down.remedy,
            stops=True,
        )
        yield made
        yield replace(made, starts=True)


def _judged_services(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield the Service of virt-api where virt-api is judged already: its webhooks fail with it."""
    state = cluster.cached(_api)
    if isinstance(state, _State):
        yield state.namespace, API


def _hindrance(state: _State, node: str, cluster: Cluster) -> Hindrance | None:
    """Return how a component keeps the VMs of a node from leaving; None: it does not."""
    evictions = state.component == API and versions.has_release(cluster, _FAILS_CLOSED)
    made = Hindrance(
        state.component, DEPLOYMENT.kind, state.namespace, state.component, evictions=evictions
    )
    if state.problem:
        effect = "evictions of VMs fail" if evictions else "no migration starts or ends"
        return replace(
            made, reason=f"{state.problem}, so {effect}", remedy=state.remedy, stops=True, now=True
        )
    if not state.pods or any(pod.at("spec", "nodeName").text != node for pod in state.pods):
        return None
    if cluster.cached(nodes.single) == node:
        # nothing migrates, and VMs that are shut down are evicted together with it: see
        # `leaves_too`
        return None
    unseen = cluster.cached(_components).unseen_pods
    if unseen:  # it may have pods on other nodes
        return Hindrance.unread(state.component, unseen)
    label = f"kubevirt.io={state.component}"
    return leaves_with(made, state.pods, node, label, cluster)


def leaves_too(node: str, cluster: Cluster) -> Iterator[str]:
    """Yield that virt-api leaves the only node together with the VMs.

    kubectl requests all evictions at once, and virt-api answers for 5 seconds more when its pod
    ends, so VMs that are shut down are usually evicted in time. kubectl repeats no eviction that
    fails for lack of an answer. Sources: kubernetes/kubectl:pkg/drain/drain.go#evictPods;
    kubevirt/kubevirt:pkg/virt-api/api.go#startTLS.
    """
    state = cluster.cached(_api)
    if cluster.cached(nodes.single) != node or not isinstance(state, _State) or state.problem:
        return
    if not versions.has_release(cluster, _FAILS_CLOSED) or _is_left_out(state.namespace, cluster):
        return
    if state.pods and all(pod.at("spec", "nodeName").text == node for pod in state.pods):
        yield (
            "virt-api is evicted together with the VMs, so the eviction of a VM may fail (failed "
            "calling webhook), and a repeated drain evicts virt-api again. Shut the VMs down "
            f"first; if it has failed, uncordon {node} and wait until virt-api is Ready before "
            "that."
        )


def _is_left_out(namespace: str, cluster: Cluster) -> bool:
    """Return whether evictions go on without an answer of virt-api: its webhook is read and has
    ``failurePolicy: Ignore``.
    """
    return any(
        webhook["failurePolicy"].text == "Ignore"
        and webhook_requests.intercepts(webhook, webhook_reach.EVICTION)
        and webhook_requests.asked(webhook) == (namespace, API)
        for configuration in cluster.known(VALIDATING_CONFIGURATION)
        for webhook in configuration["webhooks"].items()
    )


# --- one component --------------------------------------------------------------------------------


def _api(cluster: Cluster) -> _State | str | None:
    state = _read(API, cluster)
    if (
        isinstance(state, _State)
        and not state.problem
        and (expired := _expired_certificate(cluster))
    ):
        # virt-operator takes a roll-out of its Deployment back
        of_api = f"kubevirt.io={API}"
        restart = shell("kubectl", "delete", "pods", "-l", of_api, "-n", state.namespace)
        return state._replace(
            problem=expired, remedy=f"Let virt-api load its new certificate: {restart}"
        )
    return state


def _expired_certificate(cluster: Cluster) -> str:
    """Return that virt-api serves an expired certificate, also to webhooks; empty:
    the API server does not say so.
    """
    for found in cluster.known(API_SERVICE):
        if found.name.endswith(SUBRESOURCES) and (expired := webhook_bundles.served_expired(found)):
            return f"virt-api serves a certificate {expired} (APIService {found.name})"
    return ""


SUBRESOURCES: Final = ".subresources.kubevirt.io"
"""How the names of the APIServices of virt-api end."""


def _controller(cluster: Cluster) -> _State | str | None:
    state = _read(CONTROLLER, cluster)
    if (
        isinstance(state, _State)
        and not state.problem
        and (late := cluster_controllers.lease_age(state.namespace, CONTROLLER, cluster))
        and late > cluster_controllers.RENEWED_WITHIN
    ):
        problem = (
            f"virt-controller has not renewed its Lease for {int(late.total_seconds() // 60)} "
            "minutes"
        )
        return state._replace(problem=problem, remedy=_REPAIR.format(CONTROLLER))
    return state


_STATES: Final = {API: _api, CONTROLLER: _controller}
_REPAIR: Final = "Repair {0}: see the events and the logs of its pods."


def _read(name: str, cluster: Cluster) -> _State | str | None:
    """Return the state of a component; as text what could not be read; None:
    it is not described.
    """
    components = cluster.cached(_components)
    pods = components.pods.get(name, ())
    deployment = components.deployments.get(name)
    namespace = next(
        (each.namespace for each in (*pods, *([deployment] if deployment else ()))),
        components.namespace,
    )
    if name == API and (reached := _endpoints(namespace, cluster)) is not None:
        answering = tuple(pod for pod in pods if pod.name in reached.pods)
        if reached.problem:
            return _failed(
                API, f"virt-api does not answer: {reached.problem}", pods, namespace, cluster
            )
        return _State(name, "", "", answering, namespace)
    ready = tuple(pod for pod in pods if not pod.deleted and pod.is_true("Ready"))
    if ready or (
        deployment is not None and not pods and deployment.at("status", "readyReplicas").integer
    ):
        return _State(name, "", "", ready, namespace)
    unseen = components.unseen_pods or ("" if pods else components.unseen_deployments)
    if unseen:
        return _by_kubevirt(name, unseen, cluster)
    if pods or deployment is not None or components.deployments:
        return _failed(name, f"{name} has no Ready pod", pods, namespace, cluster)
    return None


def _failed(
    name: str, problem: str, pods: Sequence[Object], namespace: str, cluster: Cluster
) -> _State:
    """Return that a component does not work, and why its pods are not ready or do not exist."""
    own = None if pods else cluster.cached(_components).deployments.get(name)
    if own is not None and (stopped := stopped_workloads.of_podless(own, cluster)) is not None:
        return _State(name, f"{problem} ({stopped.words})", stopped.remedy, (), namespace)
    broken = broken_pods.first(pods, cluster)
    if broken is None or not broken.why:
        return _State(name, problem, _REPAIR.format(name), (), namespace)
    return _State(name, f"{problem} ({broken.words})", sentence(broken.remedy), (), namespace)


def _endpoints(namespace: str, cluster: Cluster) -> service_endpoints.Backing | None:
    """Return what answers for virt-api; None: its Service or its endpoints are not known."""
    try:
        known = namespace and cluster.get(SERVICE, namespace, API) is not None
        return service_endpoints.backing(cluster, namespace, API) if known else None
    except Unseen:
        return None


def _by_kubevirt(name: str, unseen: str, cluster: Cluster) -> _State | str | None:
    """Return what the KubeVirt object says of a component that cannot be read; None:
    there is no such object.
    """
    found = configuration.known_or_none(configuration.kubevirt, cluster)
    if found is None or not found.at("status", "conditions").present:
        return None
    said = tuple(found.condition(kind)["status"].text for kind in ("Available", "Progressing"))
    deployed = (found.at("status", "phase").text or _DEPLOYED) == _DEPLOYED
    healthy = (
        said == ("True", "False")
        and deployed
        and found.condition("Synchronized")["status"].text != "False"
    )
    return _State(name, "", "", (), found.namespace) if healthy else f"{name} ({unseen})"


_DEPLOYED: Final = "Deployed"


class _Components(NamedTuple):
    """The pods and Deployments of KubeVirt's components, by the name of the component."""

    pods: Mapping[str, Sequence[Object]]
    deployments: Mapping[str, Object]
    namespace: str
    unseen_pods: str
    unseen_deployments: str


def _components(cluster: Cluster) -> _Components:
    pods: dict[str, list[Object]] = {}
    for pod in filter(None, each(cluster, POD, _of_component)):
        pods.setdefault(pod.labels["kubevirt.io"], []).append(pod)
    deployments = {
        each.name: each for each in cluster.known(DEPLOYMENT) if each.name in (API, CONTROLLER)
    }
    namespaces = [each.namespace for some in pods.values() for each in some]
    namespaces += [each.namespace for each in (*deployments.values(), *cluster.known(KUBEVIRT))]
    blind = next((found.what for found in more_may_exist(cluster, DEPLOYMENT)), "")
    return _Components(pods, deployments, next(iter(namespaces), ""), unlisted(cluster, POD), blind)


def _of_component(pod: Object) -> Object | None:
    """Return the pod if it is one of virt-api or virt-controller that has not ended."""
    return pod if pod.labels.get("kubevirt.io") in _NAMES and not pod.ended else None


_NAMES: Final = frozenset((API, CONTROLLER))


def _handler(cluster: Cluster, node: str) -> Component | None:
    """Return the virt-handler of the node if it does not work; None: it does, or is not known."""
    reason = keep(cluster, (virt_handlers.failure, node), partial(virt_handlers.failure, node=node))
    lost = node_health.silence_now(node, cluster)
    wait = "wait for virt-handler, which sends the VM's memory, or repair it"
    repair = virt_handlers.repair(cluster, node) or wait
    remedy = sentence(awaited_return.advice(node, cluster) if lost else repair)
    return Component(HANDLER, False, reason, remedy) if reason else None


def blocker(hindrance: Hindrance) -> Blocker:
    """Return the entry for one part of the control path that keeps VMs from leaving."""
    place = (hindrance.kind, hindrance.namespace, hindrance.name)
    said = hindrance.reason, hindrance.remedy, hindrance.now
    return Blocker(*place, *said, of_vms=not hindrance.evictions)


def with_webhooks(found: PodEvictions, node: str, cluster: Cluster) -> PodEvictions:
    """Return the evictions of a node with the webhooks that refuse those of ordinary pods,
    as far as known.
    """
    here = entry(cluster, evicted_pods.by_node, node) or ()
    pods = [
        pod
        for pod in here
        if evicted_pods.is_evicted(pod) and not evicted_pods.is_of_vm(pod) and not pod.deleted
    ]
    kept = list(webhook_reach.of_pods(pods, node, cluster))
    named = {(each.kind, each.name) for each in kept if each.stops}
    denied = (each for each in denied_evictions.of_node(node, cluster) if each.others)
    kept += [
        each.hindrance for each in denied if (each.hindrance.kind, each.hindrance.name) not in named
    ]
    blockers = (blocker(each) for each in kept if each.stops)
    unseen = (each.reason for each in kept if not each.stops)
    return replace(found, blockers=(*found.blockers, *blockers), unseen=(*found.unseen, *unseen))
