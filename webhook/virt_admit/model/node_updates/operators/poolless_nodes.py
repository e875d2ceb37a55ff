"""Nodes of the machine-config operator that no MachineConfigPool updates: none selects them, or two
custom ones do.

The operator only logs it, and no pool counts such a node. It leaves Windows alone. Sources:
openshift/machine-config-operator:pkg/helpers/helpers.go#GetPoolsForNode, #ListPools;
:pkg/controller/node/node_controller.go ("all nodes must be in a pool if managed by the MCO").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model import machine_pools
from virt_admit.model.commands import about, argument, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster, cached, unlisted
from virt_admit.model.kubernetes.kinds import MACHINE_CONFIG_POOL, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.selectors import EXISTS, IN, Selector
from virt_admit.model.messages import capital, names
from virt_admit.model.node_updates.config_pool_updates import CURRENT

READS: Final[Reads] = {
    MACHINE_CONFIG_POOL: ("spec.configuration.name", "spec.nodeSelector"),
    NODE: (f"metadata.annotations.{CURRENT}", "metadata.labels", "status.nodeInfo.kubeletVersion"),
}
_TARGET: Final = ("spec", "configuration", "name")
_SELECTOR: Final = ("spec", "nodeSelector")
_ROLE: Final = "node-role.kubernetes.io"
_SYSTEMS: Final = ("kubernetes.io", "k8s.io", "openshift.io")
"""Ends of the domains of labels that software reads or writes."""


class PoollessNode(NamedTuple):
    """A node that no pool updates."""

    node: Object
    reason: str
    """Which pools there are, what the node lacks, and what it stays at, in sentences."""
    remedy: str
    custom: tuple[str, ...] = ()
    """The custom pools that select it; empty: no pool does."""

    @property
    def note(self) -> str:
        """Return all of it as sentences. The name of a node stays as it is."""
        return f"{self.reason if self.custom else capital(self.reason)}. {self.remedy}"


def of_node(node: Object, cluster: Cluster) -> PoollessNode | None:
    """Return that certainly no pool updates a node: two custom ones select it, or it has a
    configuration of the operator and none selects it. None: one may.
    """
    if node.deleted or not machine_pools.is_managed(node):
        return None
    pools = cluster.cached(_pools)
    parsed = [(pool, each) for pool, each in pools if each is not None]
    own = {pool: each for pool, each in parsed if each.matches(node.labels)}
    if sum(map(machine_pools.is_custom, own)) > 1:
        return _of_several(node, own)
    if own or not parsed or not node.annotations.get(CURRENT):
        return None
    if any(each.errors for _, each in parsed) or unlisted(cluster, MACHINE_CONFIG_POOL):
        return None
    return _found(node, parsed)


@cached
def of_cluster(cluster: Cluster) -> Mapping[str, PoollessNode]:
    """Return the known nodes that no pool updates."""
    found = ((node.name, of_node(node, cluster)) for node in cluster.known(NODE))
    return {name: each for name, each in found if each is not None}


def _pools(cluster: Cluster) -> Sequence[tuple[Object, Selector | None]]:
    """Return the known pools with what they select, by name."""
    found = ((pool, machine_pools.selector_of(pool)) for pool in cluster.known(MACHINE_CONFIG_POOL))
    return sorted(found, key=lambda each: each[0].name)


def _stays(node: Object) -> str:
    """Return which configuration and kubelet a node keeps; empty: they are not known."""
    kubelet = node.at("status", "nodeInfo", "kubeletVersion").text
    has = (node.annotations.get(CURRENT), kubelet and f"kubelet {kubelet}")
    return " and ".join(filter(None, has))


def _of_several(node: Object, own: Mapping[Object, Selector]) -> PoollessNode:
    """Return that the operator refuses a node of two custom pools (helpers.go#GetPoolsForNode).

    ``own``: all pools that select it.
    """
    custom = {pool: each for pool, each in own.items() if machine_pools.is_custom(pool)}
    pools, stays, former = tuple(pool.name for pool in custom), _stays(node), _former(node, custom)
    target = former.at(*_TARGET).text if former is not None else None
    is_old = target not in (None, node.annotations.get(CURRENT))
    newer = f", and {former.name} is at {target}" if former is not None and is_old else ""
    reason = (
        f"{node.name} matches the custom MachineConfigPools {names(pools)} "
        f"({_selected(custom.items())}), and the operator updates no node of two of them"
        f"{f': it stays at {stays}{newer}' if stays else ''}"
    )
    labels = {pool.name: _label(pool, own) for pool in custom}
    kept = [label for label in labels.values() if label and not _is_of_pools(label)]
    masters = any(machine_pools.is_of_masters(pool) for pool in own)
    both = "if it needs the configuration of several, make one pool of their MachineConfigs"
    command = about("label", node, NODE, "--list")
    if kept:
        way = (
            f"Let only one of these pools select {node.name}: change the nodeSelector of another, "
            f"and keep label {names(kept)} of the node, which has other uses"
        )
    elif former is None or masters or not all(labels.values()):
        which = "of these pools" if masters else "all of these pools but one"
        way = f"Remove from {node.name} the labels by which {which} select it"
    else:
        removed = [label for pool, label in labels.items() if pool != former.name]
        drains = ", which then drains and reboots it to update it" if is_old else ""
        way = (
            f"Leave {node.name} to one of them: without label {names(removed)} it belongs to "
            f"{former.name}{drains}"
        )
        without = (f"{key}-" for key in removed)
        command = shell("kubectl", "label", "node", argument(node.name), *without)
    return PoollessNode(node, reason, typed(way, command, both), pools)


def _former(node: Object, pools: Iterable[Object]) -> Object | None:
    """Return the pool whose configuration a node has."""
    of = node.annotations.get(CURRENT, "").rpartition("-")[0]
    return next((pool for pool in pools if of == f"rendered-{pool.name}"), None)


def _label(pool: Object, own: Mapping[Object, Selector]) -> str:
    """Return a label without which this one of its pools does not select a node; empty:
    no label is of this pool alone.
    """
    others = (selector for other, selector in own.items() if other is not pool)
    used = {each.key for selector in others for each in selector.requirements}
    demanded = (each for each in own[pool].requirements if each.operator in (IN, EXISTS))
    return min((each.key for each in demanded if each.key not in used), default="")


def _is_of_pools(label: str) -> bool:
    """Return whether a label of a node only says of which role it is, so that it may be removed:
    volumes and storage depend on others, such as its zone."""
    domain = label.rpartition("/")[0]
    return domain == _ROLE or not domain.endswith(_SYSTEMS)


def _selected(pools: Iterable[tuple[Object, Selector]]) -> str:
    return ", ".join(f"{pool.name} selects {each}" for pool, each in pools)


def _found(node: Object, pools: Sequence[tuple[Object, Selector]]) -> PoollessNode:
    reason = (
        f"no MachineConfigPool selects node {node.name} ({_selected(pools)}), so no update reaches "
        f"it: it stays at {_stays(node)}"
    )
    by_pool = dict(pools)
    pool = _former(node, by_pool)
    wanted = pool.at(*_SELECTOR, "matchLabels").texts if pool is not None else {}
    lacked = [f"{key}={value}" for key, value in wanted.items() if node.labels.get(key) != value]
    own = "a MachineConfigPool that selects it by a label that it has"
    if pool is None or not by_pool[pool].matches({**node.labels, **wanted}):
        way = f"Give {node.name} the label of a pool, or make {own}"
        return PoollessNode(node, reason, typed(way, about("label", node, NODE, "--list")))
    target = pool.at(*_TARGET).text
    is_old = target not in (None, node.annotations[CURRENT])
    drains = ", which then drains and reboots it to update it" if is_old else ""
    way = f"Give {node.name} back label {names(lacked)} of pool {pool.name}{drains}"
    label = shell("kubectl", "label", "node", argument(node.name), *lacked, "--overwrite")
    return PoollessNode(node, reason, typed(way, label, f"or make {own}"))


def named_in(words: str, cluster: Cluster) -> Sequence[PoollessNode]:
    """Return those of these nodes that a message names."""
    said = set(re.findall(r"[\w.-]*\w", words))
    return [each for name, each in sorted(of_cluster(cluster).items()) if name in said]
