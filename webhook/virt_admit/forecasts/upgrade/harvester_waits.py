"""What an upgrade of Harvester waits for before it drains a node: its image, the VM
with its repository, and volumes that are not healthy.

Sources: harvester/harvester:package/upgrade/upgrade_node.sh#wait_longhorn_engines (skipped on one
and on two nodes), :pkg/controller/master/upgrade/upgrade_controller.go#OnChanged,
:upgrade_repo.go#GetVMName (until 1.7), :pkg/image/cdi/cdi.go#Initialize (the data volume has the
name of the image);
kubevirt/containerized-data-importer:pkg/controller/datavolume/conditions.go#updateRunningCondition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.guests import failing_probes
from virt_admit.forecasts.drain.starts import unfinished_disks
from virt_admit.forecasts.drain.states import vm_states_times
from virt_admit.forecasts.placement.components.longhorn import awaited_health, unplaced_replicas
from virt_admit.forecasts.upgrade import pool_obstacles
from virt_admit.forecasts.upgrade.operators import standing_images
from virt_admit.forecasts.upgrade.pool_obstacles import Obstacle
from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock, nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, more_may_exist
from virt_admit.model.kubernetes.kinds import (
    DATA_VOLUME,
    FLEET_BUNDLE,
    HARVESTER_UPGRADE,
    LONGHORN_VOLUME,
    MANAGED_CHART,
    NODE,
    RANCHER_CLUSTER,
    UPGRADE_PLAN,
    VMI,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, cut_middle, names
from virt_admit.model.node_updates import harvester_upgrades
from virt_admit.model.node_updates.node_phases import IN_FLIGHT, PoolUpdate, by_node
from virt_admit.model.problems import ProblemCause, problem_of

READS: Final[Reads] = union(
    failing_probes.READS,
    unfinished_disks.READS,
    unplaced_replicas.READS,
    {NODE: (f"metadata.labels.{nodes.HARVESTER}",), HARVESTER_UPGRADE: ("status",)},
)

_USUAL: Final = timedelta(hours=1)
"""A download with a usual speed is over by then: an image has some 7 GB."""
_SOON: Final = timedelta(minutes=20)
"""Harvester itself gives the pods of its log no longer
(harvester/harvester:pkg/util/peakvalues.go), and CDI has begun with an image by then.
"""
_SHORT: Final = ("LogReady", "Initializing", "RepoCreating", "MetadataPopulating")
_DOWNLOADS: Final = ("ImageReady", "ISODownloading")
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
    if awaited_health.asks(cluster):
        yield from more_may_exist(cluster, LONGHORN_VOLUME)
    if any(each.name in upgrades for kind in _RESUME for each in cluster.known(kind)):
        for kind in (RANCHER_CLUSTER, FLEET_BUNDLE, MANAGED_CHART):
            yield from more_may_exist(cluster, kind)
    # one of them refuses an upgrade
    if not upgrades and is_harvester(cluster):
        yield from more_may_exist(cluster, MANAGED_CHART)
    known = {upgrade.name for upgrade, _ in _failing(upgrades, cluster)}
    known |= {upgrade.name for upgrade, _ in _without_repo(upgrades, cluster)}
    known |= {each.order.name for each in pool_obstacles.standing_orders(cluster)}
    for upgrade in _starting(upgrades, cluster):
        if upgrade.name not in known:
            yield from _stage_unknown(upgrade, cluster)


def before_nodes(cluster: Cluster) -> str:
    """Return what an upgrade of Harvester does before its first node; empty: nothing."""
    for upgrade in harvester_upgrades.starting(cluster):
        since = harvester_upgrades.stage(upgrade)[1]
        lasting = clock.lasts(clock.elapsed(since, cluster))
        waits = f"{harvester_upgrades.waits_for(upgrade)}{lasting}"
        if loads := harvester_upgrades.preloading(upgrade):
            waits = f"it has been loading images onto the nodes{lasting}{loads}"
        return f"{_title(upgrade)} is not at its nodes yet: {waits}"
    return ""


def _stage_unknown(upgrade: Object, cluster: Cluster) -> Iterator[Unseen]:
    stage, since = harvester_upgrades.stage(upgrade)
    if vm_states_times.is_older(since, _patience(upgrade, cluster), cluster):
        said = cut_middle(upgrade.condition(stage)["message"].text or "", 200)
        words = f" ({said})" if said else ""
        age = vm_states_times.age(since, cluster)
        waits = harvester_upgrades.waits_for(upgrade)
        yield Unseen(f"when {_title(upgrade)} goes on: {waits} for {age}{words}")
        return
    namespace, name = harvester_upgrades.image(upgrade)
    try:
        if name:
            cluster.get(DATA_VOLUME, namespace, name)
    except Unseen as blind:
        yield blind


def _patience(upgrade: Object, cluster: Cluster) -> timedelta:
    """Return how long the step of an upgrade before its nodes usually takes at most."""
    stage, disk = harvester_upgrades.stage(upgrade)[0], standing_images.image(upgrade, cluster)
    ended = disk is None or disk.at("status", "phase").text in ("ImportInProgress", "Succeeded")
    short = stage in _SHORT or (stage in _DOWNLOADS and not ended)
    return _SOON if short else _USUAL


def obstacles(begun: Sequence[PoolUpdate], cluster: Cluster) -> Iterator[Obstacle]:
    """Yield why Harvester updates no further node."""
    yield from _paused(begun, cluster)
    yield from _without_image(begun, cluster)
    for _, obstacle in _without_repo([pool.name for pool in begun], cluster):
        yield obstacle
    yield from _held_by_volumes(begun, cluster)


def _without_image(begun: Sequence[PoolUpdate], cluster: Cluster) -> Iterator[Obstacle]:
    for upgrade, image in _failing([pool.name for pool in begun], cluster):
        said, restarts = image.condition("Running"), image.at("status", "restartCount").integer or 0
        words = cut_middle(said["message"].text or said["reason"].text or "no reason is given", 200)
        remedy = typed(
            "remove the cause that the importer reports", about("describe", image, DATA_VOLUME)
        )
        if (found := unfinished_disks.failing(image, cluster)) is not None:
            words, remedy = found.reason.partition(": ")[2], found.remedy
        age = clock.age(image, cluster)
        lasts = f" in {clock.duration(age)}" if age is not None else ""
        yield Obstacle(
            f"{_title(upgrade)} waits for its image, whose import has failed {restarts} times"
            f"{lasts}: {words}",
            capital(remedy),
            problem_of(ProblemCause.IMAGE_FAILS, upgrade),
        )


def _without_repo(upgrades: Collection[str], cluster: Cluster) -> Iterator[tuple[Object, Obstacle]]:
    """Yield the upgrades that wait for the VM with their repository, which is not ready."""
    for upgrade in _starting(upgrades, cluster):
        stage, since = harvester_upgrades.stage(upgrade)
        vmi = find(cluster, VMI, upgrade.namespace, f"upgrade-repo-{upgrade.name}")
        found = failing_probes.problem(vmi, cluster) if vmi is not None else None
        if stage == "RepoReady" and vmi is not None and found is not None:
            reason = (
                f"{_title(upgrade)} waits {vm_states_times.lasting(since, cluster)} for the VM "
                f"with its repository, {vmi.full_name} ({stage}): {found.reason}"
            )
            cause = problem_of(ProblemCause.ORDER_STANDS, upgrade)
            yield upgrade, Obstacle(reason, capital(found.remedy), cause)


def _failing(upgrades: Collection[str], cluster: Cluster) -> Iterator[tuple[Object, Object]]:
    """Yield the upgrades with these names whose image cannot be imported, and its data volume, as
    far as that is known.
    """
    for upgrade in _starting(upgrades, cluster):
        image = standing_images.image(upgrade, cluster)
        if image is None or image.at("status", "phase").text == "Succeeded":
            continue
        restarts = image.at("status", "restartCount").integer or 0
        lasts = restarts >= _RESTARTS or unfinished_disks.killed(image, cluster) is not None
        if lasts and image.condition("Running")["status"].text == "False":
            yield upgrade, image


def _starting(upgrades: Collection[str], cluster: Cluster) -> list[Object]:
    """Return the upgrades with these names that wait for something before their nodes."""
    return [each for each in harvester_upgrades.starting(cluster) if each.name in upgrades]


def _title(upgrade: Object) -> str:
    return f"{upgrade.kind} {upgrade.name}"


def is_harvester(cluster: Cluster) -> bool:
    """Return whether Harvester manages a node."""
    return nodes.has_harvester(cluster)


def _held_by_volumes(begun: Sequence[PoolUpdate], cluster: Cluster) -> Iterator[Obstacle]:
    """Yield why Harvester drains no node: it waits for volumes that do not become healthy by
    themselves. A node that it updates itself takes its replicas again afterwards.
    """
    known = cluster.known(LONGHORN_VOLUME) if awaited_health.asks(cluster) else ()
    updated = {name for name, node in by_node(begun) if node.phase in IN_FLIGHT}
    for volume in known:
        short = unplaced_replicas.of(volume, cluster)
        if short is not None and not short.away & updated:
            yield Obstacle(
                f"Longhorn volume {volume.name} stays degraded: {short.why}. Harvester drains no "
                "node before every volume is healthy",
                capital(short.remedy),
                problem_of(ProblemCause.VOLUME_DEGRADED, volume),
            )
            return


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
