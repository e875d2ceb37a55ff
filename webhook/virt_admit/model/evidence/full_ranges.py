"""Ranges of pod addresses that are full, by the words of network plugins.

host-local keeps a file for each address that it has given, with the sandbox in the first line. If a
node stops uncleanly, the files of its pods may stay, and count as used for good. flannel and others
give each node a range of its own, the node's podCIDR, whose first address is the gateway's. By
default crictl shows the begins of IDs alone. Sources:
kubernetes-sigs/cri-tools:cmd/crictl/sandbox.go#outputPodSandboxes;
containernetworking/plugins:plugins/ipam/host-local/backend/allocator/allocator.go#Get, :range.go,
:backend/disk/backend.go; projectcalico/calico:libcalico-go/lib/ipam/ipam.go (No IPs available in
pools); aws/amazon-vpc-cni-k8s:cmd/routed-eni-cni-plugin/cni.go#add; issues k3s-io/k3s#5885, #4682.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from virt_admit.model.commands import pods_on, typed
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find
from virt_admit.model.messages import count, cut

READS: Final[Reads] = {
    NODE: ("spec.podCIDR", "spec.podCIDRs"),
    POD: ("spec.nodeName", "status.podIP", "status.podIPs"),
}
_HOST_LOCAL: Final = re.compile(
    r"no IP addresses available in range set: ([\da-fA-F.:]{2,45})-([\da-fA-F.:]{2,45})"
)
_CALICO: Final = re.compile(r"No IPs available in pools: \[([\da-fA-F.:/ ,]{1,500})\]")
_AWS: Final = "failed to assign an IP address to container"
_MOSTLY: Final = 0.9
"""The share of a range that pods have which is full in truth. The rest may change hands."""
_LONGEST: Final = 100
_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class UsedUpRange(NamedTuple):
    """A range that has no address left."""

    what: str
    remedy: str
    of_node: bool
    """Whether each pod of the node needs one of this range, by what the Node says."""
    of_network: bool = False
    """Whether it is that of one network, which other pods do not need."""


def of(said: str, node: str, cluster: Cluster) -> UsedUpRange | None:
    """Return what it means that a pod gets no address on a node; None: it lacks something else."""
    if local := _HOST_LOCAL.search(said):
        return _host_local(local[1], local[2], node, cluster)
    if pools := _CALICO.search(said):
        what = f"Calico has no address left in IP pool {cut(pools[1], _LONGEST)}"
        words = (
            "add an IP pool, or release the addresses of pods that are gone (calicoctl ipam check)"
        )
        shown = typed(words, "kubectl get ippools.crd.projectcalico.org")
        return UsedUpRange(what, shown, of_node=False)
    if _AWS in said:
        what = f"the VPC plugin of AWS has no address left on {node}"
        words = (
            f"free addresses in the subnet of {node}, or let it have more, by prefix delegation or "
            "a larger subnet"
        )
        return UsedUpRange(what, typed(words, pods_on(node)), of_node=False)
    return None


def _host_local(first: str, last: str, node: str, cluster: Cluster) -> UsedUpRange | None:
    try:
        low, high = (ipaddress.ip_address(each) for each in (first, last))
        size = int(high) - int(low) + 1
    except ValueError:
        return None
    if low.version != high.version or size < 1:
        return None
    begin = f"{node} has no pod address left in {first}-{last}"
    folder = "the folder of that network in /var/lib/cni/networks (cbr0 of flannel)"
    left = (
        f"on {node}, remove from {folder} the files of addresses whose first line is a sandbox "
        "that crictl pods -q does not list"
    )
    network = _network(low, node, cluster)
    if network is None:
        words = f"{left}; or widen that range in the configuration of the network"
        return UsedUpRange(begin, typed(words, pods_on(node)), of_node=False, of_network=True)
    if unlisted(cluster, POD):
        words = f"if its pods have fewer addresses, {left}"
        return UsedUpRange(begin, typed(words, pods_on(node)), of_node=True)
    own = (low.version, int(low)), (low.version, int(high))
    used = sum(own[0] <= each <= own[1] for each in entry(cluster, _addresses, node) or ())
    gateway = int(network.network_address) + 1
    given = size - (int(low) <= gateway <= int(high))
    if used < given * _MOSTLY:
        some = f"only {count(used, 'pod')}" if used else "no pod"
        what = (
            f"{begin}, although {some} there ha{'s' if used < 2 else 've'} one of these {size}: "
            "the others were left by pods that are gone"
        )
        compared = f"{left}; these pods have addresses there"
        return UsedUpRange(what, typed(compared, pods_on(node)), of_node=True)
    words = (
        f"move pods off {node}, and lower maxPods of its kubelet, or let it join again with a "
        "larger podCIDR"
    )
    what = f"{begin}: its pods have {used} of these {size}"
    return UsedUpRange(what, typed(words, pods_on(node)), of_node=True)


def _network(address: _Address, node: str, cluster: Cluster) -> _Network | None:
    """Return the podCIDR of a node with an address, of which each of its pods has one."""
    found = find(cluster, NODE, "", node) if node else None
    if found is None:
        return None
    ranges = {each.text for each in found.at("spec", "podCIDRs").items()}
    ranges |= {found.at("spec", "podCIDR").text}
    for each in filter(None, ranges):
        network = _parsed(each)
        if network is not None and address in network:
            return network
    return None


def _parsed(network: str) -> _Network | None:
    try:
        return ipaddress.ip_network(network, strict=False)
    except ValueError:
        return None


def _addresses(cluster: Cluster) -> Mapping[str, list[tuple[int, int]]]:
    """Return the addresses of the pods of each node: the version of IP and the number."""
    found: dict[str, list[tuple[int, int]]] = {}
    for pod in cluster.known(POD):
        own = found.setdefault(pod.at("spec", "nodeName").text or "", [])
        own.extend(_numbers(pod))
    return found


def _numbers(pod: Object) -> Iterator[tuple[int, int]]:
    """Yield the addresses of a pod, which has one of each family at most."""
    said = {each["ip"].text for each in pod.at("status", "podIPs").items()}
    for text in filter(None, said | {pod.at("status", "podIP").text}):
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        yield address.version, int(address)
