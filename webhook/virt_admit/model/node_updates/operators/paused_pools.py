"""MachineConfigPools that are paused, and the kubelets that stay old by it.

In an update of the control plane alone, an administrator pauses a pool, updates the control plane
by one or two minor releases, and resumes the pool afterwards, so that its nodes are drained once.
Such a pool holds nothing, unless the operator of the nodes requires it. The operator of the API
server says whether the next release still supports these kubelets. Sources:
openshift/enhancements#585;
openshift/cluster-kube-apiserver-operator:pkg/operator/kubeletversionskewcontroller/
kubelet_version_skew_controller.go#sync; openshift/machine-config-operator:pkg/operator/sync.go
#syncRequiredMachineConfigPools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from virt_admit.model import machine_pools
from virt_admit.model.commands import merge_patch, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import (
    CLUSTER_OPERATOR,
    CLUSTER_VERSION,
    MACHINE_CONFIG_POOL,
    NODE,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.lookups import find
from virt_admit.model.messages import count, names
from virt_admit.model.node_updates import sriov_drains
from virt_admit.model.node_updates.node_phases import PoolUpdate

READS: Final[Reads] = union(
    machine_pools.READS,
    sriov_drains.READS,
    {
        MACHINE_CONFIG_POOL: ("spec.paused", "metadata.labels"),
        NODE: ("status.nodeInfo.kubeletVersion",),
        CLUSTER_VERSION: (),
        CLUSTER_OPERATOR: (*CONDITIONS, "status.conditions.message", "status.conditions.reason"),
    },
)

API_SERVER: Final = "kube-apiserver"
"""The ClusterOperator that compares the kubelets with the API server."""
_REQUIRED: Final = "operator.machineconfiguration.openshift.io/required-for-upgrade"
"""The label of a pool for which the update of the cluster waits. That of the masters has it."""
_MASTER: Final = "master"
_OF_KUBELETS: Final = re.compile(r"(?i)kubelet (?:minor )?version")
_SUPPORTED: Final = re.compile(r"(?i)continue to be supported in the next OpenShift")
_MINOR: Final = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class PausedPool:
    """A MachineConfigPool that is paused, and its nodes."""

    pool: Object
    nodes: tuple[str, ...]
    old: tuple[str, ...]
    """Its nodes whose kubelet is of an older minor release than the API server."""
    kubelets: tuple[str, ...]
    """The minor releases of these kubelets, as ``v1.27``."""
    waits: bool
    """Whether it holds no update: the control plane goes on without it, as it is meant to."""

    @property
    def keeps(self) -> str:
        """Return which nodes have which kubelet, as a clause."""
        verb = "runs" if len(self.old) == 1 else "run"
        return f"{names(self.old, 80)} {verb} kubelet {names(self.kubelets)}"

    @property
    def title(self) -> str:
        """Return its kind and name."""
        return f"{self.pool.kind} {self.pool.name}"


def paused(cluster: Cluster) -> Sequence[PausedPool]:
    """Return the pools with nodes that an administrator has paused."""
    pools = cluster.known(MACHINE_CONFIG_POOL)
    is_any = any(pool.at("spec", "paused").boolean for pool in pools)
    return cluster.cached(_paused) if is_any else ()


def _paused(cluster: Cluster) -> tuple[PausedPool, ...]:
    return tuple(_pools(cluster))


def _pools(cluster: Cluster) -> Iterator[PausedPool]:
    every = cluster.known(NODE)
    newest = max(
        filter(None, (*map(_kubelet, every), _minor(cluster.server_version))), default=None
    )
    allowed = _is_supported(cluster)
    for pool, own in machine_pools.members(cluster.known(MACHINE_CONFIG_POOL), every):
        if not own or not pool.at("spec", "paused").boolean or sriov_drains.has_paused(pool, own):
            continue
        has = {node.name: found for node in own if (found := _kubelet(node)) is not None}
        old = {name: found for name, found in has.items() if newest is not None and found < newest}
        kubelets = tuple(f"v{major}.{minor}" for major, minor in sorted(set(old.values())))
        required = pool.name == _MASTER or _REQUIRED in pool.labels
        waits = not required and ((bool(old) and allowed) or _is_updating(cluster))
        yield PausedPool(pool, tuple(node.name for node in own), tuple(old), kubelets, waits)


def _kubelet(node: Object) -> tuple[int, int] | None:
    return _minor(node.at("status", "nodeInfo", "kubeletVersion").text)


def _minor(text: str | None) -> tuple[int, int] | None:
    found: Version | None = versions.parse_version(text)
    return None if found is None else (found.major, found.minor)


def _is_supported(cluster: Cluster) -> bool:
    """Return whether the next minor release certainly supports all kubelets."""
    operator = find(cluster, CLUSTER_OPERATOR, "", API_SERVER)
    said = operator.condition("Upgradeable") if operator is not None else None
    if said is None or said["status"].text != "True":
        return False
    return _SUPPORTED.search(said["message"].text or "") is not None


def _is_updating(cluster: Cluster) -> bool:
    """Return whether the control plane is being updated:
    a pool that is paused meanwhile follows later.
    """
    for version in cluster.known(CLUSTER_VERSION):
        last = next(iter(version.at("status", "history").items()), version["-"])
        return last["state"].text == "Partial"
    return False


# --- pools that wait as they are meant to --------------------------------------------------------


def waiting(cluster: Cluster) -> Sequence[PausedPool]:
    """Return the pools that the update of the control plane leaves out."""
    return [each for each in paused(cluster) if each.waits]


def is_waiting(pool: Object, cluster: Cluster) -> bool:
    """Return whether the update of the control plane leaves a pool out."""
    return any(each.pool.name == pool.name for each in waiting(cluster))


def going(updates: Sequence[PoolUpdate], cluster: Cluster) -> tuple[PoolUpdate, ...]:
    """Return the roll-outs without those of pools that wait."""
    left = {each.pool.name for each in waiting(cluster)}
    return tuple(each for each in updates if each.name not in left)


def waiting_nodes(cluster: Cluster) -> frozenset[str]:
    """Return the nodes that the update of the control plane leaves out."""
    return frozenset(name for each in waiting(cluster) for name in each.nodes)


def notes(cluster: Cluster) -> Iterator[str]:
    """Yield for each pool that waits why this is right, and when it is resumed."""
    until = _last_release(cluster)
    for each in waiting(cluster):
        supports = f"ClusterOperator {API_SERVER} supports them in the next minor release"
        why = f": {each.keeps}" if each.old else ""
        why += f", and {supports}" if each.old and _is_supported(cluster) else ""
        resume = f"Leave it paused until the control plane has {until}, and resume it then"
        drains = f"its {count(len(each.nodes), 'node')} are drained once"
        drains = "its node is drained once" if len(each.nodes) == 1 else drains
        paused = f"{each.title} is paused, which does not hold the control plane{why}"
        yield f"{paused}. {resume}: {drains}"


def _last_release(cluster: Cluster) -> str:
    """Return the minor release to which the channel leads, as ``4.16``."""
    for version in cluster.known(CLUSTER_VERSION):
        present = _minor(version.at("status", "desired", "version").text)
        channel = _MINOR.search(version.at("spec", "channel").text or "")
        if channel is not None and present is not None and _minor(channel[0]) != present:
            return channel[0]
    return "its last release"


# --- pools that hold the next release ------------------------------------------------------------


def since(pool: Object, cluster: Cluster) -> str:
    """Return for how long the nodes of a paused pool wait for its configuration, as a clause;
    empty: they have it, or that is not known.
    """
    updated = pool.condition("Updated")
    waits = updated["status"].text == "False"
    age = clock.since(updated["lastTransitionTime"].text, cluster) if waits else None
    return f" and its update has waited for {clock.duration(age)}" if age is not None else ""


def effect(pool: Object, cluster: Cluster) -> str:
    """Return what a pause means for the next release, as a clause; empty:
    nothing is known of it.
    """
    operator = find(cluster, CLUSTER_OPERATOR, "", API_SERVER)
    for each in paused(cluster):
        if each.pool.name == pool.name and each.old:
            refuses = operator is not None and bool(refused_for(operator, cluster))
            why = ", for which another minor release is refused"
            return f", so {each.keeps}{why if refuses else ''}"
    return ""


def refused_for(operator: Object, cluster: Cluster) -> Sequence[PausedPool]:
    """Return the pools whose old kubelets make an operator refuse another minor release."""
    return [each for each in paused(cluster) if each.old] if is_of_kubelets(operator) else ()


def is_of_kubelets(operator: Object) -> bool:
    """Return whether an operator refuses another minor release because of old kubelets."""
    condition = operator.condition("Upgradeable")
    if operator.name != API_SERVER or condition["status"].text != "False":
        return False
    return _OF_KUBELETS.search(condition["message"].text or "") is not None


def refusal(pools: Sequence[PausedPool]) -> tuple[str, str]:
    """Return why a release is refused for the kubelets of pools that are paused, and the remedy."""
    first = pools[0]
    words = "; ".join(f"{each.keeps}, as {each.title} is paused" for each in pools)
    command = merge_patch(MACHINE_CONFIG_POOL, first.pool.name, "", {"spec": {"paused": False}})
    drains = "which drains and reboots its nodes, and update to another minor release after that"
    return words, typed(f"Set spec.paused of {first.title} to false, {drains}", command)
