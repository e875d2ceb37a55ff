"""Upgrades of Harvester whose image does not come, as the pod that is to import it cannot start.

Sources: harvester/harvester:pkg/controller/master/upgrade/upgrade_controller.go#OnChanged,
:pkg/image/cdi/cdi.go#Initialize (the data volume has the name of the image),
https://github.com/harvester/harvester/issues/11125.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.starts import unfinished_disks
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import DATA_VOLUME
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital
from virt_admit.model.node_updates import harvester_upgrades, update_orders
from virt_admit.model.node_updates.update_orders import StandingOrder
from virt_admit.model.problems import Problem

READS: Final[Reads] = union(harvester_upgrades.READS, unfinished_disks.READS)
_LATE: Final = timedelta(minutes=15)
"""CDI begins to import within some minutes."""


def image(upgrade: Object, cluster: Cluster) -> Object | None:
    """Return the data volume of the image of an upgrade; None: it is not known, or has none."""
    namespace, name = harvester_upgrades.image(upgrade)
    return find(cluster, DATA_VOLUME, namespace, name)


def standing(cluster: Cluster) -> Iterator[StandingOrder]:
    """Yield the upgrade that waits for an image that CDI cannot begin to import.

    One whose import fails again and again is told of by ``harvester_waits``.
    """
    for upgrade in harvester_upgrades.starting(cluster):
        disk = image(upgrade, cluster)
        if disk is None or disk.at("status", "restartCount").integer:
            continue
        sure = unfinished_disks.failing(disk, cluster)
        found = sure or _doubt(disk, cluster)
        if found is not None:
            stands = f"waits{clock.lasts(clock.age(disk, cluster))} for its image"
            why = found.reason.removeprefix(f"its disk {disk.name} ")
            stands = stands if sure is not None else f"goes on: it {stands}"
            reason = f"{update_orders.title(upgrade)} {stands}, which {why}"
            brief = f"it {stands}: {found.brief or why}"
            yield StandingOrder(upgrade, reason, capital(found.remedy), sure is not None, brief)


def _doubt(disk: Object, cluster: Cluster) -> Problem | None:
    """Return why CDI may not begin to fill a disk; None: it works on it, or has just begun."""
    begun = (disk.at("status", "phase").text or "").endswith(("InProgress", "Paused", "Succeeded"))
    if begun or not clock.has_lasted(disk.created, _LATE, cluster):
        return None
    try:
        return unfinished_disks.of_disk(disk, disk, cluster)
    except Unseen:
        return None
