"""MachineConfigPools that the SR-IOV network operator has paused, and the nodes for which it did.

It pauses the pool of a node before it drains the node, and resumes the pool itself after the last
of these drains. Sources:
k8snetworkplumbingwg/sriov-network-operator:pkg/orchestrator/openshift/openshift.go#BeforeDrainNode,
#AfterCompleteDrainNode; up to 1.2 pkg/daemon/daemon.go#pauseMCP, which annotates the node alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes.kinds import MACHINE_CONFIG_POOL, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.messages import cut, names

STATE: Final = "sriovnetwork.openshift.io/state"
"""The annotation of a pool and of a node."""
_OF_POOL: Final = "Paused"
_OF_NODE: Final = "Draining_MCP_Paused"
AT_REST: Final = ("", "Idle")
DEVICES: Final = "openshift.io/"
"""How the resources begin that it offers,
where its setting RESOURCE_PREFIX does not say otherwise.
"""

READS: Final[Reads] = {
    MACHINE_CONFIG_POOL: ("spec.paused", "metadata.annotations"),
    NODE: (f"metadata.annotations.{STATE}",),
}
"""The fields that decide it."""


def has_paused(pool: Object, nodes: Iterable[Object]) -> bool:
    """Return whether a pool with these nodes is paused, and the operator did it."""
    if not pool.at("spec", "paused").boolean:
        return False
    return pool.annotations.get(STATE) == _OF_POOL or any(
        node.annotations.get(STATE) == _OF_NODE for node in nodes
    )


def drained(nodes: Iterable[Object]) -> tuple[str, ...]:
    """Return the nodes that the operator drains;
    those that wait for their turn if it drains none yet.
    """
    waiting = [node for node in nodes if node.annotations.get(STATE, "") not in AT_REST]
    begun = [node for node in waiting if node.at("spec", "unschedulable").boolean]
    return tuple(node.name for node in begun or waiting)


def words(pool: Object, nodes: Iterable[Object]) -> str:
    """Return that a pool is paused, and by whom if it was the operator, else with the words of who
    did it.
    """
    members = list(nodes)
    paused = f"{pool.kind} {pool.name} is paused"
    if not has_paused(pool, members):
        return f"{paused}{_of_administrator(pool)}"
    drains = drained(members)
    return f"{paused} by the SR-IOV network operator" + (
        f", which drains {names(drains)}" if drains else ""
    )


_TELLS: Final = re.compile(r"reason|until|change", re.IGNORECASE)


def _of_administrator(pool: Object) -> str:
    """Return what annotations of no platform say about the pause, in brackets; empty: nothing."""
    said = []
    for key, value in sorted(pool.annotations.items()):
        domain, _, name = key.rpartition("/")
        if _TELLS.search(name) and value.strip() and not vms.is_common(domain):
            said.append(f"{name}: {cut(' '.join(value.split()), _LONGEST)}")
    return f" ({'; '.join(said[:_MOST])})" if said else ""


_LONGEST: Final = 150
_MOST: Final = 3


def remedy(nodes: Iterable[Object]) -> str:
    """Return what lets the operator resume a pool: it resumes the pool of a drain that ends."""
    drains = drained(nodes)
    if not drains:
        states = shell("kubectl", "get", "sriovnetworknodestates", "-A")
        return typed("Check the SR-IOV network operator, which resumes the pool itself", states)
    end = (
        f"End what keeps {names(drains)} from being drained, after which the operator resumes the "
        "pool itself"
    )
    return typed(end, shell("virt-admit", "drain", *map(argument, drains)))
