"""Pools of nodes that are updated together: MachineConfigPools of OpenShift,
MachineDeployments of Cluster API.

Source: openshift/machine-config-operator: pkg/controller/node/node_controller.go#maxUnavailable;
pkg/helpers/helpers.go#GetPoolsForNode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model import machine_nodes
from virt_admit.model.kubernetes import nodes, selectors
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.int_or_percent import LimitKind, parse_int_or_percent
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE_CONFIG_POOL, NODE
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.messages import names
from virt_admit.model.scheduler.ledger import ZONE

READS: Final[Reads] = {
    MACHINE_CONFIG_POOL: ("spec.nodeSelector", "spec.maxUnavailable"),
    NODE: ("metadata.labels",),
}

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


class Overlap(NamedTuple):
    """A node that custom pools select and do not update."""

    node: Object
    custom: tuple[str, ...]
    """The names of the custom pools."""

    @property
    def has_no_pool(self) -> bool:
        """Whether no pool updates the node. Otherwise the pool of the masters does."""
        return len(self.custom) > 1

    @property
    def effect(self) -> str:
        """What that means for the updates of the node."""
        if self.has_no_pool:
            which = f"the custom MachineConfigPools {names(self.custom)}"
            return (
                f"{self.node.name} matches {which}, and the operator updates no node of two of them"
            )
        lost = f"the configuration of MachineConfigPool {self.custom[0]} never reaches it"
        return f"{self.node.name} is updated with the masters, so {lost}"


def overlaps(pools: Iterable[Object], every: Iterable[Object]) -> Iterator[Overlap]:
    """Yield the nodes that more pools select than the operator allows: two custom ones,
    or a custom one and the master.
    """
    selected = _selected(pools, every)
    masters = {node.name for pool, own in selected if pool.name == _MASTER for node in own}
    by_name = {node.name: node for _, own in selected for node in own}
    for name, custom in sorted(_custom_pools(selected).items()):
        if len(custom) > 1 or name in masters:
            yield Overlap(by_name[name], custom)


def _selected(
    pools: Iterable[Object], every: Iterable[Object]
) -> list[tuple[Object, list[Object]]]:
    """Return each pool with the nodes that it selects."""
    ranked = sorted(pools, key=lambda pool: (_STANDARD.get(pool.name, 1), pool.name))
    nodes_known = list(every)
    found: list[tuple[Object, list[Object]]] = []
    for pool in ranked:
        selector = pool.at("spec", "nodeSelector")
        parsed = selectors.parse(selector.value) if selector.is_map else None
        found.append(
            (
                pool,
                [
                    node
                    for node in nodes_known
                    if parsed is not None and parsed.matches(node.labels)
                ],
            )
        )
    return found


def _custom_pools(
    selected: Iterable[tuple[Object, Sequence[Object]]],
) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the custom pools that select each node."""
    found: dict[str, tuple[str, ...]] = {}
    for pool, own in selected:
        for node in own if pool.name not in _STANDARD else ():
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
    """Return the block of both API versions: ``spec.rollout.strategy`` in v1beta2,
    ``spec.strategy`` before.
    """
    later = deployment.at("spec", "rollout", "strategy", "rollingUpdate")
    return later if later.is_map else deployment.at("spec", "strategy", "rollingUpdate")


def _rounded(value: object, default: int, total: int, *, up: bool) -> int:
    try:
        parsed = parse_int_or_percent(default if value is None else value, LimitKind.CLUSTER_API)
    except ValueError:
        return default
    if not parsed.percent:
        return parsed.number
    return -(-total * parsed.number // 100) if up else total * parsed.number // 100
