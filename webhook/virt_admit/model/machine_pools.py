"""Pools of nodes that are updated together: MachineConfigPools of OpenShift, MachineDeployments of Cluster API.

Source: openshift/machine-config-operator: pkg/controller/node/node_controller.go#maxUnavailable, #getPrimaryPoolForNode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from virt_admit.model.kubernetes import nodes, selectors
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.int_or_percent import LimitKind, parse_int_or_percent
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, MACHINE_CONFIG_POOL, NODE
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.scheduler.ledger import ZONE

READS: Final[Reads] = {MACHINE_CONFIG_POOL: ("spec.nodeSelector", "spec.maxUnavailable"), NODE: ("metadata.labels",)}

_STANDARD: Final = {"master": 0, "worker": 2}
"""A node in several pools belongs to master, else to a custom pool, else to worker."""


DEPLOYMENT: Final = "cluster.x-k8s.io/deployment-name"
"""The label of a Machine with the name of its MachineDeployment."""


def members(pools: Iterable[Object], every: Iterable[Object]) -> list[tuple[Object, list[Object]]]:
    """Return each MachineConfigPool with the nodes that it updates, in the order in which pools claim nodes.

    A pool without a selector has no nodes.
    """
    ranked = sorted(pools, key=lambda pool: (_STANDARD.get(pool.name, 1), pool.name))
    found: list[tuple[Object, list[Object]]] = []
    left = list(every)
    for pool in ranked:
        selector = pool.at("spec", "nodeSelector")
        parsed = selectors.parse(selector.value) if selector.is_map else None
        own = [node for node in left if parsed is not None and parsed.matches(node.labels)]
        found.append((pool, own))
        taken = {node.name for node in own}
        left = [node for node in left if node.name not in taken]
    return found


def owner_key(obj: Object) -> tuple[str, str]:
    """Return namespace and name of the MachineDeployment of a Machine or MachineSet."""
    return obj.namespace, obj.labels.get(DEPLOYMENT, "")


def of_deployments(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[str]]:
    """Return the names of the nodes of each MachineDeployment by its namespace and name, as far as Machines are known."""
    found: dict[tuple[str, str], list[str]] = {}
    for machine in sorted(cluster.known(CAPI_MACHINE), key=lambda machine: machine.name):
        node = machine.at("status", "nodeRef", "name").text
        if node:
            found.setdefault(owner_key(machine), []).append(node)
    return found


def draining_at_once(cluster: Cluster) -> int | None:
    """Return how many nodes that run VMs an OpenShift upgrade drains at once; None: there are no pools.

    Raises:
        Unseen: nodes or pools cannot be read.
    """
    pools = list(cluster.list(MACHINE_CONFIG_POOL))
    if not pools:
        return None
    return sum(_limit(pool, len(own)) for pool, own in members(pools, nodes.of_kubevirt(cluster)) if own) or None


def _limit(pool: Object, members: int) -> int:
    try:
        return min(capacity(pool, members), max(members, 1))
    except ValueError:
        return 1


def zone_then_age(node: Object) -> tuple[bool, str, str, str]:
    """Return the key of #sortNodeList: nodes without a zone are the last; names make it the same for each run."""
    return ZONE not in node.labels, node.labels.get(ZONE, ""), node.metadata["creationTimestamp"].text or "", node.name


def capacity(pool: Object, members: int) -> int:
    """Return how many nodes of a MachineConfigPool may be unavailable: a percentage is rounded down, and at least one.

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

    Those that are made for the surge are rounded up, those that may be missing down (mdutil/util.go#ResolveFenceposts).
    """
    rolling = _rolling_update(deployment)
    more = _rounded(rolling["maxSurge"].value, 1, total, up=True)
    fewer = _rounded(rolling["maxUnavailable"].value, 0, total, up=False)
    return max(1, more + min(fewer, total))


def _rolling_update(deployment: Object) -> Field:
    """Return the block of both API versions: ``spec.rollout.strategy`` in v1beta2, ``spec.strategy`` before."""
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
