"""The pod of a DaemonSet that serves something on one node, found by the name of what it serves.

A CSI driver does not name its pods. They are found by the words in the names of their DaemonSets:
``longhorn-csi-plugin`` for ``driver.longhorn.io``, ``csi-rbdplugin`` for
``rook-ceph.rbd.csi.ceph.com``. The DaemonSets of network plugins have the names that their
manifests give them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from virt_admit.model.commands import logs_of
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, POD, STATEFUL_SET
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import grouped

READS: Final[Reads] = {
    POD: (
        *("metadata.ownerReferences", "spec.containers.name", "spec.nodeName"),
        *("spec.volumes.hostPath.path", "status.phase"),
    )
}
PODLESS_READS: Final[Reads] = dict.fromkeys(
    (DEPLOYMENT, STATEFUL_SET), ("status.replicas", "spec.template.spec.containers.name")
)
_GENERAL: Final = re.compile(r"csi|plugin|node|driver|daemonset|agent|server|[^a-z]")
"""Words that say what a DaemonSet is, not whose."""
_OF_DRIVERS: Final = re.compile(r"csi|plugin|node")
_ENDS: Final = frozenset(("com", "csi", "driver", "io", "k8s", "net", "org", "storage"))
_ENOUGH: Final = 0.5
"""The share of a name that has to be words of a driver."""


def of_node(node: str, cluster: Cluster) -> Sequence[Object]:
    """Return the pods of DaemonSets on a node, by name."""
    return entry(cluster, _by_node, node) or ()


def of_driver(driver: str, pods: Iterable[Object]) -> Object | None:
    """Return the pod that most likely registers a CSI driver; None: none of these does."""
    return most_likely(driver, ((daemon(pod), pod) for pod in pods))


def may_register(
    driver: str, pods: Iterable[Object], others: Iterable[str] = ()
) -> Iterator[Object]:
    """Yield the pods that may register a CSI driver: during an update a node may have two.

    ``others``: further drivers. Rook runs csi-cephfsplugin beside csi-rbdplugin, and the name of
    each has words of both drivers.
    """
    further = tuple(others)
    for pod in pods:
        name = daemon(pod)
        own = _rating(driver, name)
        if own > _ENOUGH and all(_rating(each, name) <= own for each in further):
            yield pod


def of_software(driver: str, pods: Iterable[Object]) -> Iterator[Object]:
    """Yield the pods whose DaemonSet has a word of the name of a CSI driver, as longhorn-manager
    has of driver.longhorn.io: they are of the same software, as far as names tell."""
    words = _words(driver)
    for pod in pods:
        if not words.isdisjoint(re.split(r"[^a-z0-9]+", daemon(pod).lower())):
            yield pod


def _words(driver: str) -> frozenset[str]:
    return frozenset(re.split(r"[^a-z0-9]+", driver.lower())) - _ENDS - {""}


def most_likely(driver: str, named: Iterable[tuple[str, Object]]) -> Object | None:
    """Return which of these objects most likely registers a CSI driver; None: none of these does.

    ``named``: each with the name of its DaemonSet.
    """
    rated = [(_rating(driver, name), each) for name, each in named]
    best = max(rated, key=lambda each: each[0], default=(0.0, None))
    return best[1] if best[0] > _ENOUGH else None


def likely_driver(daemon: str, drivers: Iterable[str]) -> str:
    """Return which of these CSI drivers a DaemonSet most likely registers, by its name; empty:
    none.
    """
    rated = [(_rating(driver, daemon), driver) for driver in drivers]
    best = max(rated, key=lambda each: each[0], default=(0.0, ""))
    return best[1] if best[0] > _ENOUGH else ""


@functools.lru_cache(maxsize=4096)
def _rating(driver: str, name: str) -> float:
    """Return how likely a DaemonSet of that name registers a CSI driver."""
    words = sorted(_words(driver), key=len, reverse=True)
    return _share(name, words) if _OF_DRIVERS.search(name) else 0.0


def controller_of(driver: str, cluster: Cluster) -> Object | None:
    """Return a pod of the controller of a CSI driver, by its name; None: none is known."""
    words = sorted(_words(driver), key=len, reverse=True)
    rated = [
        (_share(_CONTROLS.sub("", name), words), "csi" in name, pod)
        for pod in sorted(cluster.known(POD), key=lambda each: each.full_name)
        if (name := _owner(pod))
        and (_CONTROLS.search(name) or _attaches(pod))
        and pod.at("status", "phase").text == "Running"
    ]
    best = max(rated, key=lambda each: each[:2], default=(0.0, False, None))
    return best[2] if best[0] > _ENOUGH else None


def attachers_of(driver: str, cluster: Cluster) -> list[Object]:
    """Return the pods with the sidecar that attaches the volumes of a CSI driver, by the names of
    their owners, else, where these name no software, of their namespaces."""
    return [each for each in _attaching(driver, cluster) if each.kind == POD.kind]


def podless_attacher(driver: str, cluster: Cluster) -> Object | None:
    """Return the Deployment or StatefulSet with that sidecar which has no pods; None: pods of it or
    of another one are known, or none is."""
    known = _attaching(driver, cluster)
    return known[0] if known and all(each.kind != POD.kind for each in known) else None


def _attaching(driver: str, cluster: Cluster) -> list[Object]:
    words = _words(driver)
    rated = [(_share_of_owner(each, words), each) for each in cluster.cached(_attachers)]
    best = max((share for share, _ in rated), default=0.0)
    return [each for share, each in rated if share == best] if best > _ENOUGH else []


def _attachers(cluster: Cluster) -> Sequence[Object]:
    """Return the pods with that sidecar, and the workloads that have none.

    csi-cephfsplugin-provisioner is not taken for that of RBD while the latter is scaled to 0.
    """
    pods = [pod for pod in cluster.known(POD) if not pod.ended and _attaches(pod)]
    stopped = [
        each
        for kind in (DEPLOYMENT, STATEFUL_SET)
        for each in cluster.known(kind)
        if not each.at("status", "replicas").integer and _attaches(each)
    ]
    return sorted((*pods, *stopped), key=lambda each: each.full_name)


def _share_of_owner(found: Object, words: frozenset[str]) -> float:
    name = _owner(found) if found.kind == POD.kind else found.name
    own = _CONTROLS.sub("", name)
    if not _GENERAL.sub("", own):  # csi-attacher in longhorn-system
        return 0.0 if words.isdisjoint(found.namespace.split("-")) else 1.0
    return _share(own, sorted(words, key=len, reverse=True))


def is_helper(container: str) -> bool:
    """Return whether a container beside a CSI driver neither is the driver nor attaches volumes:
    without it, volumes are attached and mounted all the same."""
    return container not in _ATTACHERS and _HELPERS.search(container) is not None


def may_work(pod: Object) -> bool:
    """Return whether the containers of a pod are ready, but for helpers beside others."""
    states = tuple(pod.at("status", "containerStatuses").items())
    own = [each for each in states if not is_helper(each["name"].text or "")] or states
    return bool(states) and not any(each["ready"].boolean is False for each in own)


_HELPERS: Final = re.compile(
    r"registrar|liveness|health|probe|snapshot|resizer|omap|addons|log-|logcollector|rotat"
    r"|(?:\A|csi-|external-|group-)provisioner\Z|rbac-proxy|metrics|reloader|syncer|modifier"
    r"|mutator|replicator|metadata-retriever|podmon|telemetry"
)
"""The sidecars of kubernetes-csi, of ceph-csi and of the OpenShift operators, and those of vSphere
(vsphere-syncer), EBS (volumemodifier), HPE, Dell and Portworx. hostpath-provisioner is a driver.
"""


def deployment_of(pod: Object) -> str:
    """Return the name of the Deployment of a pod; empty: it has none."""
    return _owner(pod) if pod.owned_by("ReplicaSet") else ""


def workload_of(pod: Object) -> str:
    """Return the name of the Deployment, StatefulSet or DaemonSet of a pod; empty: it has none."""
    return _owner(pod) or daemon(pod)


def _attaches(found: Object) -> bool:
    """Return whether a pod or its workload has the sidecar that attaches volumes, whatever its name
    is.

    The Deployment of Trident has the name of its DaemonSet (NetApp/trident:cli/k8s_client).
    """
    spec = found["spec"] if found.kind == POD.kind else found.at("spec", "template", "spec")
    return any(each["name"].text in _ATTACHERS for each in spec["containers"].items())


_CONTROLS: Final = re.compile(r"controller|provisioner|attacher|ctrlplugin")
_ATTACHERS: Final = frozenset(("csi-attacher", "external-attacher", "attacher"))
"""Of most drivers; of democratic-csi and Hitachi; of Dell (dell/helm-charts:charts/csi-powerstore).
"""
_HASH: Final = re.compile(r"-[a-z0-9]{1,10}\Z")
"""How a Deployment names its ReplicaSets."""


def _owner(pod: Object) -> str:
    """Return the name of the Deployment or StatefulSet of a pod; empty: it has none."""
    return _HASH.sub("", pod.owned_by("ReplicaSet")) or pod.owned_by("StatefulSet")


def logs(pod: Object) -> str:
    """Return the command that shows the logs of all containers of a pod."""
    return logs_of(pod, "--all-containers")


_MULTUS: Final = ("kube-multus-ds", "multus", "rke2-multus", "rke2-multus-ds")
"""Upstream, of OpenShift, and of RKE2 and Harvester."""
_OF_PLUGINS: Final[dict[str, tuple[str, ...]]] = {
    "antrea": ("antrea-agent",),
    "aws-cni": ("aws-node",),
    "calico": ("calico-node", "canal", "rke2-canal"),
    "cilium-cni": ("cilium",),
    "flannel": ("kube-flannel-ds",),
    "kube-ovn": ("kube-ovn-cni", "ovs-ovn"),
    "multus": _MULTUS,
    "multus-shim": _MULTUS,
    "openshift-sdn": ("sdn",),
    "ovn-k8s-cni-overlay": ("ovnkube-node",),
    "whereabouts": ("whereabouts",),
}
"""The DaemonSets of a network plugin, by the type in its configuration:
as in the manifests of each project.
"""


def of_plugin(plugin: str, pods: Sequence[Object]) -> Object | None:
    """Return the first pod of a network plugin; None: none of these has made it,
    or its DaemonSet is not known.
    """
    return next(all_of_plugin(plugin, pods), None)


def all_of_plugin(plugin: str, pods: Sequence[Object]) -> Iterator[Object]:
    """Yield the pods of a network plugin, that which it calls first: of one that is not known those
    that mount the folders of plugins and have a word of its name."""
    for known in _OF_PLUGINS.get(plugin, ()):
        yield from (pod for pod in pods if daemon(pod) == known)
    if plugin not in _OF_PLUGINS:
        words = frozenset(_WORD.findall(plugin.lower())) - _OF_ALL_PLUGINS
        for pod in pods:
            if not words.isdisjoint(_WORD.findall(daemon(pod))) and is_of_network(pod):
                yield pod


_WORD: Final = re.compile(r"[a-z0-9]+")
_OF_ALL_PLUGINS: Final = frozenset(("cni", "k8s", "kube", "net", "network", "node", "plugin"))


def host_paths(spec: Field) -> list[str]:
    """Return the paths of the host that the spec of a pod mounts."""
    return [
        path.rstrip("/")
        for each in spec["volumes"].items()
        if (path := each.at("hostPath", "path").text)
    ]


def is_of_network(pod: Object) -> bool:
    """Return whether a pod mounts the folders of network plugins of its host."""
    return any("/cni" in path for path in host_paths(pod["spec"]))


def daemon(pod: Object) -> str:
    """Return the DaemonSet of a pod; empty: none has made it."""
    return pod.owned_by("DaemonSet")


def _share(name: str, words: Iterable[str]) -> float:
    """Return how much of a name is made of these words."""
    own = rest = _GENERAL.sub("", name.lower())
    for word in filter(None, words):
        rest = rest.replace(word, "")
    return 1 - len(rest) / len(own) if own else 0.0


def _by_node(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    own = sorted(filter(daemon, cluster.known(POD)), key=lambda each: each.full_name)
    return grouped(own, lambda pod: pod.at("spec", "nodeName").text or "")
