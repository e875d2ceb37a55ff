"""Nodes whose kubelet has another root directory than the one that virt-handler mounts.

virt-operator mounts ``/var/lib/kubelet`` of the host, and no release up to 1.9 has a field for
another one. In its pod virt-handler finds no socket of the kubelet then, so none of its device
plugins is registered. The API does not have the root directory. A DaemonSet that registers with the
kubelet, as that of a CSI driver, is installed with it, perhaps with a wrong one: the CSINode has a
driver only if the kubelet found its socket. Sources:
kubevirt/kubevirt:pkg/virt-operator/resource/generate/components/daemonsets.go#NewHandlerDaemonSet,
issues 5913 and 8387 (virt-chroot follows no symlink);
kubernetes/kubernetes:pkg/kubelet/config/defaults.go; k0sproject/k0s:docs/directories.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import virt_handlers
from virt_admit.forecasts.placement.components import node_pods
from virt_admit.forecasts.placement.components.driver_daemons import HANDLER
from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CSI_NODE, DAEMON_SET, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.lookups import find

READS: Final[Reads] = union(
    virt_handlers.READS,
    node_pods.READS,
    {
        CSI_NODE: ("spec.drivers.name",),
        DAEMON_SET: ("spec.template.spec.volumes.hostPath.path", "spec.template.spec.volumes.name"),
        POD: CONDITIONS,
    },
)

_OWN: Final = ("kubelet", "device-plugin")
"""The volume of virt-handler with the root directory, and up to 1.4 the one below it."""
_PLUGINS: Final = re.compile(r"(/.+)/(?:device-plugins|plugins_registry)/*")
"""Where plugins of any kind register, below the root directory."""


class OtherRoot(NamedTuple):
    """The root directory that virt-handler mounts, and the one that the kubelet seems to have."""

    namespace: str
    """Of virt-handler."""
    mounted: str
    real: str
    shown_by: str
    """The DaemonSet that registers there."""
    certain: bool
    """Whether the kubelet has registered a driver of it, and no other DaemonSet mounts the root
    that virt-handler mounts."""

    @property
    def words(self) -> str:
        """Why the device plugins are not registered, as the end of a sentence."""
        if not self.certain:
            return (
                f"; its DaemonSet mounts {self.mounted}, and DaemonSet {self.shown_by} registers "
                f"below {self.real}"
            )
        return (
            f", as its DaemonSet mounts {self.mounted} while the kubelet's root seems to be "
            f"{self.real} (by DaemonSet {self.shown_by})"
        )

    @property
    def look(self) -> str:
        """Return what shows whether that is the cause, in words."""
        return f"see the kubelet's --root-dir on the node ({HANDLER} needs {self.mounted})"

    def remedy(self, nodes: Sequence[str], cluster: Cluster) -> str:
        """Return what helps on these nodes. Its first step is there, so that it has no command of
        its own.

        virt-operator takes a roll-out of its DaemonSet back, which restarts virt-handler on all
        nodes twice; a pod that is deleted is made again. To patch the DaemonSet is none:
        virt-handler also mounts below this path in the namespace of the host.
        """
        pods = filter(None, (virt_handlers.pod(cluster, name) for name in nodes))
        own = (argument(pod.name) for pod in pods)
        delete = shell("kubectl", "delete", "pod", *own, "-n", self.namespace)
        return (
            f"bind mount {self.real} on {self.mounted} of these nodes at each boot (no symlink); "
            f"then, while no migration from or to them runs, delete the {HANDLER} pods there "
            f"({delete})"
        )


def of_node(name: str, cluster: Cluster) -> OtherRoot | None:
    """Return that the kubelet of a node has another root directory; None: not known."""
    pod = virt_handlers.pod(cluster, name)
    handler = find(cluster, DAEMON_SET, pod.namespace, HANDLER) if pod is not None else None
    mounted = _mounted(handler) if handler is not None else ""
    if handler is None or not mounted:
        return None
    ready, registered = _ready(name, cluster), frozenset(_registered(name, cluster))
    shown = sorted(_registering(ready), key=lambda each: each[0] in registered)
    others = {root: daemon for daemon, root in shown}
    if len(others) != 1 or mounted in others:
        return None  # they do not agree, or that is not the cause
    ((real, daemon),) = others.items()
    agreed = all(path != mounted for each in ready for path in _paths(each))
    return OtherRoot(handler.namespace, mounted, real, daemon, agreed and daemon in registered)


def _mounted(handler: Object) -> str:
    for volume in handler.at("spec", "template", "spec", "volumes").items():
        path = volume.at("hostPath", "path").text
        if path and volume["name"].text in _OWN:
            below = _PLUGINS.fullmatch(path)
            return below[1] if below else path.rstrip("/")
    return ""


def _ready(node: str, cluster: Cluster) -> list[Object]:
    """Return the DaemonSets but virt-handler whose pod on a node is Ready, the last name first."""
    ready = {
        (pod.namespace, node_pods.daemon(pod))
        for pod in node_pods.of_node(node, cluster)
        if pod.is_true("Ready")
    }
    every = sorted(cluster.known(DAEMON_SET), key=lambda each: each.full_name, reverse=True)
    return [each for each in every if each.name != HANDLER and (each.namespace, each.name) in ready]


def _paths(daemon: Object) -> list[str]:
    return node_pods.host_paths(daemon.at("spec", "template", "spec"))


def _registering(daemons: Iterable[Object]) -> Iterator[tuple[str, str]]:
    """Yield the DaemonSets that register with the kubelet, each with the root directory."""
    for daemon in daemons:
        for path in _paths(daemon):
            if below := _PLUGINS.fullmatch(path):
                yield daemon.full_name, below[1]


def _registered(node: str, cluster: Cluster) -> Iterator[str]:
    """Yield the DaemonSets whose driver the kubelet of a node has registered."""
    found, pods = find(cluster, CSI_NODE, "", node), node_pods.of_node(node, cluster)
    for driver in found.at("spec", "drivers").items() if found is not None else ():
        if (pod := node_pods.of_driver(driver["name"].text or "", pods)) is not None:
            yield f"{pod.namespace}/{node_pods.daemon(pod)}"
