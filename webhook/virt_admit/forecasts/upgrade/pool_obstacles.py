"""Why a pool of nodes is not updated, besides what its own updater says.

Harvester waits until every attached volume is healthy (harvester/harvester:package/upgrade/upgrade_node.sh
#wait_longhorn_engines, skipped on one and on two nodes), or until its administrator resumes it. No control-plane node is
rebooted while the others would be too few for etcd.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, argument, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, more_may_exist
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, HARVESTER_UPGRADE, LONGHORN_VOLUME, NODE, UPGRADE_PLAN
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.messages import count, names
from virt_admit.model.node_updates import config_pool_updates, machine_rollouts
from virt_admit.model.node_updates.node_phases import PoolUpdate
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


_MANAGED: Final = "harvesterhci.io/managed"

READS: Final[Reads] = union(
    control_plane.READS,
    {
        NODE: (f"metadata.labels.{_MANAGED}",),
        LONGHORN_VOLUME: ("spec.numberOfReplicas", "status.state", "status.robustness", *CONDITIONS),
    },
)

_FEW: Final = 2
"""Nodes up to which Harvester does not wait: one of them is away, so volumes are degraded."""


def unread(cluster: Cluster) -> Iterator[Unseen]:
    """Yield that volumes of a Harvester cluster cannot be read, so that one of them may stop its upgrade."""
    if _waits_for_volumes(cluster):
        yield from more_may_exist(cluster, LONGHORN_VOLUME)


def _waits_for_volumes(cluster: Cluster) -> bool:
    return sum(node.labels.get(_MANAGED) == "true" for node in cluster.known(NODE)) > _FEW


def _is_stuck(volume: Object) -> bool:
    status = volume["status"]
    degraded = status["state"].text == "attached" and status["robustness"].text == "degraded"
    return degraded and volume.condition("Scheduled")["status"].text == "False"


def held_by_volumes(cluster: Cluster) -> Iterator[Obstacle]:
    """Yield why Harvester drains no node: it waits for volumes that do not become healthy by themselves."""
    stuck = filter(_is_stuck, cluster.known(LONGHORN_VOLUME)) if _waits_for_volumes(cluster) else ()
    for volume in list(stuck)[:1]:
        replicas = volume.at("spec", "numberOfReplicas").integer or 0
        yield Obstacle(
            f"Longhorn volume {volume.name} stays degraded: no node takes the last of its {replicas} replicas, and "
            "Harvester drains no node before every volume is healthy",
            typed(
                "Give Longhorn a further node or disk for it, or set numberOfReplicas to the number of nodes with disks",
                about("edit", volume, LONGHORN_VOLUME),
            ),
            problem_of(ProblemCause.VOLUME_DEGRADED, volume),
        )


def paused_by_harvester(begun: Sequence[PoolUpdate], cluster: Cluster) -> Iterator[Obstacle]:
    """Yield why the upgrade of Harvester waits for its administrator (upgrade-config: nodeUpgradeOption.strategy)."""
    paused = {update.name: update.paused for update in begun if update.paused}
    for kind, resume in _RESUME.items():
        for upgrade in cluster.known(kind):
            if upgrade.name in paused:
                yield Obstacle(
                    f"{kind.kind} {upgrade.name} is paused before {names(paused[upgrade.name])}",
                    typed(resume, about("edit", upgrade, kind)),
                    problem_of(ProblemCause.POOL_PAUSED, upgrade),
                )


_RESUME: Final = {
    UPGRADE_PLAN: "Remove the node from spec.nodeUpgradeOption.pauseNodes",
    HARVESTER_UPGRADE: "Resume the node on the page of the upgrade, or write unpause for it into the annotation "
    "harvesterhci.io/node-upgrade-pause-map",
}
"""What resumes an upgrade of each kind."""


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
