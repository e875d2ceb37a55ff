"""CSI drivers whose pod runs on a node, but whose kubelet looks for them in another directory.

The pod of a driver puts its socket into the directory of the host that its DaemonSet names, and the
kubelet looks for it below its own root directory alone. A symbolic link or a mount joins the two;
the driver is registered then. k3s and RKE2 write the arguments of a kubelet into an annotation of
its Node, and leave the root directory as it is by default. Sources:
kubernetes/kubernetes:cmd/kubelet/app/options/options.go (root-dir), :pkg/kubelet/kubelet_getters.go
#getPluginsRegistrationDir; k3s-io/k3s:pkg/nodeconfig/nodeconfig.go; longhorn/longhorn#7685, #3172.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.components import node_pods
from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import json_codec
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads

_ARGUMENTS: Final = ("k3s.io/node-args", "rke2.io/node-args")
"""The annotations of a Node with the arguments of its k3s or RKE2."""
_DEFAULT: Final = "/var/lib/kubelet"
_ROOT: Final = re.compile(r"(?:--kubelet-arg=)?(?:--)?root-dir=(/\S*)")
_REGISTRY: Final = "/plugins_registry"
"""Where a kubelet looks for the sockets of plugins, below its root directory."""

READS: Final[Reads] = {
    NODE: tuple(f"metadata.annotations.{key}" for key in _ARGUMENTS),
    POD: ("spec.volumes.hostPath.path",),
}


class UnlikeRoot(NamedTuple):
    """A kubelet whose root directory is not the one that a driver uses."""

    node: str
    own: str
    expected: str
    says: str
    """The annotation of the Node that tells it."""
    is_usual: bool
    """Whether another node with the driver is known to have the expected one."""

    @property
    def words(self) -> str:
        """What is wrong, as a part of a sentence about the driver."""
        return (
            f"its pod there registers in {self.expected}{_REGISTRY}, but the kubelet of "
            f"{self.node} has root-dir {self.own}, as its annotation {self.says} says"
        )

    @property
    def remedy(self) -> str:
        """What ends it, with the command that keeps VMs away until then."""
        return typed(
            f"{self.advice}{', as on other nodes' * self.is_usual} (the disk of {self.own} can be "
            "mounted there); keep VMs away until then",
            shell("kubectl", "cordon", argument(self.node)),
        )

    @property
    def advice(self) -> str:
        """What ends it, without a command."""
        return f"give the kubelet of {self.node} the root directory {self.expected}"


def of_pod(pod: Object, served: Iterable[str], cluster: Cluster) -> UnlikeRoot | None:
    """Return that the kubelet on the node of a driver's pod does not find its socket; None: it
    does, or that is not known.

    ``served``: the nodes that have the driver. If the kubelet of one of them has another root
    directory than the pods use, a link joins the two there, as it may on this node.
    """
    name = pod.at("spec", "nodeName").text or ""
    key, own = _of_node(name, cluster)
    ways = (path for path in node_pods.host_paths(pod["spec"]) if path.endswith(_REGISTRY))
    roots = {path.removesuffix(_REGISTRY) for path in ways}
    if not own or len(roots) != 1 or own in roots:
        return None
    (expected,) = roots
    others = {_of_node(each, cluster)[1] for each in served} - {""}
    if not others <= {expected}:
        return None
    return UnlikeRoot(name, own, expected, key, bool(others))


def _of_node(name: str, cluster: Cluster) -> tuple[str, str]:
    """Return the annotation of a Node that tells the root directory of its kubelet, and that
    directory; empty: not known."""
    return cluster.cached(_by_node).get(name, ("", ""))


def _by_node(cluster: Cluster) -> Mapping[str, tuple[str, str]]:
    found = {}
    for node in cluster.known(NODE):
        if key := next((key for key in _ARGUMENTS if key in node.annotations), ""):
            found[node.name] = key, _root(node.annotations[key])
    return found


def _root(said: str) -> str:
    """Return the root directory of a kubelet; empty: the annotation does not say how it was
    started.
    """
    given = json_codec.embedded(said)
    if not isinstance(given, list):
        return ""
    named = [_ROOT.fullmatch(each) for each in given if isinstance(each, str)]
    last = next((each for each in reversed(named) if each is not None), None)
    return last[1].rstrip("/") if last is not None else _DEFAULT
