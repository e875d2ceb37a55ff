"""Nodes that would take a VM, but to which no virt-handler goes: a taint or a demand of its
DaemonSet keeps it off, or Pod Security forbids its pod.

Launcher pods have the tolerations of their VM, virt-handler those of KubeVirt's ``nodePlacement``.
Without it a node gets neither the label ``kubevirt.io/schedulable`` nor devices. A node on which
no VM is to run is in order so, and those count alone that a VM waits for. Sources:
kubevirt/kubevirt:pkg/virt-operator/resource/placement/placement.go#InjectPlacementMetadata, issue
kubevirt/kubevirt#4284.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final

from virt_admit.forecasts.placement import candidates, headroom, virt_handlers
from virt_admit.forecasts.placement.components import driver_daemons
from virt_admit.forecasts.placement.components.driver_daemons import HANDLER, AbsentPod
from virt_admit.model.kubernetes.cluster import Cluster, cached, entry
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE, RESOURCE_QUOTA
from virt_admit.model.kubernetes.nodes import CONTROL_PLANE, ETCD, SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.settings import configuration
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, names, sentence
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.node_selectors import tolerates

READS: Final[Reads] = union(
    driver_daemons.READS, headroom.READS, virt_handlers.READS, {RESOURCE_QUOTA: ("spec",)}
)
_ROLES: Final = frozenset((*CONTROL_PLANE, ETCD))
_CHOSEN: Final = ("node selector ", "node affinity", "taint ")


def of_node(node: Object, cluster: Cluster) -> AbsentPod | None:
    """Return why virt-handler cannot go to a node; None: it can, that is not known, or the node
    has the usual taint of a control plane."""
    return entry(cluster, _absent, node.name)


def _absent(cluster: Cluster) -> Mapping[str, AbsentPod]:
    """Return the same by node."""
    found = ((node.name, _of_node(node, cluster)) for node in cluster.known(NODE))
    return {name: each for name, each in found if each is not None}


def _of_node(node: Object, cluster: Cluster) -> AbsentPod | None:
    kubevirt = configuration.known_or_none(configuration.kubevirt, cluster)
    if kubevirt is None or virt_handlers.pod(cluster, node.name) is not None:
        return None
    if any(taint["key"].text in _ROLES for taint in node.at("spec", "taints").items()):
        return None
    daemon = find(cluster, DAEMON_SET, kubevirt.namespace, HANDLER)
    found = driver_daemons.of_daemon(daemon, HANDLER, node.name, cluster) if daemon else None
    if found is None or not found.lasts or _SYSTEM in found.why:
        return None
    return found


_SYSTEM: Final = "label kubernetes.io/"
"""A demand for the operating system: the node is of another one."""


def first(among: Sequence[str], cluster: Cluster) -> AbsentPod | None:
    """Return the same of the first node that has it, unless virt-handler can go to one of them."""
    nodes = [find(cluster, NODE, "", name) for name in among]
    found = [of_node(node, cluster) if node is not None else None for node in nodes]
    return found[0] if found and all(found) else None


def problem(
    every: Mapping[str, str], begin: str, cluster: Cluster, tolerations: object = None
) -> Problem | None:
    """Return that a pod would fit on nodes to which virt-handler does not go; None: there are none.

    ``every``: why each node refuses it. ``begin``: how the reason begins. ``tolerations``: its own.
    """
    found = dict(_unreached(every, tolerations, cluster))
    if not found:
        return None
    absent = next(iter(found.values()))
    same = [name for name, each in found.items() if each.why == absent.why]
    # the room of nodes that the VM does not select is not why
    besides = (
        f"; the other nodes that it may use: {names(others)}"
        if (others := sorted(set(_admitting(every, cluster))))
        else ""
    )
    reason = f"{begin}{names(same)} could, but no virt-handler runs there: {absent.why}{besides}"
    return Problem(reason, absent.remedy, ProblemCause.NO_TARGET)


def _unreached(
    every: Mapping[str, str], tolerations: object, cluster: Cluster
) -> Iterator[tuple[str, AbsentPod]]:
    """Yield the nodes that refuse a pod for nothing but what virt-handler labels and offers.

    KubeVirt may be placed on some nodes alone: that is right as long as one of them suits.
    """
    suits: bool | None = None
    for name, causes in sorted(every.items()):
        if not virt_handlers.lacks_handler(causes):
            continue
        node = find(cluster, NODE, "", name)
        found = of_node(node, cluster) if node is not None else None
        if found is None or node is None:
            continue
        if suits is None:
            suits = any(_admitting(every, cluster))
        if not suits or _is_meant(tolerations, node):
            yield name, found


def _is_meant(tolerations: object, node: Object) -> bool:
    """Return whether one of these names a taint of the node, as one without a key does not."""
    given = tolerations if isinstance(tolerations, list) else []
    own = [each for each in given if isinstance(each, dict) and each.get("key")]
    return any(tolerates(own, taint.map) for taint in node.at("spec", "taints").items())


def _admitting(every: Mapping[str, str], cluster: Cluster) -> Iterator[str]:
    """Yield why nodes of KubeVirt refuse a pod which its selector, affinity and tolerations
    admit."""
    nodes = candidates.scheduler(cluster).state.nodes
    for name, causes in every.items():
        chosen = not any(cause.startswith(_CHOSEN) for cause in causes.split("; "))
        if chosen and SCHEDULABLE in nodes[name].labels and not virt_handlers.lacks_handler(causes):
            yield causes


@cached
def _wanted(cluster: Cluster) -> Mapping[str, tuple[str, AbsentPod]]:
    """Return the nodes that a VM waits for, each with the first such VM."""
    found: dict[str, tuple[str, AbsentPod]] = {}
    seen: set[Hashable] = set()
    for name, target in headroom.waiting(cluster):
        if target.placement.has_candidate or not target.placement.is_certain:
            continue
        every, tolerations = target.placement.refusals, target.pod.tolerations
        alike = frozenset(every.items()), str(tolerations)
        for node, absent in () if alike in seen else _unreached(every, tolerations, cluster):
            found.setdefault(node, (name, absent))
        seen.add(alike)
    return found


def finding(node: Object, cluster: Cluster) -> tuple[str, str] | None:
    """Return that a VM waits for a node without virt-handler, and the remedy; None: none does."""
    vm, absent = _wanted(cluster).get(node.name, ("", None))
    if absent is None:
        return None
    reason = f"no virt-handler runs on {node.name}, for which VM {vm} waits: {absent.why}"
    return reason, absent.remedy


def notes(node: Object, cluster: Cluster) -> Iterator[str]:
    """Yield the same as a sentence."""
    if found := finding(node, cluster):
        yield f"{capital(found[0])}. {sentence(found[1])}"
