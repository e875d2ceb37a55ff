"""What an upgrade of Harvester waits for before it drains a node: its image,
and volumes that are not healthy.

Sources: harvester/harvester:package/upgrade/upgrade_node.sh#wait_longhorn_engines (skipped on one
and on two nodes), :pkg/controller/master/upgrade/upgrade_controller.go#OnChanged,
:pkg/image/cdi/cdi.go#Initialize (the data volume has the name of the image);
kubevirt/containerized-data-importer:pkg/controller/datavolume/conditions.go#updateRunningCondition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.upgrade.pool_obstacles import Obstacle
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, more_may_exist, unlisted
from virt_admit.model.kubernetes.kinds import (
    DATA_VOLUME,
    FLEET_BUNDLE,
    HARVESTER_UPGRADE,
    LONGHORN_VOLUME,
    MANAGED_CHART,
    NODE,
    RANCHER_CLUSTER,
    UPGRADE_PLAN,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.messages import cut, names
from virt_admit.model.node_updates import harvester_upgrades
from virt_admit.model.node_updates.node_phases import PoolUpdate
from virt_admit.model.node_updates.rancher import managed_charts
from virt_admit.model.problems import ProblemCause, problem_of

_MANAGED: Final = "harvesterhci.io/managed"

READS: Final[Reads] = {
    NODE: (f"metadata.labels.{_MANAGED}",),
    LONGHORN_VOLUME: ("spec.numberOfReplicas", "status.state", "status.robustness", *CONDITIONS),
    HARVESTER_UPGRADE: ("status",),
    DATA_VOLUME: ("status.phase", "status.restartCount", *CONDITIONS),
}

_FEW: Final = 2
"""Nodes up to which Harvester does not wait: one of them is away, so volumes are degraded."""
_USUAL: Final = timedelta(hours=1)
"""A download with a usual speed is over by then: an image has some 7 GB."""
_RESTARTS: Final = 10
"""From then on the kubelet waits five minutes before each further one:
the importer has failed for half an hour.
"""


def unread(upgrades: Collection[str], cluster: Cluster) -> Iterator[Unseen]:
    """Yield what may stop an upgrade of Harvester and cannot be determined.

    Args:
        upgrades: the names of those that are under way.
        cluster: the cluster.
    """
    if _waits_for_volumes(cluster):
        yield from more_may_exist(cluster, LONGHORN_VOLUME)
    if any(each.name in upgrades for kind in _RESUME for each in cluster.known(kind)):
        for kind in (RANCHER_CLUSTER, FLEET_BUNDLE, MANAGED_CHART):
            yield from more_may_exist(cluster, kind)
    # one of them refuses an upgrade
    if not upgrades and any(map(_is_managed, cluster.known(NODE))):
        yield from more_may_exist(cluster, MANAGED_CHART)
    known = {upgrade.name for upgrade, _ in _failing(upgrades, cluster)}
    known |= {each.order.name for each in managed_charts.standing(cluster)}
    for upgrade in _starting(upgrades, cluster):
        if upgrade.name not in known:
            yield from _stage_unknown(upgrade, cluster)


def _stage_unknown(upgrade: Object, cluster: Cluster) -> Iterator[Unseen]:
    stage, since = harvester_upgrades.stage(upgrade)
    if vm_states_times.is_older(since, _USUAL, cluster):
        said = cut(upgrade.condition(stage)["message"].text or "", 200)
        words = f" ({said})" if said else ""
        age = vm_states_times.age(since, cluster)
        yield Unseen(
            f"when {_title(upgrade)} goes on: its condition {stage} has not been True for "
            f"{age}{words}"
        )
        return
    try:
        _image(upgrade, cluster)
    except Unseen as blind:
        yield blind


def obstacles(begun: Sequence[PoolUpdate], cluster: Cluster) -> Iterator[Obstacle]:
    """Yield why Harvester updates no further node."""
    yield from _paused(begun, cluster)
    yield from _without_image(begun, cluster)
    yield from _held_by_volumes(cluster)


def _without_image(begun: Sequence[PoolUpdate], cluster: Cluster) -> Iterator[Obstacle]:
    for upgrade, image in _failing([pool.name for pool in begun], cluster):
        said, restarts = image.condition("Running"), image.at("status", "restartCount").integer or 0
        words = cut(said["message"].text or said["reason"].text or "no reason is given", 200)
        yield Obstacle(
            f"{_title(upgrade)} waits for its image, whose import has failed {restarts} times: "
            f"{words}",
            typed(
                "Remove the cause that the importer reports", about("describe", image, DATA_VOLUME)
            ),
            problem_of(ProblemCause.IMAGE_FAILS, upgrade),
        )


def _failing(upgrades: Collection[str], cluster: Cluster) -> Iterator[tuple[Object, Object]]:
    """Yield the upgrades with these names whose image cannot be imported, and its data volume, as
    far as that is known.
    """
    for upgrade in _starting(upgrades, cluster):
        try:
            image = _image(upgrade, cluster)
        except Unseen:
            continue
        if image is None or image.at("status", "phase").text == "Succeeded":
            continue
        restarts = image.at("status", "restartCount").integer or 0
        if restarts >= _RESTARTS and image.condition("Running")["status"].text == "False":
            yield upgrade, image


def _starting(upgrades: Collection[str], cluster: Cluster) -> list[Object]:
    """Return the upgrades that wait for something before their nodes."""
    found = (each for each in cluster.known(HARVESTER_UPGRADE) if each.name in upgrades)
    return [each for each in found if harvester_upgrades.stage(each)[0]]


def _image(upgrade: Object, cluster: Cluster) -> Object | None:
    namespace, _, name = (upgrade.at("status", "imageID").text or "").partition("/")
    return cluster.get(DATA_VOLUME, namespace, name) if name else None


def _title(upgrade: Object) -> str:
    return f"{HARVESTER_UPGRADE.kind} {upgrade.name}"


def _waits_for_volumes(cluster: Cluster) -> bool:
    return sum(map(_is_managed, cluster.known(NODE))) > _FEW


def only_node(cluster: Cluster) -> str:
    """Return the only node of a Harvester cluster; empty: there are more, or that is not known.

    Its upgrade drains nothing: it stops all VMs, and waits until they have ended. Source:
    harvester/harvester:package/upgrade/upgrade_node.sh#command_single_node_upgrade.
    """
    nodes = cluster.known(NODE)
    only = len(nodes) == 1 and _is_managed(nodes[0]) and not unlisted(cluster, NODE)
    return nodes[0].name if only else ""


def _is_managed(node: Object) -> bool:
    return node.labels.get(_MANAGED) == "true"


def _is_stuck(volume: Object) -> bool:
    status = volume["status"]
    degraded = status["state"].text == "attached" and status["robustness"].text == "degraded"
    return degraded and volume.condition("Scheduled")["status"].text == "False"


def _held_by_volumes(cluster: Cluster) -> Iterator[Obstacle]:
    """Yield why Harvester drains no node: it waits for volumes that do not become healthy by
    themselves.
    """
    stuck = filter(_is_stuck, cluster.known(LONGHORN_VOLUME)) if _waits_for_volumes(cluster) else ()
    for volume in list(stuck)[:1]:
        replicas = volume.at("spec", "numberOfReplicas").integer or 0
        yield Obstacle(
            f"Longhorn volume {volume.name} stays degraded: no node takes the last of its "
            f"{replicas} replicas, and Harvester drains no node before every volume is healthy",
            typed(
                "Give Longhorn a further node or disk for it, or set numberOfReplicas to the "
                "number of nodes with disks",
                about("edit", volume, LONGHORN_VOLUME),
            ),
            problem_of(ProblemCause.VOLUME_DEGRADED, volume),
        )


def _paused(begun: Sequence[PoolUpdate], cluster: Cluster) -> Iterator[Obstacle]:
    """Yield why the upgrade of Harvester waits for its administrator (upgrade-config:
    nodeUpgradeOption.strategy).
    """
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
    HARVESTER_UPGRADE: (
        "Resume the node on the page of the upgrade, or write unpause for it into the annotation "
        "harvesterhci.io/node-upgrade-pause-map"
    ),
}
"""What resumes an upgrade of each kind."""
