"""Whether the webhook of Harvester refuses an Upgrade now: what passes, or belongs to the start of
each upgrade, comes before its nodes; the rest has to be repaired.

It asks each kubelet for its disk and the API servers for their certificates, too, which no object
shows. ManagedCharts are told by ``managed_charts``, nodes without a Machine by
``machineless_nodes``. Source: harvester/harvester:pkg/webhook/resources/upgrade/validator.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final

from virt_admit.forecasts.drain.control.held_operators import StuckOperator
from virt_admit.forecasts.placement.components.longhorn import awaited_health
from virt_admit.forecasts.upgrade import harvester_waits, pool_obstacles
from virt_admit.forecasts.upgrade.pool_obstacles import Obstacle
from virt_admit.forecasts.upgrade.pools import refusing_parts, refusing_vms
from virt_admit.forecasts.upgrade.pools.refusing_parts import StartRefusal
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, more_may_exist
from virt_admit.model.kubernetes.kinds import (
    CAPI_CLUSTER,
    CAPI_MACHINE,
    HARVESTER_ADDON,
    HARVESTER_BACKUP,
    HARVESTER_SCHEDULE,
    HARVESTER_UPGRADE,
    LONGHORN_VOLUME,
    NODE,
    UPGRADE_PLAN,
    VM,
)
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.messages import capital
from virt_admit.model.node_updates import harvester_upgrades
from virt_admit.model.node_updates.node_phases import PoolUpdate
from virt_admit.model.problems import ProblemCause, problem_of

READS: Final[Reads] = union(refusing_parts.READS, refusing_vms.READS)
_BEGIN: Final = "Harvester refuses to start an upgrade"


def obstacles(told: Collection[str], cluster: Cluster) -> Iterator[Obstacle]:
    """Yield what refuses an Upgrade until it is repaired.

    ``told``: nodes of which it is said already that they are not updated.
    """
    for each in _refusals(cluster):
        if each.certain and not each.until and each.obj.name not in told:
            problem = problem_of(ProblemCause.ORDER_STANDS, each.obj)
            yield Obstacle(f"{_BEGIN} while {each.why}", capital(each.remedy), problem)


def holds(
    begun: Sequence[PoolUpdate], failing: Iterable[Obstacle], cluster: Cluster
) -> Sequence[Obstacle]:
    """Return why an administrator's update of nodes does not begin, or not go on: the first of
    what holds it, then all refusals.
    """
    held = chain(
        harvester_waits.obstacles(begun, cluster),
        pool_obstacles.of_lock(cluster),
        pool_obstacles.of_orders(cluster),
    )
    return (*islice(held, 1), *obstacles({each.node for each in failing}, cluster))


def waits(cluster: Cluster) -> str:
    """Return until when an Upgrade is refused; empty: nothing refuses it that passes, or that an
    administrator does at the start of each upgrade.
    """
    known = [each for each in _refusals(cluster) if each.certain and each.until]
    found = [each.until for each in known if not each.is_step] or [each.until for each in known]
    return f"{_BEGIN} until {', and until '.join(dict.fromkeys(found))}" if found else ""


def follows_maintenance(cluster: Cluster) -> bool:
    """Return whether an upgrade begins only after the maintenance or the reboot of a node, so that
    what moves now has ended by then.
    """
    return any(
        each.until and each.certain and each.obj.kind == NODE.kind for each in _refusals(cluster)
    )


def steps(cluster: Cluster) -> Iterator[StuckOperator]:
    """Yield what an administrator has to do before an upgrade begins: no wait ends it."""
    for each in _refusals(cluster):
        if each.certain and each.is_step:
            own = each.obj
            reason = f"{_BEGIN} until {each.until}"
            words = own.kind, own.namespace, own.name, reason, capital(each.remedy)
            yield StuckOperator(*words, is_step=True)


def lasting(cluster: Cluster) -> Iterator[StartRefusal]:
    """Yield what refuses the release that Harvester offers, and stays until an administrator ends
    it.
    """
    for each in _refusals(cluster) if refusing_parts.offered(cluster) else ():
        if each.certain and (each.is_step or not each.until):
            yield each


def doubts(cluster: Cluster) -> Iterator[str]:
    """Yield what has to be repaired before an Upgrade in some releases."""
    for each in _refusals(cluster):
        if not (each.certain or each.until):
            yield f"whether {_BEGIN} while {each.why}. {capital(each.remedy)}"


def unread(cluster: Cluster) -> Iterator[Unseen]:
    """Yield the kinds of which one object more may have to be repaired before an Upgrade."""
    if _asks(cluster):
        kinds = [HARVESTER_UPGRADE, CAPI_CLUSTER, CAPI_MACHINE]
        kinds += (
            [] if awaited_health.asks(cluster) else [LONGHORN_VOLUME]
        )  # asked by harvester_waits
        release = refusing_parts.release(cluster)
        kinds += [UPGRADE_PLAN] if release is None or release >= _PLANS else []
        kinds += [VM] if refusing_vms.asks_hotplugs(cluster) else []
        yield from chain.from_iterable(more_may_exist(cluster, kind) for kind in kinds)


def rests_on(cluster: Cluster) -> Iterator[str]:
    """Yield what may refuse the start of an upgrade, and was not read or is in no object."""
    if not _asks(cluster):
        return
    yield (
        "what Harvester checks at the start and no object shows: room for 13 GiB of images on the "
        "disk of each node, certificates of RKE2 that are valid for 7 days"
    )
    if refusing_parts.lacks_cluster(cluster):
        yield "Cluster fleet-local/local of Cluster API, which was not found, is Provisioned"
    for each in _refusals(cluster):
        if each.until and not each.certain:
            yield f"other releases or settings of Harvester refuse to start it until {each.until}"
    release = refusing_parts.release(cluster)
    for kind, since in _SINCE.items():
        if (release is None or release >= since) and any(more_may_exist(cluster, kind)):
            yield f"no {kind.kind} that was not read refuses the start of the upgrade"


_SINCE: Final = {
    HARVESTER_BACKUP: refusing_parts.BACKUPS,
    HARVESTER_SCHEDULE: refusing_parts.BACKUPS,
    HARVESTER_ADDON: refusing_parts.ADDONS,
}
"""The kinds that refuse it until something passes, with the first release that asks them."""
_PLANS: Final = Version(1, 8)
"""The first release with UpgradePlans."""


def _asks(cluster: Cluster) -> bool:
    """Return whether an Upgrade is still to be made."""
    begun = any(True for _ in harvester_upgrades.going(cluster)) or cluster.known(UPGRADE_PLAN)
    return harvester_waits.is_harvester(cluster) and not begun


@cached
def _refusals(cluster: Cluster) -> Sequence[StartRefusal]:
    if not _asks(cluster):
        return ()
    return (*refusing_vms.refusals(cluster), *refusing_parts.refusals(cluster))
