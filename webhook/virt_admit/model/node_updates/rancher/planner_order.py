"""The order in which nodes are updated that are in no pool: the control plane before the others,
and those of Harvester as the planner of Rancher takes them, by role, then by the name of the
Machine.

The planner begins with its init node, which only a Secret names. Sources: rancher/rancher:
pkg/capr/planner/planner.go#fullReconcile (the tiers), :planentry.go#collect (the names).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from virt_admit.model import machine_nodes
from virt_admit.model.evidence.writes.fleet_objects import LOCAL
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, NODE
from virt_admit.model.kubernetes.reads import Reads, union

READS: Final[Reads] = union(machine_nodes.READS, {NODE: ("metadata.labels",)})


def ordered(load: Iterable[str], cluster: Cluster) -> tuple[str, ...]:
    """Return the nodes in the order of their update.

    ``load``: their names, those with the least to move first. A VMI may name one that was deleted.
    """
    known = {node.name: node for node in cluster.known(NODE)}
    own = [name for name in load if name in known]
    # kubelets may not be newer than the API server: kubeadm, Plans and Rancher update servers first
    own.sort(key=lambda name: not nodes.is_server(known[name]))
    every = cluster.known(CAPI_MACHINE, LOCAL) if nodes.has_harvester(cluster) else ()
    machines = {machine_nodes.node_name(each, cluster): each.name for each in every}
    if machines.keys() >= set(own):
        own.sort(key=lambda name: machines[name])
        own.sort(key=lambda name: not nodes.is_control_plane(known[name]))
        own.sort(key=lambda name: not nodes.votes_in_etcd(known[name]))
    return tuple(own)
