"""Network file systems that a kubelet cannot unmount from a pod that has ended,
because their server is gone.

A hard NFS mount waits for its server without end, and so does its ``umount``; the pod stays until
the server answers again or the node restarts. Sources: issues rook/rook#6327,
kubernetes/kubernetes#72048 #31272 #123960; kubernetes-csi/csi-driver-nfs:pkg/nfs/nodeserver.go
(attribute ``server``); kubernetes/kubernetes:cmd/kubeadm/app/phases/controlplane/manifests.go (flag
``service-cluster-ip-range``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from virt_admit.model.commands import kubectl, typed
from virt_admit.model.kubernetes import kinds, nodes, service_endpoints
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, unlisted
from virt_admit.model.kubernetes.kinds import POD, PV, PVC, SERVICE, STORAGE_CLASS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find, volume_of
from virt_admit.model.problems import Problem

READS: Final[Reads] = union(
    service_endpoints.READS,
    {
        POD: ("spec.nodeName", "spec.volumes", "status.containerStatuses"),
        PVC: ("spec.volumeName",),
        PV: (
            "spec.nfs.server",
            "spec.csi.driver",
            "spec.csi.volumeAttributes.server",
            "spec.storageClassName",
        ),
        SERVICE: ("spec.clusterIP",),
        STORAGE_CLASS: ("parameters.nfsServerName", "parameters.nfsServerNamespace"),
    },
)
_NFS_SERVER: Final = kinds.guess("nfs.rook.io/v1alpha1", "NFSServer")
"""Of Rook. In a live cluster discovery finds it."""


_RANGE: Final = kinds.guess("networking.k8s.io/v1", "ServiceCIDR")
"""Addresses of Services, from Kubernetes 1.33 on. In a live cluster discovery finds it."""


class _Share(NamedTuple):
    server: str
    claim: str
    volume: Object | None
    """The PersistentVolume; None: the pod names the server itself."""

    @property
    def words(self) -> str:
        return (
            f"its volume {self.volume.name} (claim {self.claim})"
            if self.volume is not None
            else "its volume"
        )


def of_pod(pod: Object, cluster: Cluster) -> Problem | None:
    """Return which NFS volume most likely keeps a pod that has ended; None: a container runs,
    or it has no such volume.
    """
    if any(
        each.at("state", "running").present
        for each in pod.at("status", "containerStatuses").items()
    ):
        return None
    shares = list(_shares(pod, cluster))
    if not shares:
        return None
    judged = ((share, _missing(share, cluster)) for share in shares)
    share, (why, certain) = next(
        (each for each in judged if each[1].words), (shares[0], _Missing(""))
    )
    node = pod.at("spec", "nodeName").text or "its node"
    reboot = (
        f"reboot {node} once its VMs have left, because a hung NFS mount does not end otherwise"
    )
    see = kubectl("describe", PV, share.volume.name) if share.volume is not None else ""
    if certain:
        words = (
            f"the kubelet of {node} cannot unmount {share.words}: its NFS server {share.server} is "
            f"gone ({why})"
        )
        return Problem(
            words, typed(f"{reboot}, or let a server answer at {share.server} again", see)
        )
    perhaps = f"; {why}: if it was that of one, that is gone" if why else ""
    until = f"while NFS server {share.server} does not answer{perhaps}"
    return Problem(
        f"the kubelet has not reported its end. It cannot unmount {share.words} {until}",
        typed(f"see whether {node} reaches {share.server}, and repair that; else {reboot}", see),
    )


def _shares(pod: Object, cluster: Cluster) -> Iterator[_Share]:
    """Yield the NFS volumes of a pod."""
    for each in pod.at("spec", "volumes").items():
        if server := each.at("nfs", "server").text:
            yield _Share(server, "", None)
        name = each.at("persistentVolumeClaim", "claimName").text
        volume = volume_of(find(cluster, PVC, pod.namespace, name), cluster)
        if volume is not None and (server := _server(volume)):
            yield _Share(server, name or "", volume)


def _server(volume: Object) -> str:
    csi = volume.at("spec", "csi")
    by_driver = (
        csi.at("volumeAttributes", "server").text if "nfs" in (csi["driver"].text or "") else None
    )
    return volume.at("spec", "nfs", "server").text or by_driver or ""


class _Missing(NamedTuple):
    words: str
    """How it shows that a server inside the cluster is gone; empty: it is outside,
    or is not known to be gone.
    """
    certain: bool = False
    """Whether it is certainly inside the cluster."""


def _missing(share: _Share, cluster: Cluster) -> _Missing:
    try:
        described = service_endpoints.is_described(cluster) and not unlisted(cluster, SERVICE)
        found = _without_service(share.server, cluster) if described else _Missing("")
    except Unseen:
        return _Missing("")
    owner = _without_owner(share.volume, cluster) if found.words else ""
    return _Missing(f"{found.words}, and {owner}", certain=True) if owner else found


def _without_service(server: str, cluster: Cluster) -> _Missing:
    name, _, rest = server.removesuffix(".").partition(".")
    namespace, _, domain = rest.partition(".")
    if domain in _DOMAINS:
        return _Missing(service_endpoints.backing(cluster, namespace, name).problem, certain=True)
    own = next(
        (each for each in cluster.known(SERVICE) if each.at("spec", "clusterIP").text == server),
        None,
    )
    if own is not None:
        return _Missing(
            service_endpoints.backing(cluster, own.namespace, own.name).problem, certain=True
        )
    ranges = cluster.cached(_ranges)
    near = (f"{each.at('spec', 'clusterIP').text}/{_USUAL}" for each in cluster.known(SERVICE))
    inside = any(nodes.lies_in(server, each) for each in ranges or near)
    return _Missing(_NO_SERVICE if inside else "", inside and bool(ranges))


def _ranges(cluster: Cluster) -> frozenset[str]:
    """Return the ranges of addresses of Services,
    as ServiceCIDRs or the flags of the control plane name them.

    The flags are in the static pods of kubeadm and RKE2. They are not in ``READS``: the webhook
    would keep the arguments of every pod, so a scan of a live cluster does not have them.
    """
    written = (
        item.text for each in cluster.known(_RANGE) for item in each.at("spec", "cidrs").items()
    )
    pods = (
        pod
        for pod in cluster.known(POD)
        if pod.name.startswith(_COMPONENTS) and pod.namespace == "kube-system"
    )
    flags = (value for pod in pods for value in _flag(pod))
    return frozenset(each for each in (*written, *flags) if each)


_COMPONENTS: Final = ("kube-apiserver-", "kube-controller-manager-")


def _flag(pod: Object) -> Iterator[str]:
    """Yield the ranges of the flag, one for each IP family."""
    for container in pod.at("spec", "containers").items():
        words = " ".join(
            each.text or "" for part in ("command", "args") for each in container[part].items()
        )
        if found := _FLAG.search(words):
            yield from found[1].split(",")


_FLAG: Final = re.compile(r"(?:^|\s)--service-cluster-ip-range[= ](\S+)")


_NO_SERVICE: Final = "no Service has this address"
_DOMAINS: Final = ("svc", "svc.cluster.local")
"""What the name of a Service ends with. A name with another domain may be that of a host."""
_USUAL: Final = 16
"""Bits that addresses of Services usually have in common. Hosts may have them too,
so this is a hint alone.
"""


def _without_owner(volume: Object | None, cluster: Cluster) -> str:
    """Return that the NFSServer of Rook which a StorageClass names does not exist; empty: it does,
    or there is none.
    """
    name = volume.at("spec", "storageClassName").text if volume is not None else None
    found = find(cluster, STORAGE_CLASS, "", name)
    if found is None or unlisted(cluster, _NFS_SERVER):
        return ""
    server, space = (
        found.at("parameters", f"nfsServer{part}").text for part in ("Name", "Namespace")
    )
    known = any(
        (each.namespace, each.name) == (space, server) for each in cluster.known(_NFS_SERVER)
    )
    return (
        f"NFSServer {space}/{server} of StorageClass {name} does not exist"
        if server and not known
        else ""
    )
