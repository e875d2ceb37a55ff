"""Controllers that update nodes, and of which no pod is ready: no node is updated meanwhile.

OpenShift: machine-config-controller gives each node of a pool its next configuration, and the
machine-config-daemon of a node drains it and applies that. Cluster API: capi-controller-manager
replaces the Machines. Sources: openshift/machine-config-operator:docs/MachineConfigController.md,
:docs/MachineConfigDaemon.md; kubernetes-sigs/cluster-api:config/manager/manager.yaml;
rancher/system-upgrade-controller:manifests/system-upgrade-controller.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from virt_admit.forecasts.placement.components import broken_pods, node_pods
from virt_admit.forecasts.placement.components.broken_pods import BrokenPod
from virt_admit.forecasts.upgrade.pool_obstacles import Obstacle
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import kinds, workloads
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, POD, STATEFUL_SET
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.messages import capital
from virt_admit.model.node_updates import plan_progress
from virt_admit.model.problems import ProblemCause, ProblemId

READS: Final[Reads] = union(
    node_pods.READS,
    {
        POD: ("metadata.ownerReferences", "status.containerStatuses", *CONDITIONS),
        **dict.fromkeys((DEPLOYMENT, STATEFUL_SET), ("spec.replicas",)),
    },
)
_BY_DRIVER: Final[Mapping[str, str]] = {
    "machineconfig": "machine-config-controller",
    "cluster-api": "capi-controller-manager",
}
"""The Deployment of each driver of ``virt-admit upgrade --by``."""
_OF_PLANS: Final = "system-upgrade-controller"
_DAEMON: Final = "machine-config-daemon"


def controller(driver: str, cluster: Cluster) -> Obstacle | None:
    """Return that no pod of what updates the nodes is ready, or that it is scaled to 0; None: one
    is, or it is not known.

    Where it runs in several namespaces, as in a cluster with hosted ones, nothing is said.
    """
    of_plans = _OF_PLANS if plan_progress.at_once(cluster).plan else ""
    name = _BY_DRIVER.get(driver, of_plans)
    pods = cluster.cached(_of_deployments).get(name, ())
    if not pods and not unlisted(cluster, POD):
        return _stopped(name, cluster)
    if len({pod.namespace for pod in pods}) != 1 or unlisted(cluster, POD):
        return None
    down = broken_pods.none_works(pods, cluster)
    return _obstacle(name, down, "no node is updated") if down is not None else None


def _stopped(name: str, cluster: Cluster) -> Obstacle | None:
    stopped = workloads.scaled_down((name,), cluster)
    if stopped is None:
        return None
    reason = f"no node is updated, as {stopped.kind} {stopped.full_name} is scaled to 0"
    command = about("scale", stopped, kinds.of(stopped) or DEPLOYMENT, "--replicas=1")
    words = "Once what it was stopped for is done, scale it up again"
    place = ProblemId(ProblemCause.COMPONENT, stopped.namespace, name)
    return Obstacle(reason, typed(words, command), place)


def daemon(nodes: Iterable[Object], cluster: Cluster) -> Obstacle | None:
    """Return the first of these nodes whose machine-config-daemon is down; None: none is."""
    for node in nodes:
        own = [each for each in node_pods.of_node(node.name, cluster) if _is_daemon(each)]
        if node.is_true("Ready") and (down := broken_pods.none_works(own, cluster)) is not None:
            return _obstacle(_DAEMON, down, f"{node.name} is not updated", node.name)
    return None


def _obstacle(name: str, down: BrokenPod, effect: str, node: str = "") -> Obstacle:
    place = ProblemId(ProblemCause.COMPONENT, down.pod.namespace, name)
    where = f" on {node}" if node else ""
    reason = f"{effect}, as {name} has no Ready pod{where} ({down.words})"
    return Obstacle(reason, capital(down.remedy), place, node=node)


def _is_daemon(pod: Object) -> bool:
    return node_pods.daemon(pod) == _DAEMON and not pod.deleted and not pod.ended


@cached
def _of_deployments(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the pods of each of the Deployments, by its name."""
    found: dict[str, list[Object]] = {}
    for pod in cluster.known(POD):
        name = node_pods.deployment_of(pod)
        if not pod.ended and (name == _OF_PLANS or name in _BY_DRIVER.values()):
            found.setdefault(name, []).append(pod)
    return found
