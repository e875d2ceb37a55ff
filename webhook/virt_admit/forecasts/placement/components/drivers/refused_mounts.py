"""NFS servers that refuse a node, by the words of its mount program, and the nodes that mount the
same export.

Sources: nfs-utils:utils/mount/error.c#mount_error (access denied by server; the server answers so
also for a path that it does not export); kubernetes/kubernetes:pkg/volume/nfs/nfs.go;
kubernetes-csi/csi-driver-nfs:docs/driver-parameters.md (server, share),
:pkg/nfs/nodeserver.go#NodePublishVolume (it mounts subDir in share);
kubernetes-sigs/nfs-subdir-external-provisioner:cmd/nfs-subdir-external-provisioner/provisioner.go
#Provision (the path is a directory of one export).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from posixpath import dirname, normpath
from typing import Final, NamedTuple

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import NODE, POD, PV, PVC
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find, volume_of
from virt_admit.model.messages import names
from virt_admit.model.scheduler.pods import claim_names

_MADE: Final = "pv.kubernetes.io/provisioned-by"
"""A volume without it was written by hand: its path may be an export of its own."""
READS: Final[Reads] = {
    NODE: ("status.addresses",),
    PV: (f"metadata.annotations.{_MADE}", "spec.nfs", "spec.csi.volumeAttributes"),
    PVC: ("spec.volumeName",),
    POD: ("spec.nodeName", "spec.volumes", "status.phase"),
}
_DENIED: Final = re.compile(
    r"access denied by server while mounting (\[[0-9a-fA-F:]{2,60}\]|[\w.-]{1,253}):(/\S{0,1000})"
)


class RefusedMount(NamedTuple):
    """An NFS server that refuses a node."""

    reason: str
    remedy: str
    of_node: bool
    """Whether other nodes mount volumes of this export."""
    at_server: str = ""
    """The part of the remedy that is done at the server."""


def of(said: str, on: str, cluster: Cluster) -> RefusedMount | None:
    """Return which NFS server refuses a node; None: the error is another one."""
    denied = _DENIED.search(said) if on else None
    if denied is None:
        return None
    server, path = denied[1], denied[2].rstrip(".")
    address = _address(on, cluster)
    client = f"{on} ({address})" if address else on
    roots = ((server.strip("[]"), each) for each in (normpath(path), dirname(normpath(path))))
    mounting = frozenset[str]().union(*(entry(cluster, _clients, root) or () for root in roots))
    words = f"NFS server {server} refuses {client}"
    if on in mounting:
        words += ", which has a volume of this export mounted"
    if on in mounting or not mounting:
        return RefusedMount(words, f"on {server}, export {path} to {client}", of_node=False)
    words += f", while {names(sorted(mounting), 120)} "
    words += "has a volume of this export mounted" if len(mounting) == 1 else _SEVERAL
    at_server = f"on {server}, add {client} to the clients of the export"
    cordon = shell("kubectl", "cordon", argument(on))
    remedy = typed(f"{at_server}, and until then cordon {on}", cordon)
    return RefusedMount(words, remedy, True, at_server)


_SEVERAL: Final = "have volumes of this export mounted"


def _address(name: str, cluster: Cluster) -> str:
    node = find(cluster, NODE, "", name)
    return next(iter(nodes.internal_addresses(node)), "") if node is not None else ""


def _clients(cluster: Cluster) -> Mapping[tuple[str, str], Set[str]]:
    """Return by NFS server and path in an export the nodes on which pods run with a volume of it.

    Another export of the server may have other clients.
    """
    found: dict[tuple[str, str], set[str]] = {}
    for pod in cluster.known(POD):
        node = pod.at("spec", "nodeName").text
        if node and pod.at("status", "phase").text == "Running":
            for claim in claim_names(pod):
                volume = volume_of(find(cluster, PVC, pod.namespace, claim), cluster)
                for served in _served(volume) if volume is not None else ():
                    found.setdefault(served, set()).add(node)
    return found


def _served(volume: Object) -> Iterator[tuple[str, str]]:
    """Yield the NFS server of a volume with paths in its export, in the tree of Kubernetes or of
    its CSI driver.
    """
    tree, csi = volume.at("spec", "nfs"), volume.at("spec", "csi", "volumeAttributes")
    share, below = csi["share"].text or "", (csi["subDir"].text or "").strip("/")
    path = tree["path"].text or (f"{share.rstrip('/')}/{below}" if below else share)
    if (server := tree["server"].text or csi["server"].text) and path:
        yield server, normpath(path)
        if below or (tree.present and volume.annotation(_MADE).present):
            yield server, dirname(normpath(path))
