"""Start-up taints that no agent removes: they stay until an administrator removes them.

An agent removes its taint from a node once it runs there. To uninstall it leaves the taint, which
keeps every new pod off the node: starts and migrations of VMs, and all else. An agent that looks at
its taint only at its start does not remove one that is set later, as by a node group of a cloud
(cilium/cilium#17103). Sources: cilium/cilium:Documentation/installation/taints.rst,
:operator/watchers/node_taint.go, issue cilium/cilium#31943;
kubernetes-sigs/aws-ebs-csi-driver:docs/install.md.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import node_pods
from virt_admit.forecasts.placement.components.drivers import shared_taints
from virt_admit.forecasts.placement.components.drivers.shared_taints import SharedTaint
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import CSI_NODE, DAEMON_SET, NODE, POD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.messages import names
from virt_admit.model.scheduler import controller_taints

READS: Final[Reads] = union(
    clock.READS,
    node_pods.READS,
    shared_taints.READS,
    {
        NODE: ("metadata.creationTimestamp", "spec.taints"),
        DAEMON_SET: (
            "metadata.labels",
            "spec.template.spec.tolerations.key",
            "spec.updateStrategy.type",
        ),
        CSI_NODE: ("spec.drivers.name",),
        POD: ("metadata.labels", "status.conditions.lastTransitionTime", *CONDITIONS),
    },
)

_BINDING: Final = ("NoSchedule", "NoExecute")
_NEW: Final = datetime.timedelta(hours=1)
"""The age of a node to which the agent may still come: nodes are tainted before it is installed."""
_PATIENCE: Final = datetime.timedelta(minutes=15)
"""A running agent that looks at its taint again has removed it by then."""
_UNDATED: Final = datetime.timedelta(hours=1)
"""The same for a taint that does not say when it was added."""
_SHORTEST: Final = 3
_COMMON: Final = frozenset(
    ("agent", "aws", "cluster", "com", "csi", "dev", "driver", "net", "node", "org", "storage")
)
"""Parts of a domain that do not tell one agent from another."""


class RunningAgent(NamedTuple):
    """The agent of a taint, which is Ready for long on each node that still has it."""

    daemon: Object
    restarts: bool
    """Whether the agent itself removes the taint, and a new pod of it comes by a restart."""
    ready: datetime.timedelta
    added: datetime.timedelta | None

    @property
    def reason(self) -> str:
        """Why the taint is stale."""
        age = f"it is there for {clock.duration(self.added)}" if self.added else "it stays"
        return (
            f"{age}, though the pods of DaemonSet {self.daemon.full_name} there are Ready for "
            f"{clock.duration(self.ready)}, and an agent may remove it only at its start"
        )

    @property
    def restart(self) -> str:
        """How the remedy begins if new pods of it remove the taint; empty: that does not help."""
        return f"restart DaemonSet {self.daemon.full_name}, or " if self.restarts else ""


class AgentTaint(NamedTuple):
    """A start-up taint that nothing removes."""

    key: str
    agent: str
    """What would remove it, as ``cilium``."""
    nodes: tuple[str, ...]
    every: bool
    """Whether no node of the cluster is without it."""
    own: str = ""
    """The node that is asked about."""
    running: RunningAgent | None = None
    """The agent if it is installed and runs there."""

    @property
    def on(self) -> str:
        """The nodes in words."""
        if len(self.nodes) == 1:
            return self.nodes[0]
        return f"all {len(self.nodes)} nodes" if self.every else names(self.nodes, 80)

    @property
    def reason(self) -> str:
        """Why it stays."""
        if self.running is not None:
            return self.running.reason
        return f"nothing removes that taint, as no DaemonSet and no pod of {self.agent} exists"

    @property
    def remedy(self) -> str:
        """What ends it, with the command."""
        return typed(self.advice, self.command)

    @property
    def advice(self) -> str:
        """The same without the command."""
        restart = self.running.restart if self.running is not None else ""
        return f"{restart}remove that taint"

    @property
    def command(self) -> str:
        """The command that ends it."""
        some = (self.own,) if self.own and len(self.nodes) > _MOST else self.nodes[:_MOST]
        which = ("--all",) if self.every and len(self.nodes) > 1 else tuple(map(argument, some))
        return shell("kubectl", "taint", "nodes", *which, f"{self.key}-")


_MOST: Final = 10
"""The nodes that one command names."""


def of_node(node: Object, cluster: Cluster) -> Iterator[tuple[Field, AgentTaint | SharedTaint]]:
    """Yield the taints of a node that nothing removes,
    as far as DaemonSets and pods could be read.
    """
    for taint in node.at("spec", "taints").items():
        found = (
            of_key(taint["key"].text or "", cluster) if taint["effect"].text in _BINDING else None
        )
        if found is not None and node.name in found.nodes:
            yield taint, found._replace(own=node.name) if isinstance(found, AgentTaint) else found


def of_key(key: str, cluster: Cluster) -> AgentTaint | SharedTaint | None:
    """Return the taint with this key if nothing removes it; None: its agent is installed,
    or that is not known.
    """
    if not controller_taints.is_of_start(key):
        return shared_taints.known(cluster).get(key)
    return cluster.cached(_left).get(key) or cluster.cached(_stale).get(key)


def _left(cluster: Cluster) -> Mapping[str, AgentTaint]:
    nodes: dict[str, list[str]] = {}
    for node in cluster.known(NODE):
        for taint in node.at("spec", "taints").items():
            key = taint["key"].text or ""
            if taint["effect"].text in _BINDING and _words(key) and not _is_new(node, cluster):
                nodes.setdefault(key, []).append(node.name)
    if not nodes or any(unlisted(cluster, kind) for kind in (NODE, DAEMON_SET, POD, CSI_NODE)):
        return {}
    installed = set(_installed(cluster))
    total = len(list(cluster.known(NODE)))
    return {
        key: AgentTaint(key, _words(key)[0], tuple(sorted(set(own))), len(set(own)) == total)
        for key, own in nodes.items()
        if installed.isdisjoint((key, controller_taints.agent_domain(key)))
        and not any(
            _is_of(each, _words(key)) for kind in (DAEMON_SET, POD) for each in cluster.known(kind)
        )
    }


def _stale(cluster: Cluster) -> Mapping[str, AgentTaint]:
    """Return the taints that stay although their agent is Ready on the node for long."""
    if any(unlisted(cluster, kind) for kind in (NODE, DAEMON_SET, POD)):
        return {}
    found: dict[str, dict[str, RunningAgent]] = {}
    nodes = list(cluster.known(NODE))
    for node in nodes:
        for taint in node.at("spec", "taints").items():
            agent = _running(node, taint, cluster) if taint["effect"].text in _BINDING else None
            if agent is not None:
                found.setdefault(taint["key"].text or "", {})[node.name] = agent
    return {key: _stale_one(key, own, every=len(own) == len(nodes)) for key, own in found.items()}


def _stale_one(key: str, agents: Mapping[str, RunningAgent], *, every: bool) -> AgentTaint:
    least = _least(agents.values())
    return AgentTaint(key, _words(key)[0], tuple(sorted(agents)), every, running=least)


def _running(node: Object, taint: Field, cluster: Cluster) -> RunningAgent | None:
    """Return the agent of a taint if its pod on the node is Ready for long; None: it may come."""
    key, added = taint["key"].text or "", clock.since(taint["timeAdded"].text, cluster)
    words = _words(key)
    daemons = (each for each in cluster.known(DAEMON_SET) if words and _is_of(each, words))
    # others of the same project have longer names, such as cilium-envoy and ebs-csi-node-windows
    daemon = min(daemons, key=lambda each: (len(each.name), each.full_name), default=None)
    if daemon is None or (added is not None and added < _PATIENCE):
        return None
    longest = _UNDATED if added is None else _PATIENCE
    for pod in node_pods.of_node(node.name, cluster):
        ready = pod.condition("Ready")
        age = clock.since(ready["lastTransitionTime"].text, cluster)
        own = node_pods.daemon(pod) == daemon.name and pod.namespace == daemon.namespace
        if own and ready["status"].text == "True" and not pod.deleted and age and age >= longest:
            by_hand = daemon.at("spec", "updateStrategy", "type").text == "OnDelete"
            itself = controller_taints.is_removed_by_agent(key)
            return RunningAgent(daemon, itself and not by_hand, age, added)
    return None


def _least(agents: Iterable[RunningAgent]) -> RunningAgent:
    """Return what is true of the agent on each of its nodes."""
    every = list(agents)
    added = [each.added for each in every if each.added is not None]
    shortest = min(added) if len(added) == len(every) else None
    return every[0]._replace(ready=min(each.ready for each in every), added=shortest)


def _installed(cluster: Cluster) -> Iterator[str]:
    """Yield the taints that a DaemonSet tolerates by name, and the CSI drivers that run: their
    agents may have other names.
    """
    for daemon in cluster.known(DAEMON_SET):
        for toleration in daemon.at("spec", "template", "spec", "tolerations").items():
            yield toleration["key"].text or ""
    for node in cluster.known(CSI_NODE):
        for driver in node.at("spec", "drivers").items():
            yield driver["name"].text or ""


def _is_new(node: Object, cluster: Cluster) -> bool:
    age = clock.age(node, cluster)
    return age is not None and age < _NEW


def _words(key: str) -> tuple[str, ...]:
    """Return what tells the agent of a taint from others, as ``ebs`` of
    ``ebs.csi.aws.com/agent-not-ready``.

    Empty: nothing does, or it may run outside of the cluster, as a cloud controller manager.
    """
    domain = controller_taints.agent_domain(key)
    if domain.endswith(("kubernetes.io", "k8s.io")):
        return ()
    parts = domain.lower().split(".")[:-1]  # without the top-level domain
    return tuple(part for part in parts if part not in _COMMON and len(part) >= _SHORTEST)


def _is_of(obj: Object, words: tuple[str, ...]) -> bool:
    """Return whether a DaemonSet or pod may belong to an agent, by its names and labels."""
    text = " ".join((obj.full_name, *obj.labels, *obj.labels.values())).lower()
    return any(word in text for word in words)


def of_refusals(refusals: Mapping[str, str], cluster: Cluster) -> AgentTaint | SharedTaint | None:
    """Return the taint that keeps a pod off a node, and that nothing removes; None:
    none is known.
    """
    # a node without other causes first
    causes = sorted((why.split("; ") for why in refusals.values()), key=len)
    keys = (
        cause.removeprefix("taint ")
        for each in causes
        for cause in each
        if cause.startswith("taint ")
    )
    for key in keys:
        found = of_key(key, cluster)
        if found is None:
            continue
        gone = isinstance(found, AgentTaint) and found.running is None
        if gone or refusals.keys() & {*found.nodes}:
            return found
    return None
