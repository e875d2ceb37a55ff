"""Containers that a runtime does not create, as a mount of their node is private.

What a container mounts with ``mountPropagation: Bidirectional`` has to be on a shared mount of the
node, with ``HostToContainer`` on one that is shared or a slave. The kernel begins with private
ones; systemd shares them at boot, other init systems such as OpenRC do not. Sources: containerd/
containerd:pkg/cri/opts/spec_linux_opts.go#ensureShared #ensureSharedOrSlave; kubernetes/website:
content/en/docs/concepts/storage/volumes.md#mount-propagation; kubevirt/kubevirt#8615, #9610.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.kubernetes.workloads import CONTAINERS, container_statuses
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem

READS: Final[Reads] = {
    NODE: ("status.nodeInfo.osImage",),
    POD: (
        *("metadata.ownerReferences", "spec.nodeName", *CONDITIONS),
        *(f"status.{kind}.{field}" for kind in CONTAINERS for field in ("name", "state.waiting")),
    ),
}
_REFUSED: Final = re.compile(
    r'path "?([^"\s]{1,200})"? is mounted on "?([^"\s]{1,200})"? but it is not a shared'
    r"( or slave)? mount"
)


def of_pod(pod: Object, cluster: Cluster) -> Problem | None:
    """Return that a mount of its node keeps a container of a pod from being created; None: the
    runtime does not say so."""
    for status in container_statuses(pod):
        waiting = status.at("state", "waiting")
        said = _REFUSED.search(waiting["message"].text or "")
        if said is not None:
            return _problem(pod, status, said, cluster)
    return None


def _problem(pod: Object, status: Field, said: re.Match[str], cluster: Cluster) -> Problem:
    path, mount, slave = said[1], said[2], said[3]
    node, name = pod.at("spec", "nodeName").text or "its node", status["name"].text or "?"
    mode = "HostToContainer" if slave else "Bidirectional"
    own, owner = _system(node, cluster), pod.controller
    alike = (pod.namespace, owner["uid"].text) if owner is not None else None
    works = sorted({*(entry(cluster, _working, alike) or ())} - {own, ""}) if alike else []
    others = f", while it works on {names(works)}" if works else ""
    system = f" (osImage {own}{others})" if own else ""
    reason = (
        f"{status.at('state', 'waiting', 'reason').text or 'not created'}: container {name} "
        f"needs mountPropagation {mode} for {path}, but mount {mount} of {node} is not "
        f"shared{system}"
    )
    remedy = (
        f'run "mount --make-rshared {mount}" on {node}, also at each boot before its kubelet '
        "starts, as systemd does; the kubelet then creates the container by itself"
    )
    return Problem(reason, remedy, brief=f"mount {mount} of {node} is not shared")


def _working(cluster: Cluster) -> Mapping[tuple[str, str | None], Set[str]]:
    """Return the systems of the nodes on which pods are ready, by their namespace and owner."""
    found: dict[tuple[str, str | None], set[str]] = {}
    for pod in cluster.known(POD):
        if (owner := pod.controller) is not None and pod.is_true("Ready"):
            systems = found.setdefault((pod.namespace, owner["uid"].text), set())
            systems.add(_system(pod.at("spec", "nodeName").text or "", cluster))
    return found


def _system(node: str, cluster: Cluster) -> str:
    found = find(cluster, NODE, "", node)
    return (found.at("status", "nodeInfo", "osImage").text or "") if found is not None else ""
