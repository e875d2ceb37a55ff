"""Controllers that update nodes, and of which no pod is ready: no node is updated meanwhile.

OpenShift: machine-config-controller gives each node of a pool its next configuration, and the
machine-config-daemon of a node drains it and applies that. Cluster API: capi-controller-manager
replaces the Machines, whose providers make their hosts and the data with which these join.
Harvester: its controller writes Plans that load the images, charts that Fleet applies, and the
release that Rancher then installs. Sources: openshift/machine-config-operator:
docs/MachineConfigController.md, :docs/MachineConfigDaemon.md;
kubernetes-sigs/cluster-api:config/manager/manager.yaml, :bootstrap/kubeadm/config;
rancher/system-upgrade-controller:manifests/system-upgrade-controller.yaml;
harvester/harvester:pkg/controller/master/upgrade/upgrade_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from virt_admit.forecasts.placement.components import broken_pods, node_pods
from virt_admit.forecasts.placement.components.controllers import stopped_workloads
from virt_admit.forecasts.upgrade import harvester_waits
from virt_admit.forecasts.upgrade.pool_obstacles import Obstacle
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, entry
from virt_admit.model.kubernetes.kinds import CAPI_CLUSTER, KUBEADM, MACHINE_DEPLOYMENT
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import capital, names
from virt_admit.model.node_updates import (
    harvester_upgrades,
    plan_progress,
    rancher_updates,
    updaters,
)
from virt_admit.model.node_updates.operators import paused_clusters
from virt_admit.model.problems import ProblemCause, ProblemId

TEMPLATES: Final = ("bootstrap.configRef", "infrastructureRef")
"""The fields in the template of a Machine that name what its providers make."""
READS: Final[Reads] = union(
    stopped_workloads.READS,
    harvester_waits.READS,
    updaters.READS,
    rancher_updates.READS,
    {
        MACHINE_DEPLOYMENT: (
            "metadata.labels",
            "spec.clusterName",
            *(f"spec.template.spec.{each}.kind" for each in TEMPLATES),
        ),
        KUBEADM: ("metadata.labels", "metadata.ownerReferences", "spec.machineTemplate"),
    },
)
_BY_DRIVER: Final[Mapping[str, str]] = {
    "machineconfig": "machine-config-controller",
    "cluster-api": "capi-controller-manager",
}
"""The Deployment of each driver of ``virt-admit upgrade --by``."""
_OF_RELEASES: Final = ("cluster-version-operator", "machine-config-operator")
_OF_PLANS: Final = "system-upgrade-controller"
_OF_HARVESTER: Final = ("harvester", "rancher", "fleet-controller", _OF_PLANS)
"""What an upgrade of Harvester needs; Fleet's agent may be in several namespaces. While it changes
its charts, it restarts them itself."""
_AT_NODES: Final = _OF_HARVESTER[:2]
"""Those that it needs when images and charts are there."""
_ALONE: Final = ("harvester", _OF_PLANS)
"""The same on a single node, where Rancher drains nothing."""
_PROVIDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "KubeadmConfigTemplate": ("capi-kubeadm-bootstrap-controller-manager",),
    "RKE2ConfigTemplate": ("rke2-bootstrap-controller-manager",),
    "TalosConfigTemplate": ("cabpt-controller-manager",),
    "KThreesConfigTemplate": ("capi-k3s-bootstrap-controller-manager",),
    "Metal3MachineTemplate": (
        *("capm3-controller-manager", "baremetal-operator-controller-manager"),
    ),
    "VSphereMachineTemplate": ("capv-controller-manager",),
    "OpenStackMachineTemplate": ("capo-controller-manager",),
    "KubevirtMachineTemplate": ("capk-controller-manager",),
    "ProxmoxMachineTemplate": ("capmox-controller-manager",),
    "TinkerbellMachineTemplate": ("capt-controller-manager",),
    "AWSMachineTemplate": ("capa-controller-manager",),
    "AzureMachineTemplate": ("capz-controller-manager",),
}
"""The Deployments of the providers of Cluster API, by the kind that they read."""
_DAEMON: Final = "machine-config-daemon"


def controller(driver: str, cluster: Cluster) -> Obstacle | None:
    """Return that no pod of what updates the nodes is ready, or that it is scaled to 0; None: one
    is, or it is not known.

    Where it runs in several namespaces, as in a cluster with hosted ones, nothing is said.
    """
    names = _names(driver, cluster)
    return next(
        filter(None, (_stopped(each, "no node is updated", cluster) for each in names)), None
    )


def unread(driver: str, cluster: Cluster) -> Iterator[Unseen]:
    """Yield what could not be read, so that what updates the nodes may be scaled to 0."""
    found = (stopped_workloads.unread((each,), cluster) for each in _names(driver, cluster))
    if what := next(filter(None, found), ""):
        yield Unseen(what)


def _names(driver: str, cluster: Cluster) -> list[str]:
    """Return the Deployments that update the nodes, as far as they are known."""
    return [_BY_DRIVER[driver]] if driver in _BY_DRIVER else _others(cluster)


def _others(cluster: Cluster) -> list[str]:
    """Return what updates nodes that no pool has: a Plan, or Harvester."""
    plans = [_OF_PLANS] if plan_progress.at_once(cluster).plan else []
    if not harvester_waits.is_harvester(cluster) or rancher_updates.restarts_controllers(cluster):
        return plans
    needed = _AT_NODES if harvester_upgrades.is_at_nodes(cluster) else _OF_HARVESTER
    is_single = nodes.only_of_harvester(cluster)
    return [each for each in needed if not is_single or each in _ALONE]


def of_deployment(deployment: Object, cluster: Cluster) -> Iterator[Obstacle]:
    """Yield that a provider does not work that makes the Machines of a MachineDeployment: in the
    same words for all of its Cluster that need it, as it is one cause."""
    of_cluster = paused_clusters.cluster_of(deployment)
    for name in _providers(deployment):
        which = entry(cluster, _by_provider, (of_cluster, name)) if of_cluster[1] else None
        effect = f"{which or _get([deployment], ())} no new node"
        if (found := _stopped(name, effect, cluster)) is not None:
            yield found


@cached
def _by_provider(cluster: Cluster) -> Mapping[tuple[tuple[str, str], str], str]:
    """Return the MachineDeployments and control planes of a Cluster that a provider makes Machines
    for, in words, by both.
    """
    found: dict[tuple[tuple[str, str], str], list[Object]] = {}
    for each in sorted(cluster.known(MACHINE_DEPLOYMENT), key=lambda each: each.full_name):
        for name in _providers(each):
            found.setdefault((paused_clusters.cluster_of(each), name), []).append(each)
    planes = _control_planes(cluster)
    return {
        (of, name): _get(own, [each for each in planes.get(of, ()) if name in _made_by(each)])
        for (of, name), own in found.items()
    }


def _get(own: Sequence[Object], planes: Sequence[Object]) -> str:
    """Return ``MachineDeployments a/md-0, a/md-1 and KubeadmControlPlane a/cp get``."""
    several = "s" if len(own) > 1 else ""
    words = f"{MACHINE_DEPLOYMENT.kind}{several} {names((each.full_name for each in own), 120)}"
    words += "".join(f" and {each.kind} {each.full_name}" for each in planes)
    return f"{words} {'get' if several or planes else 'gets'}"


def _providers(deployment: Object) -> list[str]:
    """Return the Deployments that make what the template of a MachineDeployment names."""
    template = deployment.at("spec", "template", "spec")
    kinds = (template.at(*each.split("."), "kind").text or "" for each in TEMPLATES)
    return [name for kind in kinds for name in _PROVIDERS.get(kind, ())]


def _made_by(plane: Object) -> tuple[str, ...]:
    """Return the same of a KubeadmControlPlane (api/controlplane/kubeadm/v1beta2
    #KubeadmControlPlaneMachineTemplate: one level deeper than in v1beta1)."""
    template = plane.at("spec", "machineTemplate")
    found = (template.at(*each, "infrastructureRef", "kind").text for each in ((), ("spec",)))
    kind = next(filter(None, found), "")
    return (*_PROVIDERS["KubeadmConfigTemplate"], *_PROVIDERS.get(kind, ()))


def _control_planes(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    """Return the known control planes by their Cluster, which owns them."""
    return grouped(sorted(cluster.known(KUBEADM), key=lambda each: each.full_name), _cluster_of)


def _cluster_of(plane: Object) -> tuple[str, str]:
    namespace, labelled = paused_clusters.cluster_of(plane)
    return namespace, plane.owned_by(CAPI_CLUSTER.kind) or labelled


def doubt(cluster: Cluster) -> str:
    """Return that what brings another release of OpenShift to the nodes does not run; empty: it
    does, that is not known, or a roll-out is under way, which machine-config-controller goes on
    with alone."""
    if any(pool.in_flight for pool in updaters.config_pools(cluster)):
        return ""
    effect = "whether another release reaches the nodes (a changed MachineConfig does)"
    found = (_stopped(name, effect, cluster) for name in _OF_RELEASES)
    down = next(filter(None, found), None)
    return f"{down.reason}. {down.remedy}" if down is not None else ""


def _stopped(name: str, effect: str, cluster: Cluster) -> Obstacle | None:
    stopped = stopped_workloads.of_one(name, cluster)
    if stopped is None:
        return None
    place = ProblemId(ProblemCause.COMPONENT, stopped.namespace, name)
    return Obstacle(f"{effect}, as {stopped.named(name)}", stopped.remedy, place)


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
