"""Pools of nodes that are updated together: MachineConfigPools of OpenShift,
MachineDeployments of Cluster API.

Source: openshift/machine-config-operator: pkg/controller/node/node_controller.go#maxUnavailable;
pkg/helpers/helpers.go#GetPoolsForNode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import nodes, selectors
from virt_admit.model.kubernetes.cluster import Cluster, cached, more_may_exist
from virt_admit.model.kubernetes.int_or_percent import LimitKind, parse_int_or_percent
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    MACHINE_CONFIG_POOL,
    MACHINE_DEPLOYMENT,
    NODE,
)
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.selectors import Selector
from virt_admit.model.scheduler.ledger import ZONE

READS: Final[Reads] = {
    MACHINE_CONFIG_POOL: ("spec.nodeSelector", "spec.maxUnavailable"),
    NODE: ("metadata.labels",),
}

_SYSTEM: Final = "kubernetes.io/os"
_MASTER: Final = "master"
_STANDARD: Final = {_MASTER: 0, "worker": 2}
"""A node in several pools belongs to master, else to a custom pool, else to worker."""


DEPLOYMENT: Final = "cluster.x-k8s.io/deployment-name"
"""The label of a Machine with the name of its MachineDeployment."""


def members(pools: Iterable[Object], every: Iterable[Object]) -> list[tuple[Object, list[Object]]]:
    """Return each MachineConfigPool with the nodes that it updates,
    in the order in which pools claim nodes.

    A pool without a selector has no nodes, and a node that several custom pools select has no pool.
    """
    selected = _selected(pools, every)
    found: list[tuple[Object, list[Object]]] = []
    taken = {name for name, custom in _custom_pools(selected).items() if len(custom) > 1}
    for pool, nodes_of_pool in selected:
        own = [node for node in nodes_of_pool if node.name not in taken]
        found.append((pool, own))
        taken |= {node.name for node in own}
    return found


@cached
def of_cluster(cluster: Cluster) -> Sequence[tuple[Object, list[Object]]]:
    """Return the same for the known MachineConfigPools and nodes of a cluster: once for all VMs."""
    return members(cluster.known(MACHINE_CONFIG_POOL), cluster.known(NODE))


class Overlap(NamedTuple):
    """A node of the masters that a custom pool selects."""

    node: str
    custom: str
    """The name of the custom pool."""

    @property
    def effect(self) -> str:
        """What that means for the updates of the node."""
        lost = f"the configuration of MachineConfigPool {self.custom} never reaches it"
        return f"{self.node} is updated with the masters, so {lost}"


def overlaps(pools: Iterable[Object], every: Iterable[Object]) -> Iterator[Overlap]:
    """Yield the nodes that are updated with the masters although a custom pool selects them."""
    selected = _selected(pools, every)
    masters = {node.name for pool, own in selected if is_of_masters(pool) for node in own}
    for name, custom in sorted(_custom_pools(selected).items()):
        if len(custom) == 1 and name in masters:
            yield Overlap(name, custom[0])


def is_custom(pool: Object) -> bool:
    """Return whether an administrator made a pool. The operator updates no node of two of them."""
    return pool.name not in _STANDARD


def is_of_masters(pool: Object) -> bool:
    """Return whether a pool is that of the masters, which a node belongs to before any other."""
    return pool.name == _MASTER


def is_managed(node: Object) -> bool:
    """Return whether the operator may update a node: it leaves Windows alone
    (helpers.go#IsWindows).
    """
    return node.labels.get(_SYSTEM) != "windows"


def selector_of(pool: Object) -> Selector | None:
    """Return which nodes a pool selects; None: none, as with an empty selector
    (helpers.go#ListPools).
    """
    field = pool.at("spec", "nodeSelector")
    parsed = selectors.parse(field.value) if field.is_map else None
    return None if parsed is None or parsed.empty else parsed


def _selected(
    pools: Iterable[Object], every: Iterable[Object]
) -> list[tuple[Object, list[Object]]]:
    """Return each pool with the nodes that it selects."""
    ranked = sorted(pools, key=lambda pool: (_STANDARD.get(pool.name, 1), pool.name))
    known = list(filter(is_managed, every))
    parsed = ((pool, selector_of(pool)) for pool in ranked)
    return [
        (pool, [node for node in known if selector is not None and selector.matches(node.labels)])
        for pool, selector in parsed
    ]


def _custom_pools(
    selected: Iterable[tuple[Object, Sequence[Object]]],
) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the custom pools that select each node."""
    found: dict[str, tuple[str, ...]] = {}
    for pool, own in selected:
        for node in own if is_custom(pool) else ():
            found[node.name] = (*found.get(node.name, ()), pool.name)
    return found


def owner_key(obj: Object) -> tuple[str, str]:
    """Return namespace and name of the MachineDeployment of a Machine or MachineSet."""
    return obj.namespace, obj.labels.get(DEPLOYMENT, "")


def of_deployments(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[str]]:
    """Return the names of the nodes of each MachineDeployment by its namespace and name,
    as far as Machines are known.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for machine in sorted(cluster.known(CAPI_MACHINE), key=lambda machine: machine.name):
        node = machine_nodes.node_name(machine, cluster)
        if node:
            found.setdefault(owner_key(machine), []).append(node)
    return found


def deployed_here(cluster: Cluster) -> bool:
    """Return whether MachineDeployments may make nodes of this cluster.

    A management cluster has those of its tenants, whose Machines name nodes of other clusters.
    """
    if not cluster.known(MACHINE_DEPLOYMENT):
        return False
    every = cluster.known(CAPI_MACHINE)
    if not any(machine.at("status", "nodeRef", "name").text for machine in every) or any(
        chain(more_may_exist(cluster, CAPI_MACHINE), more_may_exist(cluster, NODE))
    ):
        return True
    known = {node.name for node in cluster.known(NODE)}
    return any(machine_nodes.node_name(machine, cluster) in known for machine in every)


def draining_at_once(cluster: Cluster) -> int | None:
    """Return how many nodes that run VMs an OpenShift upgrade drains at once; None:
    there are no pools.

    Raises:
        Unseen: nodes or pools cannot be read.
    """
    pools = list(cluster.list(MACHINE_CONFIG_POOL))
    if not pools:
        return None
    return (
        sum(
            _limit(pool, len(own))
            for pool, own in members(pools, nodes.of_kubevirt(cluster))
            if own
        )
        or None
    )


def _limit(pool: Object, members: int) -> int:
    try:
        return min(capacity(pool, members), max(members, 1))
    except ValueError:
        return 1


def zone_then_age(node: Object) -> tuple[bool, str, str, str]:
    """Return the key of #sortNodeList: nodes without a zone are the last;
    names make it the same for each run.
    """
    return (ZONE not in node.labels, node.labels.get(ZONE, ""), node.created, node.name)


def capacity(pool: Object, members: int) -> int:
    """Return how many nodes of a MachineConfigPool may be unavailable: a percentage is rounded
    down, and at least one.

    Raises:
        ValueError: its ``maxUnavailable`` is neither a number nor a percentage.
    """
    limit = pool.at("spec", "maxUnavailable").value
    return share(1 if limit is None else limit, members)


def share(limit: object, total: int, form: LimitKind = LimitKind.CLUSTER_API) -> int:
    """Return a number or percentage of nodes, rounded down, and at least one.

    Raises:
        ValueError: it is neither.
    """
    parsed = parse_int_or_percent(limit, form)
    return max(1, total * parsed.number // 100 if parsed.percent else parsed.number)


def at_once(deployment: Object, total: int) -> int:
    """Return how many nodes of a MachineDeployment change at once.

    Those that are made for the surge are rounded up, those that may be missing down
    (mdutil/util.go#ResolveFenceposts).
    """
    more = _rounded(_rolling_update(deployment)["maxSurge"].value, 1, total, up=True)
    return max(1, more + min(may_be_missing(deployment, total), total))


def kept(deployment: Object, total: int) -> int:
    """Return how many nodes of a MachineDeployment stay available
    (…rollingupdate.go#reconcileOldMachineSetsRollingUpdate).
    """
    wanted = deployment.at("spec", "replicas").integer
    replicas = total if wanted is None else wanted
    return max(replicas - may_be_missing(deployment, replicas), 0)


def may_be_missing(deployment: Object, total: int) -> int:
    """Return how many nodes of a MachineDeployment may be unavailable."""
    return _rounded(_rolling_update(deployment)["maxUnavailable"].value, 0, total, up=False)


def _rolling_update(deployment: Object) -> Field:
    return _strategy(deployment)["rollingUpdate"]


def _strategy(deployment: Object) -> Field:
    """Return the block of both API versions: ``spec.rollout.strategy`` in v1beta2,
    ``spec.strategy`` before.
    """
    later = deployment.at("spec", "rollout", "strategy")
    return later if later.is_map else deployment.at("spec", "strategy")


def waits_for_deletions(deployment: Object) -> bool:
    """Return whether a MachineDeployment makes a new Machine only once an administrator has deleted
    an old one.
    """
    return _strategy(deployment)["type"].text == "OnDelete"


def _rounded(value: object, default: int, total: int, *, up: bool) -> int:
    try:
        parsed = parse_int_or_percent(default if value is None else value, LimitKind.CLUSTER_API)
    except ValueError:
        return default
    if not parsed.percent:
        return parsed.number
    return -(-total * parsed.number // 100) if up else total * parsed.number // 100
