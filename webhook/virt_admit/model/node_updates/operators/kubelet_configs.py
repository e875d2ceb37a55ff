"""The MachineConfigPools for which a KubeletConfig is, and nodes that it was to reach and does not.

It says Success once it has made the configuration of its pools, with or without nodes. Source:
openshift/machine-config-operator:pkg/controller/kubelet-config/kubelet_config_controller.go
#getPoolsForKubeletConfig, :pkg/helpers/helpers.go#GetPoolsForNode, issue 3090.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model import machine_pools
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import KUBELET_CONFIG, MACHINE_CONFIG_POOL, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.selectors import Selector

READS: Final[Reads] = union(
    machine_pools.READS,
    {
        KUBELET_CONFIG: ("metadata.creationTimestamp", "spec.machineConfigPoolSelector"),
        MACHINE_CONFIG_POOL: ("metadata.labels",),
    },
)
Pools = Sequence[tuple[Object, list[Object]]]
"""MachineConfigPools, each with the nodes that it updates."""


class SelectedPools(NamedTuple):
    """A KubeletConfig and the pools that it selects."""

    config: Object
    selector: Selector | None
    pools: Pools


def selected(config: Object, pools: Pools) -> SelectedPools:
    """Return which of these pools a KubeletConfig selects: an empty selector selects none."""
    field = config.at("spec", "machineConfigPoolSelector")
    parsed = selectors.parse(field.value) if field.is_map else None
    selector = None if parsed is None or parsed.empty else parsed
    chosen = [(pool, own) for pool, own in pools if selector and selector.matches(pool.labels)]
    return SelectedPools(config, selector, chosen)


def last_of(pool: Object, cluster: Cluster) -> Object | None:
    """Return the KubeletConfig that a pool has: the operator writes one file, of the last one."""
    known = sorted(cluster.known(KUBELET_CONFIG), key=lambda each: (each.created, each.name))
    own = [each for each in known if selected(each, [(pool, [])]).pools]
    return own[-1] if own else None


class LostConfig(NamedTuple):
    """A KubeletConfig that reaches no node at all, as the nodes that it was for are masters."""

    config: Object
    pool: str
    """The custom pool that selects the node."""
    other: Object | None
    """The KubeletConfig that the pool of the masters has already."""


def of_node(node: Object, cluster: Cluster) -> LostConfig | None:
    """Return the KubeletConfig that was to reach a node and reaches none; None: there is none."""
    return lost(cluster).get(node.name) if cluster.known(KUBELET_CONFIG) else None


@cached
def lost(cluster: Cluster) -> Mapping[str, LostConfig]:
    """Return by the name of a node the KubeletConfig that was for it: the pool is not one that
    awaits its first node, as it selects nodes that stay in another one.
    """
    every, known = cluster.known(NODE), list(cluster.known(MACHINE_CONFIG_POOL))
    if any(unlisted(cluster, kind) for kind in (NODE, MACHINE_CONFIG_POOL)):
        return {}
    pools = machine_pools.of_cluster(cluster)
    kept = {each.node: each.custom for each in machine_pools.overlaps(known, every)}
    masters = next((pool for pool in known if machine_pools.is_of_masters(pool)), None)
    other = last_of(masters, cluster) if masters is not None else None
    found: dict[str, LostConfig] = {}
    for config in sorted(cluster.known(KUBELET_CONFIG), key=lambda each: each.name):
        chosen = selected(config, pools).pools
        if chosen and not any(own for _, own in chosen):
            names = {pool.name for pool, _ in chosen}
            for node, pool in kept.items():
                if pool in names:
                    found.setdefault(node, LostConfig(config, pool, other))
    return found
