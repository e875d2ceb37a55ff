"""Why a pool of nodes is not updated, besides what its own updater says.

Harvester waits until every attached volume is healthy (harvester/harvester:package/upgrade/upgrade_node.sh
#wait_longhorn_engines, skipped on one and on two nodes), or until its administrator resumes it. No control-plane node is
rebooted while the others would be too few for etcd.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from virt_admit.forecasts.drain import pod_evictions
from virt_admit.forecasts.drain.pod_evictions import Blocker
from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, argument, shell, typed
from virt_admit.model.kubernetes import node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.messages import count, names
from virt_admit.model.node_updates import config_pool_updates, machine_rollouts
from virt_admit.model.problems import ProblemCause, ProblemId, problem_of
from virt_admit.model.remediation import control_plane, machine_starts, machines
from virt_admit.model.remediation.control_plane import RebootRisk


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a pool is not updated at all."""

    reason: str
    remedy: str
    problem: ProblemId | None = None
    drained: tuple[str, ...] = ()
    """Nodes that another operator drains first."""


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """A node whose update has failed, so that its updater does not go on with it."""

    node: str
    reason: str
    remedy: str
    problem: ProblemId


READS: Final[Reads] = union(control_plane.READS, node_health.READS, pod_evictions.READS)


def silent(nodes: Iterable[Object], cluster: Cluster) -> Iterator[NodeFailure]:
    """Yield the nodes that nothing can update, as their kubelets do not report.

    One with VMs, or with pods that a drain evicts, stops an upgrade by its drain already.
    """
    occupied = vmis.occupied(cluster)
    for node in nodes:
        problem = problem_of(ProblemCause.NODE_SILENT, node)
        why = node_health.silent_for(node.name, cluster)
        if why and all(each.id != problem for each in _blockers(node.name, occupied, cluster)):
            remedy = typed("Repair or fence the node, or delete its Node", about("describe", node, NODE))
            yield NodeFailure(node.name, f"it {why}, so nothing can update it", remedy, problem)


def _blockers(name: str, occupied: Collection[str], cluster: Cluster) -> Sequence[Blocker]:
    return pod_evictions.of_node(cluster, name, has_vms=name in occupied).blockers


def without_quorum(nodes: Iterable[str], coming_back: Collection[str], cluster: Cluster) -> Iterator[Obstacle]:
    """Yield why these nodes are not updated: the reboot of a control-plane node among them would stop the API.

    Args:
        nodes: those whose update has not begun.
        coming_back: those that are being updated.
        cluster: the cluster.
    """
    for risk in _reboot_risks(nodes, coming_back, cluster):
        if risk.certain:
            yield Obstacle(risk.reason, risk.remedy, risk.problem)


def quorum_doubts(nodes: Iterable[str], coming_back: Collection[str], cluster: Cluster) -> Iterator[str]:
    """Yield that the reboot of one of these nodes may stop the API."""
    doubts = [risk for risk in _reboot_risks(nodes, coming_back, cluster) if not risk.certain]
    yield from (f"{risk.reason}. {risk.remedy}" for risk in doubts[:1])


def _reboot_risks(nodes: Iterable[str], coming_back: Collection[str], cluster: Cluster) -> Iterator[RebootRisk]:
    yield from filter(None, (control_plane.reboot_risk(name, cluster, coming_back) for name in nodes))


def end_of_absence(pool: Object, nodes: Sequence[Object]) -> str:
    """Return what makes nodes that are cordoned or not Ready candidates of a MachineConfigPool again.

    Such a node takes a place of maxUnavailable and gets no other configuration, whatever the limit is.
    Source: openshift/machine-config-operator:pkg/controller/node/node_controller.go#getAllCandidateMachines.
    """
    cordoned = [node.name for node in nodes if node.at("spec", "unschedulable").boolean]
    broken = [node for node in nodes if node.name not in cordoned]
    if not broken:
        return typed("Uncordon them", shell("kubectl", "uncordon", *map(argument, cordoned)))
    target = config_pool_updates.target(pool, nodes)
    old = [node.name for node in broken if node.annotations.get(config_pool_updates.DESIRED, target) != target]
    repair = f"Repair {names(node.name for node in broken)}" + (f", and uncordon {names(cordoned)}" * bool(cordoned))
    if not old or not target:
        return typed(repair, shell("kubectl", "describe", "node", argument(broken[0].name)))
    setting = f"{config_pool_updates.DESIRED}={argument(target)}"
    command = shell("kubectl", "annotate", "node", *map(argument, old), setting, "--overwrite")
    why = f"if its configuration keeps {names(old)} from being Ready, give it that of the pool"
    return typed(f"{repair}; {why}", command)


def without_machine(deployment: Object, cluster: Cluster) -> Iterator[Obstacle]:
    """Yield why a MachineDeployment deletes no old Machine: the new one does not become a Node."""
    found = machine_rollouts.held(deployment, cluster)
    if found is not None:
        why, machine = found.waits_for.why, found.waits_for.machine
        missing = f"{count(found.unavailable, 'node')} may be missing meanwhile, set maxSurge 0 and maxUnavailable"
        yield Obstacle(
            f"{why}. MachineDeployment {deployment.full_name} deletes no old Machine before that one is available",
            typed(
                f"Provide what it waits for. If {missing} {found.unavailable} instead, which deletes an old Machine first",
                about("describe", machine, CAPI_MACHINE),
            ),
            problem_of(ProblemCause.MACHINE_WAITS, machine),
        )


def machine_doubts(nodes: Collection[str], cluster: Cluster) -> Iterator[str]:
    """Yield which Machines of the same Cluster do not become Nodes, so that the next ones may not either."""
    own = (each for each in cluster.known(CAPI_MACHINE) if machine_nodes.node_name(each, cluster) in nodes)
    clusters = {_cluster(machine) for machine in own}
    waiting = [each for each in machine_starts.overdue(cluster) if _cluster(each.machine) in clusters]
    yield from (f"{each.why}. See: {about('describe', each.machine, CAPI_MACHINE)}" for each in waiting[:1])


def _cluster(machine: Object) -> tuple[str, str | None]:
    return machine.namespace, machine.label(machines.CAPI_CLUSTER_LABEL).text
