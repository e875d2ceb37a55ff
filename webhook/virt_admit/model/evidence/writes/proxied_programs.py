"""Programs whose proxy settings also catch the API server of their own cluster.

A program in a pod asks the API server by the address of Service default/kubernetes. Go sends that
request through the proxy of HTTPS_PROXY unless an entry of NO_PROXY covers the address: ``*``, the
address itself, or a network. A proxy outside the cluster knows no address of Services. Values that
do not stand in the pod itself, as those of a ConfigMap, are not judged. Sources:
golang/net:http/httpproxy/proxy.go#useProxy; kubernetes/client-go:rest/config.go#InClusterConfig;
kubevirt/containerized-data-importer issue 2695.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from virt_admit.model.kubernetes.cluster import Cluster
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
_LONGEST: Final = 100


def fault(pod: Object, cluster: Cluster) -> str:
    """Return which proxy setting of a pod catches the API server, as a clause; empty: none is known
    to."""
    api = _api(cluster)
    if api is None:
        return ""
    named, addresses = api
    for container in pod.at("spec", "containers").items():
        excluded = _excluded(container)
        if excluded is not None and not any(_covers(excluded, each) for each in addresses):
            no_proxy = f"its NO_PROXY ({cut(excluded, _LONGEST)})" if excluded else "no NO_PROXY"
            verb = "does not cover" if excluded else "covers"
            return (
                f"container {container['name'].text} has {_PROXY[0]} set, and {no_proxy} {verb} "
                f"{named}: its requests to the API server go to the proxy"
            )
    return ""


REMEDY: Final = "add the networks of Services and pods, .svc and .cluster.local to its NO_PROXY"


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


def _api(cluster: Cluster) -> tuple[str, list[str]] | None:
    """Return how to name the address of the API server, and the addresses that it may be: that of
    its Service, or those of the others in the same network; None: none is known."""
    own = find(cluster, SERVICE, "default", "kubernetes")
    services = [own] if own is not None else sorted(cluster.known(SERVICE), key=_full_name)
    found = [each for each in services if _is_address(each.at("spec", "clusterIP").text)]
    addresses = [each.at("spec", "clusterIP").text or "" for each in found]
    if not found:
        return None
    if own is not None:
        return f"Service default/kubernetes ({addresses[0]})", addresses
    return f"the network of Services, such as {addresses[0]}", addresses


def _full_name(service: Object) -> str:
    return service.full_name


def _is_address(text: str | None) -> bool:
    return next(_networks(text or ""), None) is not None


def _covers(excluded: str, address: str) -> bool:
    entries = [each.strip() for each in excluded.split(",")]
    host = ipaddress.ip_address(address)
    return "*" in entries or any(host in network for each in entries for network in _networks(each))


def _networks(entry: str) -> Iterator[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Yield the network of an entry of NO_PROXY: none for a domain."""
    try:
        yield ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return
