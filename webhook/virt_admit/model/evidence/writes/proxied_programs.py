"""Programs whose proxy settings also catch the API server of their own cluster.

A program in a pod asks the API server by the address of Service default/kubernetes. Go sends that
request through the proxy of HTTPS_PROXY unless an entry of NO_PROXY covers the address: ``*``, the
address itself, or a network. A proxy outside the cluster knows no address of Services. Values that
do not stand in the pod itself, as those of a ConfigMap, are not judged. While the address of that
Service is not known, NO_PROXY must not even touch the networks of the others. Sources:
golang/net:http/httpproxy/proxy.go#useProxy, #init; kubernetes/client-go:rest/config.go
#InClusterConfig; kubevirt/containerized-data-importer issue 2695.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster, cached
from virt_admit.model.kubernetes.kinds import POD, SERVICE
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut

READS: Final[Reads] = {
    POD: ("spec.containers.env", "spec.containers.envFrom", "spec.containers.name"),
    SERVICE: ("spec.clusterIP",),
}
_NO_PROXY: Final = ("NO_PROXY", "no_proxy")
_PROXY: Final = ("HTTPS_PROXY", "https_proxy")
_ADDRESS: Final = "KUBERNETES_SERVICE_HOST"
_PORT: Final = "443"
"""The port of Service default/kubernetes (kubernetes/kubernetes:cmd/kube-apiserver/app/server.go
#APIServerServicePort)."""
_LONGEST: Final = 100
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_WIDTH: Final = 16
"""Bits that addresses of Services have in common at most times (--service-cluster-ip-range)."""
_MOST: Final = 1000
"""More entries of NO_PROXY than that are not judged."""


def fault(pod: Object, cluster: Cluster) -> str:
    """Return which proxy setting of a pod catches the API server, as a clause; empty: none is known
    to."""
    api, where = _api(cluster)
    if not where:
        return ""
    for container in pod.at("spec", "containers").items():
        excluded = _excluded(container)
        if excluded is not None and not _covers(excluded, where):
            no_proxy = f"its NO_PROXY ({cut(excluded, _LONGEST)})" if excluded else "no NO_PROXY"
            verb = "does not cover" if excluded else "covers"
            return (
                f"container {container['name'].text} has {_PROXY[0]} set, and {no_proxy} {verb} "
                f"{api}: its requests to the API server go to the proxy"
            )
    return ""


REMEDY: Final = (
    "add the networks of Services and pods, .svc and .cluster.local to the NO_PROXY beside "
    f"{_PROXY[0]}"
)


def _excluded(container: Field) -> str | None:
    """Return the value of NO_PROXY of a container with a proxy; None: it has none, or one of the
    values is not known."""
    values = {each["name"].text: each["value"].text for each in container["env"].items()}
    if _ADDRESS in values or not any(values.get(name) for name in _PROXY):
        return None
    own = [name for name in _NO_PROXY if name in values]
    if not own:
        return None if container["envFrom"].present else ""
    known = [values[name] for name in own]
    return None if None in known else next(filter(None, known), "")


@cached
def _api(cluster: Cluster) -> tuple[str, Collection[_Network]]:
    """Return the address of the API server in the cluster, in words, and where it is; without
    networks: that is not known.
    """
    service = find(cluster, SERVICE, "default", "kubernetes")
    if service is not None:
        address = service.at("spec", "clusterIP").text or ""
        own = _network(address)
        return f"Service default/kubernetes ({address})", () if own is None else (own,)
    addresses = {each.at("spec", "clusterIP").text or "" for each in cluster.known(SERVICE)}
    known = (_network(each) for each in addresses)
    found: set[_Network] = {
        each.supernet(new_prefix=_WIDTH)
        for each in known
        if isinstance(each, ipaddress.IPv4Network) and each.num_addresses == 1
    }
    words = "any network of Services" if len(found) > 1 else "the network of Services"
    return f"{words} ({', '.join(sorted(map(str, found))[:2])})", found


def _covers(excluded: str, where: Collection[_Network]) -> bool:
    """Whether NO_PROXY covers a part of these networks; also if it has too many entries."""
    entries = [each.strip() for each in excluded.split(",")]
    networks = [each for each in map(_network, entries[:_MOST]) if each is not None]
    return (
        len(entries) > _MOST
        or "*" in entries
        or any(
            one.version == own.version and one.overlaps(own) for one in networks for own in where
        )
    )


def _network(entry: str) -> _Network | None:
    """Return the network of an entry of NO_PROXY; None: a domain, or an address with a port that
    the API server does not have."""
    for text in (entry, entry.removesuffix(f":{_PORT}")):
        try:
            return ipaddress.ip_network(text.strip("[]"), strict=False)
        except ValueError:
            continue
    return None
