"""Start-up taints whose agent is not installed: it would remove them, so they stay until an administrator does.

An agent removes its taint from a node once it runs there. To uninstall it leaves the taint, which keeps every new pod off the
node: starts and migrations of VMs, and all else. Sources: cilium/cilium:Documentation/installation/taints.rst,
:operator/watchers/node_taint.go, issue cilium/cilium#31943; kubernetes-sigs/aws-ebs-csi-driver:docs/install.md.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import CSI_NODE, DAEMON_SET, NODE, POD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.messages import names
from virt_admit.model.scheduler import controller_taints

READS: Final[Reads] = union(
    clock.READS,
    {
        NODE: ("metadata.creationTimestamp", "spec.taints"),
        DAEMON_SET: ("metadata.labels", "spec.template.spec.tolerations.key"),
        CSI_NODE: ("spec.drivers.name",),
        POD: ("metadata.labels",),
    },
)

_BINDING: Final = ("NoSchedule", "NoExecute")
_NEW: Final = datetime.timedelta(hours=1)
"""The age of a node to which the agent may still come: nodes are tainted before it is installed."""
_SHORTEST: Final = 3
_COMMON: Final = frozenset(("agent", "aws", "cluster", "com", "csi", "dev", "driver", "net", "node", "org", "storage"))
"""Parts of a domain that do not tell one agent from another."""


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

    @property
    def on(self) -> str:
        """The nodes in words."""
        if len(self.nodes) == 1:
            return self.nodes[0]
        return f"all {len(self.nodes)} nodes" if self.every else names(self.nodes, 80)

    @property
    def reason(self) -> str:
        """Why it stays."""
        return f"nothing removes that taint, as no DaemonSet and no pod of {self.agent} exists"

    @property
    def remedy(self) -> str:
        """What ends it, with the command."""
        return typed("remove that taint", self.command)

    @property
    def command(self) -> str:
        """The command that ends it."""
        some = (self.own,) if self.own and len(self.nodes) > _MOST else self.nodes[:_MOST]
        which = ("--all",) if self.every and len(self.nodes) > 1 else tuple(map(argument, some))
        return shell("kubectl", "taint", "nodes", *which, f"{self.key}-")


_MOST: Final = 10
"""The nodes that one command names."""


def of_node(node: Object, cluster: Cluster) -> Iterator[tuple[Field, AgentTaint]]:
    """Yield the taints of a node that nothing removes, as far as DaemonSets and pods could be read."""
    for taint in node.at("spec", "taints").items():
        found = of_key(taint["key"].text or "", cluster) if taint["effect"].text in _BINDING else None
        if found is not None and node.name in found.nodes:
            yield taint, found._replace(own=node.name)


def of_key(key: str, cluster: Cluster) -> AgentTaint | None:
    """Return the taint with this key if nothing removes it; None: its agent is installed, or that is not known."""
    return cluster.cached(_left).get(key) if controller_taints.is_of_start(key) else None


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
        and not any(_is_of(each, _words(key)) for kind in (DAEMON_SET, POD) for each in cluster.known(kind))
    }


def _installed(cluster: Cluster) -> Iterator[str]:
    """Yield the taints that a DaemonSet tolerates by name, and the CSI drivers that run: their agents may have other names."""
    for daemon in cluster.known(DAEMON_SET):
        for toleration in daemon.at("spec", "template", "spec", "tolerations").items():
            yield toleration["key"].text or ""
    for node in cluster.known(CSI_NODE):
        for driver in node.at("spec", "drivers").items():
            yield driver["name"].text or ""


def _is_new(node: Object, cluster: Cluster) -> bool:
    age = clock.since(node.metadata["creationTimestamp"].text, cluster)
    return age is not None and age < _NEW


def _words(key: str) -> tuple[str, ...]:
    """Return what tells the agent of a taint from others, as ``ebs`` of ``ebs.csi.aws.com/agent-not-ready``.

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


def of_refusals(refusals: Mapping[str, str], cluster: Cluster) -> AgentTaint | None:
    """Return the start-up taint that keeps a pod off a node, and that nothing removes; None: none is known."""
    causes = sorted((why.split("; ") for why in refusals.values()), key=len)  # a node without other causes first
    keys = (cause.removeprefix("taint ") for each in causes for cause in each if cause.startswith("taint "))
    return next(filter(None, (of_key(key, cluster) for key in keys)), None)
