"""Kernel modules that a pod cannot build or load on its node, by how its container ended.

A module fits one kernel. After an update of the system of a node, a loader may have none for the
new kernel, or no sources with which it builds one. A module that is there and that the kernel refuses
lacks its device or a signature, whatever the kernel. Sources: LINBIT/drbd:docker/entry.sh;
NVIDIA/gpu-driver-container; init_module(2); issues piraeusdatastore/piraeus-operator#858, #928.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.model.commands import logs_of, typed
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Field, Object
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
_REFUSED: Final = re.compile(
    r"no such device|not permitted|permission denied|key was rejected|required key not available|"
    r"device or resource busy|cannot allocate memory",
    re.IGNORECASE,
)
"""Why a kernel does not load a module that it has."""
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
    lines = [line for line in said.splitlines() if _MODULE.search(line)]
    lacks = lines and not any(map(_REFUSED.search, lines))
    own = _kernel(node, cluster) if lacks else ""
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
    kernel.

    Other pods of the namespace have containers of the same name. Those of one loader may have a
    DaemonSet for each node, and have the same image then.
    """
    owner, image = _owner(pod), _image(pod, container)
    for each in cluster.known(POD, pod.namespace):
        same = (owner and _owner(each) == owner) or (image and _image(each, container) == image)
        if each.name == pod.name or not same or not each.is_true("Ready"):
            continue
        node = each.at("spec", "nodeName").text or ""
        kernel = _kernel(node, cluster)
        alike = kernel and all(system) and _system(node, cluster) == system
        if alike and _box(each, container) is not None:
            yield node, kernel


def _owner(pod: Object) -> str:
    owner = pod.controller
    return (owner["name"].text or "") if owner is not None else ""


def _box(pod: Object, container: str) -> Field | None:
    """Return the state of a container of a pod; None: it has none."""
    boxes = (box for kind in CONTAINERS for box in pod.at("status", kind).items())
    return next((box for box in boxes if box["name"].text == container), None)


def _image(pod: Object, container: str) -> str:
    """Return the image of a container without its tag and digest; empty: not known."""
    box = _box(pod, container)
    folder, slash, name = (box["image"].text or "" if box is not None else "").rpartition("/")
    return f"{folder}{slash}{re.split('[:@]', name)[0]}" if slash else ""


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
