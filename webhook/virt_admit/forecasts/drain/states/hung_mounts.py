"""Network file systems that a kubelet cannot unmount from a pod that has ended, because their server is gone.

A hard NFS mount waits for its server without end, and so does its ``umount``; the pod stays until the server answers again or
the node restarts. Sources: issues rook/rook#6327, kubernetes/kubernetes#72048 #31272 #123960;
kubernetes-csi/csi-driver-nfs:pkg/nfs/nodeserver.go (attribute ``server``).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import kinds, service_endpoints
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.kinds import POD, PV, PVC, SERVICE, STORAGE_CLASS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find

READS: Final[Reads] = union(
    service_endpoints.READS,
    {
        POD: ("spec.nodeName", "spec.volumes", "status.containerStatuses"),
        PVC: ("spec.volumeName",),
        PV: ("spec.nfs.server", "spec.csi.driver", "spec.csi.volumeAttributes.server", "spec.storageClassName"),
        SERVICE: ("spec.clusterIP",),
        STORAGE_CLASS: ("parameters.nfsServerName", "parameters.nfsServerNamespace"),
    },
)
_NFS_SERVER: Final = kinds.guess("nfs.rook.io/v1alpha1", "NFSServer")
"""Of Rook. Only snapshots hold it."""


class HungMount(NamedTuple):
    """Why a pod whose containers have ended cannot be unmounted."""

    why: str
    remedy: str


class _Share(NamedTuple):
    server: str
    claim: str
    volume: Object | None
    """The PersistentVolume; None: the pod names the server itself."""

    @property
    def words(self) -> str:
        return f"its volume {self.volume.name} (claim {self.claim})" if self.volume is not None else "its volume"


def of_pod(pod: Object, cluster: Cluster) -> HungMount | None:
    """Return which NFS volume most likely keeps a pod that has ended; None: a container runs, or it has no such volume."""
    if any(each.at("state", "running").present for each in pod.at("status", "containerStatuses").items()):
        return None
    shares = list(_shares(pod, cluster))
    gone = next(((each, why) for each in shares if (why := _missing(each, cluster))), None)
    if not shares:
        return None
    share, why = gone or (shares[0], "")
    node = pod.at("spec", "nodeName").text or "its node"
    reboot = f"reboot {node} once its VMs have left, because a hung NFS mount does not end otherwise"
    see = kubectl("describe", PV, share.volume.name) if share.volume is not None else ""
    if why:
        words = f"the kubelet of {node} cannot unmount {share.words}: its NFS server {share.server} is gone ({why})"
        return HungMount(words, typed(f"{reboot}, or let a server answer at {share.server} again", see))
    until = f"while NFS server {share.server} does not answer"
    return HungMount(
        f"the kubelet has not reported its end. It cannot unmount {share.words} {until}",
        typed(f"see whether {node} reaches {share.server}, and repair that; else {reboot}", see),
    )


def _shares(pod: Object, cluster: Cluster) -> Iterator[_Share]:
    """Yield the NFS volumes of a pod."""
    for each in pod.at("spec", "volumes").items():
        if server := each.at("nfs", "server").text:
            yield _Share(server, "", None)
        name = each.at("persistentVolumeClaim", "claimName").text
        claim = find(cluster, PVC, pod.namespace, name) if name else None
        bound = claim.at("spec", "volumeName").text if claim is not None else None
        volume = find(cluster, PV, "", bound) if bound else None
        if volume is not None and (server := _server(volume)):
            yield _Share(server, name or "", volume)


def _server(volume: Object) -> str:
    csi = volume.at("spec", "csi")
    by_driver = csi.at("volumeAttributes", "server").text if "nfs" in (csi["driver"].text or "") else None
    return volume.at("spec", "nfs", "server").text or by_driver or ""


def _missing(share: _Share, cluster: Cluster) -> str:
    """Return how it shows that a server inside the cluster is gone; empty: it is outside, or is not known to be gone."""
    try:
        described = service_endpoints.is_described(cluster) and not unlisted(cluster, SERVICE)
        words = _without_service(share.server, cluster) if described else ""
    except Unseen:
        return ""
    return ", and ".join(filter(None, (words, _without_owner(share.volume, cluster)))) if words else ""


def _without_service(server: str, cluster: Cluster) -> str:
    host = server.removesuffix(".").split(".")
    if len(host) >= _OF_SERVICE and host[2] == "svc":
        return service_endpoints.backing(cluster, host[1], host[0]).problem
    own = next((each for each in cluster.known(SERVICE) if each.at("spec", "clusterIP").text == server), None)
    if own is not None:
        return service_endpoints.backing(cluster, own.namespace, own.name).problem
    return "no Service has this address" if _is_of_services(server, cluster) else ""


_OF_SERVICE: Final = 3
"""Parts of ``NAME.NAMESPACE.svc``."""
_RANGE: Final = 16
"""Bits that addresses of Services have in common: the usual range has as many or fewer."""


def _is_of_services(server: str, cluster: Cluster) -> bool:
    """Return whether an address is in the range of Services, by the addresses that known Services have."""
    try:
        address = ipaddress.IPv4Address(server)
    except ValueError:
        return False
    for service in cluster.known(SERVICE):
        try:
            known = ipaddress.IPv4Network((service.at("spec", "clusterIP").text or "", _RANGE), strict=False)
        except ValueError:
            continue
        if address in known:
            return True
    return False


def _without_owner(volume: Object | None, cluster: Cluster) -> str:
    """Return that the NFSServer of Rook which a StorageClass names does not exist; empty: it does, or there is none."""
    name = volume.at("spec", "storageClassName").text if volume is not None else None
    found = find(cluster, STORAGE_CLASS, "", name) if name else None
    if found is None or unlisted(cluster, _NFS_SERVER):
        return ""
    server, space = (found.at("parameters", f"nfsServer{part}").text for part in ("Name", "Namespace"))
    known = any((each.namespace, each.name) == (space, server) for each in cluster.known(_NFS_SERVER))
    return f"NFSServer {space}/{server} of StorageClass {name} does not exist" if server and not known else ""
