"""Ranges of pod addresses that are full, by the words of network plugins.

host-local keeps a file for each address that it has given, with the sandbox in the first line. If a
node stops uncleanly, the files of its pods may stay, and count as used for good. flannel and others
give each node a range of its own, the node's podCIDR, whose first address is the gateway's. By
default crictl shows the begins of IDs alone.

Cilium takes the podCIDRs of its CiliumNode, without the first and the last address, and has some of
them itself: of its router, its health endpoint and its ingress. It gives none that a route of the
host covers. Sources: cilium/cilium:pkg/ipam/service/ipallocator/allocator.go (range is full),
:pkg/ipam/pod_cidr_pool.go (ranges are exhausted), :pkg/k8s/apis/cilium.io/v2/types.go#NodeSpec;
issues cilium/cilium#9793, #15881, #18331;
kubernetes-sigs/cri-tools:cmd/crictl/sandbox.go#outputPodSandboxes;
containernetworking/plugins:plugins/ipam/host-local/backend/allocator/allocator.go#Get, :range.go,
:backend/disk/backend.go; projectcalico/calico:libcalico-go/lib/ipam/ipam.go (No IPs available in
pools, ErrBlockLimit); aws/amazon-vpc-cni-k8s:cmd/routed-eni-cni-plugin/cni.go#add;
issues k3s-io/k3s#5885, #4682.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from virt_admit.model.commands import pods_on, typed
from virt_admit.model.evidence import calico_blocks
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import NODE, POD, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.lookups import find, find_named
from virt_admit.model.messages import count, cut, names

READS: Final[Reads] = {
    NODE: ("spec.podCIDR", "spec.podCIDRs", "status.allocatable"),
    POD: ("spec.nodeName", "status.phase", "status.podIP", "status.podIPs"),
}
_HOST_LOCAL: Final = re.compile(
    r"no IP addresses available in range set: ([\da-fA-F.:]{2,45})-([\da-fA-F.:]{2,45})"
)
_CALICO: Final = re.compile(r"No IPs available in pools: \[([\da-fA-F.:/ ,]{1,500})\]")
_STRICT: Final = re.compile(r"No more free affine blocks and strict affinity enabled")
"""No node lends another one its addresses, so each new pod of the node is without."""
_BLOCKS: Final = re.compile(r"per host block limit|limit of \d{1,9} blocks reached for this node")
_VERSION: Final = re.compile(r"requested IPv([46]) addresses")
_CILIUM: Final = re.compile(r"local cilium agent\b.{0,100}(?:range is full|ranges are exhausted)")
CILIUM_NODE: Final = Kind("cilium.io", ("v2",), "ciliumnodes", "CiliumNode")
_AWS: Final = "failed to assign an IP address to container"
_MOSTLY: Final = 0.9
"""The share of a range that pods have which is full in truth. The rest may change hands."""
_LONGEST: Final = 100
_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class UsedUpRange(NamedTuple):
    """A range that has no address left."""

    reason: str
    remedy: str
    of_node: bool
    """Whether each pod of the node needs one of this range, by what the Node says."""
    of_network: bool = False
    """Whether it is that of one network, which other pods do not need."""


def of(said: str, node: str, cluster: Cluster) -> UsedUpRange | None:
    """Return what it means that a pod gets no address on a node; None: it lacks something else."""
    if local := _HOST_LOCAL.search(said):
        return _host_local(local[1], local[2], node, cluster)
    pools, strict = _CALICO.search(said), _STRICT.search(said)
    if pools or strict:
        version = _VERSION.search(said)
        taken = calico_blocks.of(int(version[1]) if version else 4, cluster)
        what = f"Calico has no address left in IP pool {cut(pools[1], _LONGEST)}" if pools else ""
        what = what or f"Calico has no free block of addresses for {node}"
        whole = f"{what}: {taken.reason}" if taken.reason else what
        return UsedUpRange(whole, taken.remedy, of_node=bool(strict))
    if _BLOCKS.search(said):
        blocks = calico_blocks.full(node, cluster)
        if blocks is not None:
            return UsedUpRange(*blocks, of_node=True)
        what = f"Calico gives {node} no further block of addresses, by maxBlocksPerHost"
        words = (
            "compare maxBlocksPerHost of IPAMConfig default, 20 if it is not set, with its blocks"
        )
        listed = "kubectl get blockaffinities.crd.projectcalico.org"
        return UsedUpRange(what, typed(words, listed), of_node=False)
    if _CILIUM.search(said):
        return _cilium(node, cluster)
    if _AWS in said:
        what = f"the VPC plugin of AWS has no address left on {node}"
        words = (
            f"free addresses in the subnet of {node}, or let it have more, by prefix delegation or "
            "a larger subnet"
        )
        return UsedUpRange(what, typed(words, pods_on(node)), of_node=False)
    return None


def used_up(node: str, cluster: Cluster) -> UsedUpRange | None:
    """Return that pods have every address of a node although kube-scheduler goes on choosing it;
    None: one is free, or that is not known.

    No pod may lack an address yet. A pod that is not known may have one more, and none less.
    """
    found, most = _range(node, cluster), _admitted(node, cluster)
    there = entry(cluster, _placed, node) or 0
    if most is not None and there < most and (blocks := calico_blocks.full(node, cluster)):
        return UsedUpRange(*blocks, of_node=True)
    if found is None or most is None or found.used < found.size or there >= most:
        return None
    own = f" and {found.own} of Cilium" if found.of_cilium else ""
    what = (
        f"{node} has no free pod address: {found.where} has {found.size + found.own}, of which "
        f"{found.used} are of its pods{own}, and its kubelet admits {most} pods"
    )
    return UsedUpRange(what, _fewer(found, node), of_node=True)


class _Range(NamedTuple):
    """The addresses of one version of IP that are for the pods of a node."""

    where: str
    size: int
    """How many pods can have one."""
    own: int
    """How many are of the network itself."""
    used: int
    namespaces: Counter[str]
    """How many pods of each namespace have one."""
    of_cilium: bool


def _range(node: str, cluster: Cluster) -> _Range | None:
    """Return the fullest range of a node; None: none is known."""
    found, cilium = find(cluster, NODE, "", node), find_named(cluster, CILIUM_NODE, node)
    networks = [*_networks(cilium.at("spec", "ipam"))] if cilium is not None else []
    networks = networks or ([*_networks(found["spec"])] if found is not None else [])
    own = set(_of_cilium(cilium)) if cilium is not None else set[_Address]()
    ranges = []
    for version in sorted({each.version for each in networks}):
        some = [each for each in networks if each.version == version]
        taken = sum(any(each in network for network in some) for each in own)
        held = {
            address: namespace
            for address, namespace in entry(cluster, _addresses, node) or ()
            if any(address in network for network in some) and address not in own
        }
        size = sum(max(0, each.num_addresses - 2) for each in some) - (taken or len(some))
        if size <= 0:  # a range without addresses for pods is none of a pod network
            continue
        where = f"its range {names(map(str, some))}"
        spaces = Counter(held.values())
        ranges.append(_Range(where, size, taken or len(some), len(held), spaces, taken > 0))
    return min(ranges, key=lambda each: each.size - each.used, default=None)


def _networks(holder: Field) -> Iterator[_Network]:
    texts = [each.text for each in holder["podCIDRs"].items()] or [holder["podCIDR"].text]
    for text in dict.fromkeys(filter(None, texts)):
        if (network := _parsed(text)) is not None:
            yield network


def _of_cilium(node: Object) -> Iterator[_Address]:
    """Yield the addresses that Cilium itself has of the range of a node."""
    spec = node["spec"]
    own = [each["ip"].text for each in spec["addresses"].items()]
    others = (spec[of][f"ipv{each}"].text for of in ("health", "ingress") for each in (4, 6))
    yield from _parsed_addresses((*own, *others))


def _admitted(node: str, cluster: Cluster) -> int | None:
    """Return how many pods the kubelet of a node admits; None: not known."""
    found = find(cluster, NODE, "", node)
    return (calico_blocks.admitted(found) or None) if found is not None else None


def _fewer(found: _Range, node: str) -> str:
    """Return what frees addresses of a node, and how its range and its pods fit together later."""
    space, most = found.namespaces.most_common(1)[0]
    several = f" ({most} of them are in namespace {space})" if len(found.namespaces) > 1 else ""
    now = f"have fewer pods on {node}, scaled down or moved to a node with free addresses{several}"
    setting = "node-cidr-mask-size of kube-controller-manager"
    if found.of_cilium:
        setting += ", or cluster-pool-ipv4-mask-size of Cilium"
    later = (
        f"then lower maxPods of its kubelet to what the range holds; only a node that joins later "
        f"gets a larger one ({setting})"
    )
    return typed(now, pods_on(node), later)


def _cilium(node: str, cluster: Cluster) -> UsedUpRange:
    """Return what it means that Cilium has no address left on a node."""
    if (full := used_up(node, cluster)) is not None:
        return full
    what, found = f"Cilium has no address left on {node}", _range(node, cluster)
    if found is None or unlisted(cluster, POD) or found.used >= found.size * _MOSTLY:
        words = f"have fewer pods on {node}, or give it more addresses"
        return UsedUpRange(what, typed(words, pods_on(node)), of_node=True)
    what += f", although its pods have only {found.used} of the {found.size} of {found.where}"
    words = (
        "compare these pods with the addresses that its agent has given (cilium-dbg status "
        "--verbose there): those of a network that is routed on the host are never given, others "
        "may be left by pods that are gone"
    )
    return UsedUpRange(what, typed(words, pods_on(node)), of_node=True)


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
    held = entry(cluster, _addresses, node) or ()
    used = sum(
        low.version == each.version and int(low) <= int(each) <= int(high) for each, _ in held
    )
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
    found = find(cluster, NODE, "", node)
    if found is None:
        return None
    return next((each for each in _networks(found["spec"]) if address in each), None)


def _parsed(network: str) -> _Network | None:
    try:
        return ipaddress.ip_network(network, strict=False)
    except ValueError:
        return None


def _addresses(cluster: Cluster) -> Mapping[str, Sequence[tuple[_Address, str]]]:
    """Return the addresses of the pods of each node, each with the namespace. A pod that has ended
    has given its own back.
    """
    found: dict[str, list[tuple[_Address, str]]] = {}
    for pod in cluster.known(POD):
        if not pod.ended:
            own = found.setdefault(pod.at("spec", "nodeName").text or "", [])
            said = {each["ip"].text for each in pod.at("status", "podIPs").items()}
            addresses = _parsed_addresses(said | {pod.at("status", "podIP").text})
            own.extend((each, pod.namespace) for each in addresses)
    return found


def _parsed_addresses(texts: Iterable[str | None]) -> Iterator[_Address]:
    for text in filter(None, texts):
        try:
            yield ipaddress.ip_address(text)
        except ValueError:
            continue


def _placed(cluster: Cluster) -> Mapping[str, int]:
    """Return how many pods each node has."""
    there = (pod for pod in cluster.known(POD) if not pod.ended)
    return Counter(pod.at("spec", "nodeName").text or "" for pod in there)
