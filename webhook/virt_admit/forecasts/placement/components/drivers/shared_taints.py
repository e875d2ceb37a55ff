"""Taints that came while VMs ran, and that keep every new pod off: VMs run on, and none that stops
or leaves finds a node.

Podmon of Dell CSM Resiliency taints a node to which the array has lost its connection, and removes
the taint once none of the pods that it protects is left there. Where it could not fence their
volumes, as the array itself did not answer, these run on, and the taint stays (later releases
remove it: dell/karavi-resiliency#292). It keeps pods from a node where a volume may still be
written: its guide forbids to remove it without a look at what podmon waits for. Other taints that
each node for VMs has alike, and no VM tolerates, are known by the VMs that run there nevertheless.
Nodes with other values of one key are shared out on purpose, which nothing here judges.
Sources: dell/karavi-resiliency:internal/monitor/node.go#nodeModeCleanupPods, :docs/RECOVERY.md;
issues dell/csm#1766 #1828 #1864.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from virt_admit.model.commands import argument, logs_of, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NODE, POD, VMI
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.settings import migration_limits
from virt_admit.model.messages import count, names
from virt_admit.model.scheduler import controller_taints, node_labels
from virt_admit.model.scheduler.node_selectors import tolerates

_KIND: Final = "kubevirt.io"
_LAUNCHER: Final = "virt-launcher"
"""The value of that label of the pods of VMs, which a policy may let tolerate more than the VMI."""

READS: Final[Reads] = union(
    clock.READS,
    {
        POD: (
            f"metadata.labels.{_KIND}",
            "metadata.ownerReferences",
            "spec.containers.name",
            "spec.nodeName",
            "spec.tolerations",
        ),
        NODE: ("spec.taints", f"metadata.labels.{SCHEDULABLE}", *CONDITIONS),
        KUBEVIRT: (
            "metadata.creationTimestamp",
            "spec.configuration.migrations.nodeDrainTaintKey",
            "spec.workloads.nodePlacement.tolerations",
        ),
        VMI: ("spec.tolerations", "status.nodeName", "status.phase"),
    },
)

_BINDING: Final = ("NoSchedule", "NoExecute")
_PODMON: Final = "podmon"
_PATIENCE: Final = datetime.timedelta(minutes=30)
"""Podmon looks each minute, and its guide expects the taint to be gone ten minutes after the
return of a node. Others may belong to work that goes on.
"""


class SharedTaint(NamedTuple):
    """Such a taint, with the nodes that have it."""

    key: str
    nodes: tuple[str, ...]
    every: bool
    """Whether no node for VMs is without it."""
    since: str
    """Since when, as `` since 2025-04-03T03:15:20Z``; empty: it does not say."""
    agent: str = ""
    """What sets and removes it; empty: that is not known."""
    pod: Object | None = None
    """Its pod on one of the nodes."""
    running: str = ""
    """The VMs that came before it, in words; empty: that is not how it was found."""
    taints: tuple[Mapping[str, Any], ...] = ()
    """The taints with this key, which each of the nodes then has alike."""

    @property
    def on(self) -> str:
        """The nodes in words."""
        where = names(self.nodes, 80)
        return f"each node for VMs ({where})" if self.every else where

    @property
    def reason(self) -> str:
        """Why it stays."""
        one = self.every or len(self.nodes) == 1
        where = f"{self.on} {'has' if one else 'have'} it{self.since}"
        if self.running:
            return f"{where}, and no VM tolerates it: {self.running} came before it"
        return (
            f"{where}; {self.agent} keeps it while a pod that it protects runs on a node that an "
            "array has lost"
        )

    @property
    def advice(self) -> str:
        """What ends it, without the command."""
        if self.running:
            return f"see what it was set for, then remove it from {names(self.nodes, 80)}"
        down = " and stay down until a node is free of it" if self.every else ""
        return (
            f"remove the taint from {names(self.nodes, 80)} once the array answers, if each pod "
            "that podmon waits for ran there all the time, else reboot the node: its volumes may "
            f"be in use, and its VMs end{down}"
        )

    @property
    def remedy(self) -> str:
        """The same with its command."""
        return typed(self.advice, self.command)

    @property
    def command(self) -> str:
        """The command of the first step."""
        if not self.running:
            log = logs_of(self.pod, container=_PODMON) if self.pod is not None else ""
            return log or shell("kubectl", "describe", "node", argument(self.nodes[0]))
        return shell("kubectl", "taint", "nodes", *map(argument, self.nodes), *self._removed)

    @property
    def _removed(self) -> Iterator[str]:
        """The taints as kubectl removes them."""
        for taint in self.taints:
            value = taint.get("value")
            written = f"={value}" if value and isinstance(value, str) else ""
            yield argument(f"{self.key}{written}:{taint['effect']}-")


def barring(vmi: Object, cluster: Cluster) -> str:
    """Return the taint because of which a running VM would start on no node again, its own among
    them; empty: none is known.
    """
    here, own = vmi.at("status", "nodeName").text, vmi.at("spec", "tolerations").value
    return next(
        (
            each.key
            for each in known(cluster).values()
            if each.every
            and here in each.nodes
            and not all(tolerates(own, taint) for taint in each.taints)
        ),
        "",
    )


def known(cluster: Cluster) -> Mapping[str, SharedTaint]:
    """Return these taints by key."""
    return cluster.cached(_known)


def _known(cluster: Cluster) -> Mapping[str, SharedTaint]:
    found: dict[str, dict[str, list[Field]]] = {}
    for node in cluster.known(NODE):
        for taint in node.at("spec", "taints").items():
            key = taint["key"].text
            if key and taint["effect"].text in _BINDING and node.label(SCHEDULABLE).text:
                own = found.setdefault(key, {})
                own.setdefault(node.name, []).append(taint)
    if not found or unlisted(cluster, NODE):
        return {}
    total = sum(bool(node.label(SCHEDULABLE).text) for node in cluster.known(NODE))
    every = (_of_key(key, own, total, cluster) for key, own in sorted(found.items()))
    return {each.key: each for each in every if each is not None}


def _of_key(
    key: str, taints: Mapping[str, Sequence[Field]], total: int, cluster: Cluster
) -> SharedTaint | None:
    who = controller_taints.owner(key)
    first = {name: own[0] for name, own in taints.items()}
    if controller_taints.is_of_podmon(key):
        return _of_podmon(key, who, first, total, cluster)
    if who or len(taints) < total or key == migration_limits.drain_taint(cluster):
        return None
    every = [taint for own in taints.values() for taint in own]
    alike = {frozenset(map(_meaning, own)) for own in taints.values()}
    if len(alike) > 1 or any(_passes(each) or _is_young(each, cluster) for each in every):
        return None
    return _untolerated(key, taints, cluster)


def _untolerated(
    key: str, taints: Mapping[str, Sequence[Field]], cluster: Cluster
) -> SharedTaint | None:
    """Return a taint that all nodes for VMs have alike; None: it is meant, or no VM runs there."""
    if any(unlisted(cluster, kind) for kind in (KUBEVIRT, VMI, POD)):
        return None
    there = sum(
        vmis.running(vmi) and vmi.at("status", "nodeName").text in taints
        for vmi in cluster.known(VMI)
    )
    own = tuple(each.value for each in next(iter(taints.values())))
    if not there or any(tolerates(each, taint) for each in _tolerations(cluster) for taint in own):
        return None
    came = f"{count(there, 'VM')} that run{'s' * (there == 1)} there"
    since = _since({name: each[0] for name, each in taints.items()})
    return SharedTaint(key, tuple(sorted(taints)), True, since, running=came, taints=own)


def _tolerations(cluster: Cluster) -> Iterator[Any]:
    """Yield what KubeVirt, each VM and each of their pods tolerates."""
    for kubevirt in cluster.known(KUBEVIRT):
        yield kubevirt.at("spec", "workloads", "nodePlacement", "tolerations").value
    for vmi in cluster.known(VMI):
        yield vmi.at("spec", "tolerations").value
    for pod in cluster.known(POD):
        if pod.label(_KIND).text == _LAUNCHER:
            yield pod.at("spec", "tolerations").value


def _meaning(taint: Field) -> tuple[str | None, str | None]:
    """Return what of a taint a toleration is compared with, after the key."""
    return taint["value"].text or None, taint["effect"].text


def _is_young(taint: Field, cluster: Cluster) -> bool:
    """Return whether a taint was set just now; most do not say when."""
    age = clock.since(taint["timeAdded"].text, cluster)
    return age is not None and age < _PATIENCE


def _of_podmon(
    key: str, who: str, taints: Mapping[str, Field], total: int, cluster: Cluster
) -> SharedTaint | None:
    """Return a taint of podmon that stays on nodes which report; None: it may still be removed."""
    ready = {
        node.name
        for node in cluster.known(NODE)
        if node.condition("Ready")["status"].text == "True"
    }
    left = {
        name: taint
        for name, taint in taints.items()
        if name in ready and clock.has_lasted(taint["timeAdded"].text, _PATIENCE, cluster)
    }
    if not left:
        return None
    pods = sorted(filter(_has_podmon, cluster.known(POD)), key=lambda each: each.full_name)
    pod = next((pod for pod in pods if pod.at("spec", "nodeName").text in left), None)
    own = ({"key": key, "effect": "NoSchedule"},)
    every = len(left) == total
    return SharedTaint(key, tuple(sorted(left)), every, _since(left), who, pod, taints=own)


def _has_podmon(pod: Object) -> bool:
    """Return whether a pod is the one of podmon on its node."""
    return bool(pod.owned_by("DaemonSet")) and pod.at("spec", "containers").named(_PODMON).present


def _passes(taint: Field) -> bool:
    """Return whether a taint goes with a drain or by itself."""
    value = taint.value
    return isinstance(value, dict) and node_labels.is_transient(value)


def _since(taints: Mapping[str, Field]) -> str:
    """Return since when the first of them is there."""
    times = filter(None, (clock.instant(taint["timeAdded"].text) for taint in taints.values()))
    first = clock.stamp(min(times, default=None))
    return f" since {first}" if first else ""
