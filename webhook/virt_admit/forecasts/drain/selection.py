"""Which nodes ``virt-admit drain`` is asked about: names, labels, or a pool."""

from __future__ import annotations

from typing import Final, NamedTuple

from virt_admit.model import machine_nodes, machine_pools
from virt_admit.model.kubernetes import selectors
from virt_admit.model.kubernetes.cluster import Cluster, gather
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    MACHINE_CONFIG_POOL,
    MACHINE_DEPLOYMENT,
    NODE,
)
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.lookups import is_absent
from virt_admit.model.messages import did_you_mean, names

READS: Final = union(
    machine_pools.READS,
    machine_nodes.READS,
    {CAPI_MACHINE: ("metadata.labels",), MACHINE_DEPLOYMENT: ()},
)

_PREFIXES: Final = ("node/", "nodes/", "no/")
"""Forms of ``kubectl``: ``node/worker-1``."""


class NodeQuery(NamedTuple):
    """The nodes that a user names. Empty: all nodes."""

    names: tuple[str, ...] = ()
    """Names of nodes, also as ``node/NAME``."""
    selector: str = ""
    """Labels, as in kubectl."""
    pool: str = ""
    """The name of a MachineConfigPool or of a MachineDeployment."""


class SelectedNodes(NamedTuple):
    """The nodes of a query."""

    names: tuple[str, ...]
    unseen: tuple[str, ...] = ()
    """What could not be read although it may hold more nodes of the query."""


def select(query: NodeQuery, cluster: Cluster) -> SelectedNodes:
    """Return the nodes of a query that names some, each once, in the order given.

    Raises:
        LookupError: a node or the pool does not exist, or nothing matches.
        ValueError: the selector is not valid.
    """
    found = [existing(bare_name(name), cluster) for name in query.names]
    unseen: list[str] = []
    every, unread = gather(cluster.list(NODE))
    if query.selector:
        parsed = selectors.parse_text(query.selector)
        found += sorted(node.name for node in every if parsed.matches(node.labels))
        unseen.append(unread)
    if query.pool:
        own, missing = _of_pool(query.pool, cluster)
        found += own
        unseen += [missing, unread]
    missing_data = tuple(what for what in dict.fromkeys(unseen) if what)
    if not found:
        why = f"; not all could be read: {', '.join(missing_data)}" if missing_data else ""
        raise LookupError(f"no node matches {query.selector or f'pool {query.pool}'}{why}")
    return SelectedNodes(tuple(dict.fromkeys(found)), missing_data)


def bare_name(name: str) -> str:
    """Return the name of a node that may be written as ``node/NAME``."""
    prefix = next((each for each in _PREFIXES if name.lower().startswith(each)), "")
    return name[len(prefix) :]


def existing(name: str, cluster: Cluster) -> str:
    """Return the name of a node that exists, or may exist.

    Raises:
        LookupError: no such node exists.
    """
    known = sorted(node.name for node in cluster.known(NODE))
    if "," in name or "/" in name:  # no name of a node contains them
        form = "separate several nodes with spaces" if "," in name else "write NODE or node/NAME"
        raise LookupError(f"{name} is not a node: {form}")
    if not is_absent(cluster, NODE, "", name):
        return name
    meant = did_you_mean(name, known) if known else None
    hint = f"Did you mean {meant}?" if meant else f"The nodes are: {names(known) or 'none'}"
    raise LookupError(f"node {name} does not exist. {hint}")


def _of_pool(name: str, cluster: Cluster) -> tuple[list[str], str]:
    """Return the nodes of a pool, and what could not be read.

    Raises:
        LookupError: the pool does not exist.
    """
    pools, no_pools = gather(cluster.list(MACHINE_CONFIG_POOL))
    deployments, no_deployments = gather(cluster.list(MACHINE_DEPLOYMENT))
    for pool, own in machine_pools.members(pools, cluster.known(NODE)):
        if pool.name == name:
            # an unread pool may own some of these nodes
            return sorted(node.name for node in own), no_pools
    named = [deployment for deployment in deployments if deployment.name == name]
    if named:
        machines_unread = gather(cluster.list(CAPI_MACHINE))[1]
        nodes = machine_pools.of_deployments(cluster)
        return [
            node for one in named for node in nodes.get((one.namespace, name), ())
        ], machines_unread
    if no_pools or no_deployments:
        raise LookupError(
            f"pool {name} was not found, and not all pools could be read: "
            f"{no_pools or no_deployments}"
        )
    known = sorted({found.name for found in (*pools, *deployments)})
    meant = did_you_mean(name, known) if known else None
    hint = f"Did you mean {meant}?" if meant else f"The pools are: {names(known) or 'none'}"
    raise LookupError(f"no MachineConfigPool or MachineDeployment is named {name}. {hint}")
