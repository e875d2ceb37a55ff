"""Kernel modules that a pod cannot build or load on its node, by how its container ended.

A module fits one kernel. After an update of the system of a node, a loader may have none for the
new kernel, or no sources with which it builds one. Sources: LINBIT/drbd:docker/entry.sh;
NVIDIA/gpu-driver-container; issues piraeusdatastore/piraeus-operator#858, #928.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.model.commands import logs_of, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.workloads import CONTAINERS
from virt_admit.model.lookups import find
from virt_admit.model.messages import names

_FIELDS: Final = ("kernelVersion", "osImage", "architecture")
READS: Final[Reads] = {NODE: tuple(f"status.nodeInfo.{field}" for field in _FIELDS)}
_MODULE: Final = re.compile(
    r"\.ko\b|\bmodprobe\b|\binsmod\b|\bvermagic\b|kernel[- ](?:modules?|headers|sources?|devel)\b",
    re.IGNORECASE,
)

_NAME: Final = re.compile(r"[^\d(]+?(?=\s*(?:\(|\bv?\d|\Z))")
"""The name in an osImage, as of ``Ubuntu 22.04.5 LTS`` or ``Talos (v1.9.1)``."""


class OtherKernel(NamedTuple):
    """A kernel for which a pod has no module, where others have one for another kernel."""

    words: str
    remedy: str


def of_end(pod: Object, container: str, said: str, cluster: Cluster) -> OtherKernel | None:
    """Return that a container which ends over a kernel module is on a node with another kernel than
    those of the same system on which the same container has done its work; None: not so, or not
    known.

    ``said``: what it says as it ends.
    """
    node = pod.at("spec", "nodeName").text or ""
    own = _kernel(node, cluster) if _MODULE.search(said) else ""
    working = dict(_working(pod, container, _system(node, cluster), cluster)) if own else {}
    if not working or own in working.values():
        return None
    others, where = names(sorted(set(working.values()))), names(sorted(working))
    words = f"{node} runs kernel {own}, while {container} works with {others} on {where}"
    ways = (
        f"give {node} a module for kernel {own} (a newer image of {container}, or a package of its "
        f"vendor), or boot it with {others}; until then boot no other node with {own}"
    )
    return OtherKernel(words, typed(ways, logs_of(pod, "--previous", container=container)))


def _working(
    pod: Object, container: str, system: tuple[str, str], cluster: Cluster
) -> Iterator[tuple[str, str]]:
    """Yield the nodes of the same system on which the same container is ready, each with its
    kernel."""
    for each in cluster.known(POD, pod.namespace):
        if each.name == pod.name or not each.is_true("Ready"):
            continue
        boxes = (box for kind in CONTAINERS for box in each.at("status", kind).items())
        node = each.at("spec", "nodeName").text or ""
        kernel = _kernel(node, cluster)
        alike = kernel and all(system) and _system(node, cluster) == system
        if alike and any(box["name"].text == container for box in boxes):
            yield node, kernel


def _kernel(node: str, cluster: Cluster) -> str:
    return _info(node, "kernelVersion", cluster)


def _system(node: str, cluster: Cluster) -> tuple[str, str]:
    """Return the operating system of a node without its version, and its architecture: a kernel of
    another one does not boot there."""
    name = _NAME.match(_info(node, "osImage", cluster))
    return (name[0].strip().lower() if name is not None else ""), _info(
        node, "architecture", cluster
    )


def _info(node: str, field: str, cluster: Cluster) -> str:
    found = find(cluster, NODE, "", node)
    return (found.at("status", "nodeInfo", field).text or "") if found is not None else ""
