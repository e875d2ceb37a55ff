"""Nodes of the machine-config operator that no MachineConfigPool selects: no update reaches them.

The operator only logs it, and no pool counts such a node. It leaves Windows alone. Sources:
openshift/machine-config-operator:pkg/helpers/helpers.go#GetPoolsForNode, #ListPools;
:pkg/controller/node/node_controller.go ("all nodes must be in a pool if managed by the MCO").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model.commands import about, argument, shell, typed
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import MACHINE_CONFIG_POOL, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.selectors import Selector
from virt_admit.model.messages import names
from virt_admit.model.node_updates.config_pool_updates import CURRENT

READS: Final[Reads] = {
    MACHINE_CONFIG_POOL: ("spec.configuration.name", "spec.nodeSelector"),
    NODE: (f"metadata.annotations.{CURRENT}", "metadata.labels", "status.nodeInfo.kubeletVersion"),
}
_SELECTOR: Final = ("spec", "nodeSelector")
_SYSTEM: Final = "kubernetes.io/os"


class PoollessNode(NamedTuple):
    """A node that no pool selects."""

    name: str
    reason: str
    """Which pools there are, what the node lacks, and what it stays at, in sentences."""
    remedy: str


def of_node(node: Object, cluster: Cluster) -> PoollessNode | None:
    """Return that certainly no pool selects a node with a configuration of the operator; None:
    one may.
    """
    if node.deleted or not node.annotations.get(CURRENT) or node.labels.get(_SYSTEM) == "windows":
        return None
    pools = cluster.cached(_pools)
    if not pools or any(each.errors or each.matches(node.labels) for _, each in pools):
        return None
    return _found(node, pools)


@cached
def of_cluster(cluster: Cluster) -> Mapping[str, PoollessNode]:
    """Return the known nodes without a pool."""
    found = ((node.name, of_node(node, cluster)) for node in cluster.known(NODE))
    return {name: each for name, each in found if each is not None}


def _pools(cluster: Cluster) -> Sequence[tuple[Object, Selector]]:
    """Return the pools with what they select, by name; none: there may be more."""
    if unlisted(cluster, MACHINE_CONFIG_POOL):
        return ()
    found = ((pool, pool.at(*_SELECTOR)) for pool in cluster.known(MACHINE_CONFIG_POOL))
    every = [(pool, selectors.parse(field.value)) for pool, field in found if field.is_map]
    return sorted(every, key=lambda each: each[0].name)


def _found(node: Object, pools: Sequence[tuple[Object, Selector]]) -> PoollessNode:
    selected = ", ".join(f"{pool.name} selects {each}" for pool, each in pools)
    has, kubelet = node.annotations[CURRENT], node.at("status", "nodeInfo", "kubeletVersion").text
    stays = f"{has}{f' and kubelet {kubelet}' if kubelet else ''}"
    reason = (
        f"no MachineConfigPool selects node {node.name} ({selected}), so no update reaches it: it "
        f"stays at {stays}"
    )
    of = has.rpartition("-")[0]
    pool, selector = next(
        (each for each in pools if of == f"rendered-{each[0].name}"), (None, None)
    )
    wanted = pool.at(*_SELECTOR, "matchLabels").texts if pool is not None else {}
    lacked = [f"{key}={value}" for key, value in wanted.items() if node.labels.get(key) != value]
    own = "a MachineConfigPool that selects it by a label that it has"
    if pool is None or selector is None or not selector.matches({**node.labels, **wanted}):
        way = f"Give {node.name} the label of a pool, or make {own}"
        return PoollessNode(node.name, reason, typed(way, about("label", node, NODE, "--list")))
    target = pool.at("spec", "configuration", "name").text
    drains = ", which then drains and reboots it to update it" if target not in (None, has) else ""
    way = f"Give {node.name} back label {names(lacked)} of pool {pool.name}{drains}"
    label = shell("kubectl", "label", "node", argument(node.name), *lacked, "--overwrite")
    return PoollessNode(node.name, reason, typed(way, label, f"or make {own}"))


def named_in(words: str, cluster: Cluster) -> Sequence[PoollessNode]:
    """Return those of these nodes that a message names."""
    said = set(re.findall(r"[\w.-]*\w", words))
    return [each for name, each in sorted(of_cluster(cluster).items()) if name in said]
