"""Controllers that update nodes, and of which no pod is ready: no node is updated meanwhile.

OpenShift: machine-config-controller gives each node of a pool its next configuration, and the
machine-config-daemon of a node drains it and applies that. Cluster API: capi-controller-manager
replaces the Machines. Sources: openshift/machine-config-operator:docs/MachineConfigController.md,
:docs/MachineConfigDaemon.md; kubernetes-sigs/cluster-api:config/manager/manager.yaml;
rancher/system-upgrade-controller:manifests/system-upgrade-controller.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from virt_admit.forecasts.placement.components.controllers import stopped_workloads
from virt_admit.forecasts.placement.components import broken_pods, node_pods
from virt_admit.forecasts.upgrade.pool_obstacles import Obstacle
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.messages import capital
from virt_admit.model.node_updates import plan_progress
from virt_admit.model.problems import ProblemCause, ProblemId

READS: Final = stopped_workloads.READS
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
    name = _name(driver, cluster)
    if len({pod.namespace for pod in stopped_workloads.pods_of((name,), cluster)}) > 1:
        return None
    stopped = stopped_workloads.of((name,), cluster)
    if stopped is None:
        return None
    why = stopped.words if stopped.scaled else f"{name} has no Ready pod ({stopped.words})"
    place = ProblemId(ProblemCause.COMPONENT, stopped.namespace, name)
    return Obstacle(f"no node is updated, as {why}", stopped.remedy, place)


def unread(driver: str, cluster: Cluster) -> Iterator[Unseen]:
    """Yield what could not be read, so that what updates the nodes may be scaled to 0."""
    if what := stopped_workloads.unread(tuple(filter(None, (_name(driver, cluster),))), cluster):
        yield Unseen(what)


def _name(driver: str, cluster: Cluster) -> str:
    """Return the Deployment that updates the nodes; empty: none is known."""
    of_plans = _OF_PLANS if plan_progress.at_once(cluster).plan else ""
    return _BY_DRIVER.get(driver, of_plans)


def daemon(nodes: Iterable[Object], cluster: Cluster) -> Obstacle | None:
    """Return the first of these nodes whose machine-config-daemon is down; None: none is."""
    for node in nodes:
        own = [each for each in node_pods.of_node(node.name, cluster) if _is_daemon(each)]
        if node.is_true("Ready") and (down := broken_pods.none_works(own, cluster)) is not None:
            why = f"{_DAEMON} has no Ready pod on {node.name} ({down.words})"
            place = ProblemId(ProblemCause.COMPONENT, down.pod.namespace, _DAEMON)
            reason = f"{node.name} is not updated, as {why}"
            return Obstacle(reason, capital(down.remedy), place, node=node.name)
    return None


def _is_daemon(pod: Object) -> bool:
    return node_pods.daemon(pod) == _DAEMON and not pod.deleted and not pod.ended
