"""Upgrades of Harvester that do not begin, as the pods that are to collect their log do not start.

Harvester labels these pods with the name of the UpgradeLog, and begins once they are ready; later
releases give up after a time limit. Sources: harvester/harvester:pkg/controller/master/upgradelog/
common.go (LabelUpgradeLog), :pkg/controller/master/upgrade/upgrade_controller.go
#checkLogReadyCondition; harvester/harvester#7955.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.placement.components import broken_pods, unpullable_images
from virt_admit.forecasts.upgrade.operators import operand_pods
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import capital, count, names
from virt_admit.model.node_updates import harvester_upgrades, update_orders
from virt_admit.model.node_updates.update_orders import StandingOrder

_LOG: Final = "harvesterhci.io/upgradeLog"
_STAGE: Final = "LogReady"
_USUAL: Final = timedelta(minutes=10)
"""Pods whose images are loaded onto the nodes with a release have started by then."""

READS: Final[Reads] = union(
    harvester_upgrades.READS, operand_pods.READS, {POD: (f"metadata.labels.{_LOG}",)}
)


def standing(cluster: Cluster) -> Iterator[StandingOrder]:
    """Yield the upgrade that waits for pods that do not start."""
    for upgrade in harvester_upgrades.starting(cluster):
        if harvester_upgrades.stage(upgrade)[0] == _STAGE:
            yield from _order(upgrade, cluster)


def _order(upgrade: Object, cluster: Cluster) -> Iterator[StandingOrder]:
    log = upgrade.at("status", "upgradeLog").text
    own = (each for each in cluster.known(POD, upgrade.namespace) if each.labels.get(_LOG) == log)
    late = [each for each in own if clock.has_lasted(each.created, _USUAL, cluster)]
    pods = sorted(late, key=lambda each: each.name) if log else []
    found = [each for pod in pods if (each := broken_pods.of_pod(pod, cluster)) is not None]
    broken = broken_pods.telling(found)
    if broken is None or not broken.why:
        return
    images = sorted({image for each in found for image in unpullable_images.awaited(each.pod)})
    more = f", {count(len(found) - 1, 'other pod')} of it, too" if found[1:] else ""
    lacking = f" (images {names(images, 300)}{more})" if images[1:] or (images and more) else ""
    reason = f"waits for its log (UpgradeLog {log}): {broken.words}{lacking}"
    way = capital(broken.remedy)
    if images:
        label = argument(f"{_LOG}={log}")
        see = shell("kubectl", "get", "pods", "-n", upgrade.namespace, "-l", label, "-o", "wide")
        begin = unpullable_images.maker(broken.pod, cluster)
        words = f"{begin}name images that the nodes have or can pull, or load these onto each node"
        way = typed(capital(words), see)
    title = update_orders.title(upgrade)
    yield StandingOrder(upgrade, f"{title} {reason}", way, True, f"it {reason}")
