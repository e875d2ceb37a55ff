"""Nodes whose agent of Self Node Remediation has no peers to ask.

An agent that has lost the API server asks those of the other nodes with the label of workers. Up to
release 0.10 one without such peers treats its node as healthy, so a node that is only cut off is
never rebooted, while the manager counts its time and frees the pods. From 0.11 on it reboots its
node at once, also where the API server is down for all nodes. A node of the control plane decides
by the other ones as well. Sources: medik8s/self-node-remediation:
pkg/peers/peers.go#createSelector, pkg/apicheck/check.go#getWorkerPeersResponse (v0.9.0 to v0.13.0),
cmd/main.go#initSelfNodeRemediationAgent (sets no MinPeersForRemediation);
pkg/controlplane/manager.go#IsControlPlaneHealthy.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import remediation_agents
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE
from virt_admit.model.kubernetes.nodes import CONTROL_PLANE, HOSTNAME, WORKER, is_control_plane
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.messages import names

READS: Final[Reads] = {
    DAEMON_SET: ("spec.template.metadata.labels", "spec.template.spec.containers.image"),
    NODE: ("metadata.labels",),
}
_IMAGE: Final = re.compile(r"/self-node-remediation[a-z-]*:v?([0-9]{1,3})\.([0-9]{1,3})")
"""The image of the agents, where its tag is the release; of OpenShift it has a digest alone."""
_REBOOTS: Final = (0, 11)
"""The first release whose agents reboot a node without peers."""
WHY: Final = f"no other node has the label {WORKER}, by which they are found"
"""Why an agent has no peers."""
_MOST: Final = 10
"""Nodes that a command names one by one."""


class LonelyAgents(NamedTuple):
    """The nodes whose agent finds no peer."""

    nodes: tuple[str, ...]
    release: tuple[int, int] | None
    """None: no image shows it."""
    remedy: str

    @property
    def reboots(self) -> bool | None:
        """Whether such a node reboots when it is cut off; None: the release decides."""
        return None if self.release is None else self.release >= _REBOOTS

    @property
    def risk(self) -> str:
        """Why the pods of such a node run twice where it is cut off and not off."""
        which = f"{self.release[0]}.{self.release[1]}" if self.release is not None else "up to 0.10"
        return (
            f"Self Node Remediation {which} reboots no node whose agent finds no peers, and {WHY}"
        )


def known(cluster: Cluster) -> LonelyAgents | None:
    """Return the nodes whose agent finds no peers; None: each finds one, no agents are known,
    or not all nodes are.
    """
    return cluster.cached(_known)


def _known(cluster: Cluster) -> LonelyAgents | None:
    daemon = cluster.cached(remediation_agents.daemon_set)
    if daemon is None or unlisted(cluster, NODE):
        return None
    nodes = sorted(cluster.known(NODE), key=lambda each: each.name)
    hosts = {node.labels.get(HOSTNAME, node.name) for node in nodes if WORKER in node.labels}
    if len(hosts) > 1:
        return None
    own = [node for node in nodes if not is_control_plane(node)]
    lonely = [node.name for node in own if not hosts - {node.labels.get(HOSTNAME, node.name)}]
    return LonelyAgents(tuple(lonely), _release(daemon), _remedy(own)) if lonely else None


def _release(daemon: Object) -> tuple[int, int] | None:
    boxes = daemon.at("spec", "template", "spec", "containers").items()
    found = (_IMAGE.search(box["image"].text or "") for box in boxes)
    return next(((int(each[1]), int(each[2])) for each in found if each), None)


def _remedy(workers: list[Object]) -> str:
    """Return what gives each worker a peer."""
    if len(workers) < 2:
        return (
            "use a remediator that turns the node off, as FenceAgentsRemediation: there is no peer"
        )
    plain = [argument(each.name) for each in workers if WORKER not in each.labels]
    few = plain if len(plain) <= _MOST else ["-l", ",".join(f"!{key}" for key in CONTROL_PLANE)]
    way = f"label the workers ({names((each.name for each in workers), 60)}) as such, so that their"
    return typed(
        f"{way} agents find each other within peerUpdateInterval",
        shell("kubectl", "label", "node", *few, f"{WORKER}="),
    )
