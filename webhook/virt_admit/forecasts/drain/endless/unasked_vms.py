"""VMs on a node that an upgrade of Harvester empties, and that nothing asks to leave.

The pre-drain job of the node taints it, on which KubeVirt moves the VMs, and waits for them. It
does so only after the volumes are healthy, so a taint by hand would not let it go on before.
Source: harvester/harvester:package/upgrade/upgrade_node.sh#command_pre_drain.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from virt_admit.forecasts.placement.components.longhorn import awaited_health
from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes.cluster import Cluster, gather, unlisted
from virt_admit.model.kubernetes.kinds import LONGHORN_VOLUME, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances.vmis import on_node
from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.model.messages import count, names
from virt_admit.model.node_updates import harvester_upgrades, updaters
from virt_admit.model.node_updates.node_phases import Phase

READS: Final[Reads] = union(
    awaited_health.READS, {VMI: ("status.evacuationNodeName", "status.nodeName")}
)
_WIDTH: Final = 120


def note(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield that Harvester empties a node whose VMs nothing asks to leave."""
    update, key = updaters.of_nodes(cluster).get(node.name), migration_limits.drain_taint(cluster)
    if (
        update is None
        or update.kind not in harvester_upgrades.KINDS
        or update.phase is not Phase.DRAINING
    ):
        return
    tainted = any(taint["key"].text == key for taint in node.at("spec", "taints").items())
    here, _ = gather(on_node(cluster, node.name))
    left = [vmi.full_name for vmi in here if not vmi.at("status", "evacuationNodeName").text]
    if not left or tainted:
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
    command = shell("kubectl", "taint", "nodes", argument(node.name), f"{key}=draining:NoSchedule")
    yield f"{begin}. If that lasts, add it: {command}"


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
