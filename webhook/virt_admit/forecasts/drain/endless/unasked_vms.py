"""VMs on a node that an upgrade of Harvester empties, and that nothing asks to leave.

The pre-drain job of the node taints it, on which KubeVirt moves the VMs, and waits for them. It
does so only after the volumes are healthy, so a taint by hand would not let it go on before.
Sources: harvester/harvester:package/upgrade/upgrade_node.sh#command_pre_drain,
:pkg/controller/master/node/node_down_controller.go; kubernetes/apimachinery:
pkg/apis/meta/v1/types.go#ManagedFieldsEntry (the time is that of any field of an entry).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components.longhorn import awaited_health
from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, gather, unlisted
from virt_admit.model.kubernetes.kinds import LONGHORN_VOLUME, NODE, UPGRADE_PLAN, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances.vmis import on_node
from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.model.messages import capital, count, names
from virt_admit.model.node_updates import harvester_upgrades, updaters
from virt_admit.model.node_updates.node_phases import Phase

READS: Final[Reads] = union(
    awaited_health.READS,
    {
        NODE: ("metadata.managedFields", "spec.taints"),
        VMI: ("status.evacuationNodeName", "status.nodeName"),
    },
)
_WIDTH: Final = 120
_HARVESTER: Final = "harvester"
_LASTS: Final = timedelta(minutes=15)
"""The Job taints the node within seconds once it has nothing else to wait for."""


def note(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that Harvester empties a node whose VMs nothing asks to leave."""
    update, key = updaters.of_nodes(cluster).get(node.name), migration_limits.drain_taint(cluster)
    if (
        update is None
        or update.kind not in harvester_upgrades.KINDS
        or update.phase is not Phase.DRAINING
    ):
        return
    left = _left(node, key, cluster)
    if not left:
        return
    title = f"{update.kind} {update.name}"
    mutual = awaited_health.mutual(node, cluster)
    if mutual is not None:
        yield f"{title} waits for {mutual.why}. {mutual.remedy(node.name)}"
        return
    if volumes := awaited(node, cluster):
        yield f"{title} asks no VM of this node to leave before all volumes are healthy: {volumes}"
        return
    begin = (
        f"{title} empties this node, but nothing asks {names(sorted(left), _WIDTH)} to leave: the "
        f"node has no taint {key}"
    )
    if awaited_health.unhealthy(cluster) or unlisted(cluster, LONGHORN_VOLUME):
        yield f"{begin}. It may wait for its volumes first, as its pre-drain job says"
        return
    lost = taken_away(node, update.since, update.kind, cluster)
    if lost is not None:
        yield f"{begin}. {capital(lost.writer)}. {lost.remedy}"
        return
    yield f"{begin}. If that lasts, add it: {_taint(node, key)}"


class LostTaint(NamedTuple):
    """The taint of a drain that Harvester itself has taken away, or may have, so that nothing sets
    it again.
    """

    words: str
    """Who is to leave, and why nothing asks them."""
    writer: str
    """``its taints were written last by manager harvester 51 min ago, after …``."""
    remedy: str
    certain: bool


def taken_away(
    node: Object, since: datetime | None, kind: str, cluster: Cluster
) -> LostTaint | None:
    """Return that a node which is emptied has lost the taint of its drain, or may have; None: it
    has that, a volume may have to be healthy first, or its taints were not last written by
    Harvester, after the drain began and long ago.

    The Job sets the taint once. Harvester's controller of nodes that are down takes it from Ready
    nodes, unless it knows of the upgrade: of an Upgrade in each release that takes the taint, of an
    UpgradePlan only in later ones (harvester/harvester#9595, #10714).

    Harvester may own the taints since an earlier drain, and have written another field since. So
    its last write is certainly one of the taints only where it owns nothing else.

    Args:
        node: the node.
        since: when its Job, or its drain, began.
        kind: the kind of the order that empties it.
        cluster: the cluster.
    """
    key = migration_limits.drain_taint(cluster)
    left = _left(node, key, cluster)
    if not left or since is None or awaited_health.unhealthy(cluster):
        return None
    if unlisted(cluster, LONGHORN_VOLUME) or awaited(node, cluster):
        return None
    last = _last_write(node)
    at = clock.instant(last.time)
    if last.manager != _HARVESTER or at is None or at < since:
        return None
    if not clock.has_lasted(last.time, _LASTS, cluster):
        return None
    certain = last.of_taints_alone and kind == UPGRADE_PLAN.kind
    vms, past = names(sorted(left), _WIDTH), clock.past(last.time, cluster)
    after = "after the drain had begun (managedFields)"
    if certain:
        writer = (
            f"its taints were written last by manager {last.manager}{past}, {after}, and nothing "
            "has set it again"
        )
    else:
        writer = (
            f"manager {last.manager} owns its taints, and wrote the node{past}, {after}, so that "
            "it may have taken that taint away"
        )
    again = "Set it again" if certain else "If that lasts, set it"
    return LostTaint(
        f"{vms} to leave, which nothing asks to: the node has no taint {key}, and {writer}",
        writer,
        f"{again}, and KubeVirt moves the VMs: {_taint(node, key)}",
        certain,
    )


class _Write(NamedTuple):
    """The last write of the manager that owns the taints of a node."""

    time: str = ""
    manager: str = ""
    of_taints_alone: bool = False


def _last_write(node: Object) -> _Write:
    """Return who owns the taints of a node, and the last write of it; empty: not known."""
    found = (
        _Write(
            entry["time"].text or "",
            entry["manager"].text or "",
            [*fields.map] == ["f:spec"] and [*fields["f:spec"].map] == ["f:taints"],
        )
        for entry in node.metadata["managedFields"].items()
        if (fields := entry["fieldsV1"]).at("f:spec", "f:taints").present
    )
    return max(found, default=_Write())


def _left(node: Object, key: str, cluster: Cluster) -> list[str]:
    """Return the VMs of a node without the taint that nothing asks to leave."""
    if any(taint["key"].text == key for taint in node.at("spec", "taints").items()):
        return []
    here, _ = gather(on_node(cluster, node.name))
    return [vmi.full_name for vmi in here if not vmi.at("status", "evacuationNodeName").text]


def _taint(node: Object, key: str) -> str:
    return shell("kubectl", "taint", "nodes", argument(node.name), f"{key}=draining:NoSchedule")


def awaited(node: Object, cluster: Cluster) -> str:
    """Return the volumes that have to become healthy before Harvester asks the VMs of a node to
    leave; empty: none is known.
    """
    sick = awaited_health.of_node(node, cluster)
    if not sick:
        return ""
    first, more = sick[0], len(sick) - 1
    others = f", and {count(more, 'other')}" if more else ""
    return f"Longhorn volume {first.name} ({first.at('status', 'robustness').text}){others}"
