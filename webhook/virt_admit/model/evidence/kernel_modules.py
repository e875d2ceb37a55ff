"""Kernel modules that a pod cannot build or load on its node, by how its container ended.

A module fits one kernel. After an update of the system of a node, a loader may have none for the
new kernel, or no sources with which it builds one. A module that the kernel refuses to load is
there: it lacks its device or a signature. Sources: LINBIT/drbd:docker/entry.sh;
NVIDIA/gpu-driver-container; init_module(2); issues piraeusdatastore/piraeus-operator#858, #928.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from virt_admit.model.commands import logs_of, typed
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.kubernetes.workloads import CONTAINERS, container_statuses
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem

_FIELDS: Final = ("kernelVersion", "osImage", "architecture")
READS: Final[Reads] = {
    NODE: tuple(f"status.nodeInfo.{field}" for field in _FIELDS),
    POD: (
        *("metadata.ownerReferences", "spec.nodeName", *CONDITIONS),
        *(f"status.{kind}.{field}" for kind in CONTAINERS for field in ("name", "image")),
    ),
}
_MODULE: Final = re.compile(
    r"\.ko\b|\bmodprobe\b|\binsmod\b|\bvermagic\b|kernel[- ](?:modules?|headers|sources?|devel)\b",
    re.IGNORECASE,
)
_REFUSED: Final = re.compile(
    r"no such device|not permitted|permission denied|key was rejected|required key not available|"
    r"device or resource busy|cannot allocate memory",
    re.IGNORECASE,
)
"""Why a kernel does not load a module that it has."""
_NAME: Final = re.compile(r"[^\d(]+?(?=\s*(?:\(|\bv?\d|\Z))")
"""The name in an osImage, as of ``Ubuntu 22.04.5 LTS`` or ``Talos (v1.9.1)``."""


_System: TypeAlias = tuple[str, str]
"""The operating system of a node, and its architecture."""
_Key: TypeAlias = tuple[str, str, _System, str]
"""The namespace and name of a container, the system of its node, and where it comes from."""


def of_end(pod: Object, container: str, said: str, cluster: Cluster) -> Problem | None:
    """Return that a container which ends over a kernel module is on a node with another kernel than
    those of the same system on which the same container has done its work; None: not so, or not
    known.

    ``said``: what it says as it ends.
    """
    node = pod.at("spec", "nodeName").text or ""
    lines = [line for line in said.splitlines() if _MODULE.search(line)]
    lacks = lines and not any(map(_REFUSED.search, lines))
    own = _kernel(node, cluster) if lacks else ""
    working = _working(pod, container, _system(node, cluster), cluster) if own else {}
    if not working or own in working.values():
        return None
    others, where = names(sorted(set(working.values()))), names(sorted(working))
    words = f"{node} runs kernel {own}, while {container} works with {others} on {where}"
    ways = (
        f"give {node} a module for kernel {own} (a newer image of {container}, or a package of its "
        f"vendor), or boot it with {others}; until then boot no other node with {own}"
    )
    return Problem(words, typed(ways, logs_of(pod, "--previous", container=container)))


def _working(pod: Object, container: str, system: _System, cluster: Cluster) -> Mapping[str, str]:
    """Return the nodes of the same system on which the same container is ready, each with its
    kernel.

    Other pods of the namespace have containers of the same name. Those of one loader may have a
    DaemonSet for each node, and have the same image then.
    """
    box = next((box for box in container_statuses(pod) if box["name"].text == container), None)
    return {
        node: kernel
        for origin in (_origins(pod, box) if box is not None else ())
        for node, kernel in (
            entry(cluster, _loaded, (pod.namespace, container, system, origin)) or {}
        ).items()
    }


def _loaded(cluster: Cluster) -> Mapping[_Key, Mapping[str, str]]:
    """Return the nodes on which each container is ready, each with its kernel."""
    found: dict[_Key, dict[str, str]] = {}
    for pod in filter(lambda each: each.is_true("Ready"), cluster.known(POD)):
        node = pod.at("spec", "nodeName").text or ""
        kernel, system = _kernel(node, cluster), _system(node, cluster)
        for box in container_statuses(pod) if kernel and all(system) else ():
            for origin in _origins(pod, box):
                key = pod.namespace, box["name"].text or "", system, origin
                found.setdefault(key, {})[node] = kernel
    return found


def _origins(pod: Object, box: Field) -> Iterator[str]:
    """Yield what the pods of one workload have in common: their owner, and the image of a container
    without its tag and digest."""
    owner = pod.controller
    if owner is not None and (name := owner["name"].text):
        yield f"owner {name}"
    folder, slash, image = (box["image"].text or "").rpartition("/")
    if slash:
        yield f"image {folder}/{re.split('[:@]', image)[0]}"


def _kernel(node: str, cluster: Cluster) -> str:
    return _info(node, "kernelVersion", cluster)


def _system(node: str, cluster: Cluster) -> _System:
    """Return the operating system of a node without its version, and its architecture: a kernel of
    another one does not boot there."""
    name = _NAME.match(_info(node, "osImage", cluster))
    return (name[0].strip().lower() if name is not None else ""), _info(
        node, "architecture", cluster
    )


def _info(node: str, field: str, cluster: Cluster) -> str:
    found = find(cluster, NODE, "", node)
    return (found.at("status", "nodeInfo", field).text or "") if found is not None else ""
