"""The blocks of addresses that Calico's IP pools give to nodes: those of nodes that are gone, and
the most that a node gets.

A node takes addresses from blocks with an affinity to it. calico-kube-controllers releases those of
a node that is deleted, and does so later for nodes that were deleted while it did not run. Without
it they stay. An affinity of the type virtual is none of a node (load-balancer).

A node that has as many blocks as ``maxBlocksPerHost`` allows, 20 if that is not set, gets no
further one, and borrows no address of another node either. With large blocks no node reaches that;
with a ``blockSize`` of 32 it has no more than 20 pods then. The block size of a pool cannot be
changed. calicoctl sets this limit only together with strict affinity; IPAM needs none. Sources:
projectcalico/calico:libcalico-go/lib/ipam/ipam.go#findOrClaimBlock #autoAssign #SetIPAMConfig,
:libcalico-go/lib/clientv3/ippool.go#validateAndSetDefaults,
:libcalico-go/lib/apis/v3/blockaffinity.go, :kube-controllers/pkg/controllers/node/ipam.go;
issues projectcalico/kube-controllers#564, projectcalico/calico#2713, #9462.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from virt_admit.model.commands import about, logs_of, merge_patch, nested, typed
from virt_admit.model.kubernetes.cluster import Cluster, entry, unlisted
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, NODE, POD, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.lookups import find, find_named, grouped
from virt_admit.model.messages import count, names
from virt_admit.model.problems import Problem

_GROUPS: Final = (("crd.projectcalico.org", "v1"), ("projectcalico.org", "v3"))
"""Of the stored objects, and of Calico's API server, which shows the same ones."""
_POOLS: Final = tuple(Kind(group, (v,), "ippools", "IPPool") for group, v in _GROUPS)
_AFFINITIES: Final = tuple(
    Kind(group, (v,), "blockaffinities", "BlockAffinity") for group, v in _GROUPS
)
_BLOCKS: Final = Kind("crd.projectcalico.org", ("v1",), "ipamblocks", "IPAMBlock")
_CONFIGS: Final = (
    Kind(_GROUPS[0][0], ("v1",), "ipamconfigs", "IPAMConfig", namespaced=False),
    Kind(_GROUPS[1][0], ("v3",), "ipamconfigurations", "IPAMConfiguration", namespaced=False),
)
_MOST: Final = 20
"""How many blocks a node gets if nothing is set."""
_BITS: Final = {4: 26, 6: 122}
"""The default of blockSize."""
_CONTROLLERS: Final = "calico-kube-controllers"
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class _Block(NamedTuple):
    cidr: _Network
    node: str


def of(version: int, cluster: Cluster) -> Problem:
    """Return how many blocks of the IP pools of a version of IP nodes have, and those of nodes that
    are gone, for all pods at once.

    As ``all 8 blocks of IPPool a (10.0.0.0/23) are taken, 3 of them by nodes that do not exist (b,
    c)``; without a reason: no pool is known.
    """
    return cluster.cached(_of_6 if version == _SIXTH else _of_4)


_SIXTH: Final = 6


def _of_4(cluster: Cluster) -> Problem:
    return _of(4, cluster)


def _of_6(cluster: Cluster) -> Problem:
    return _of(6, cluster)


def _of(version: int, cluster: Cluster) -> Problem:
    pools = {str(cidr): (pool, cidr) for pool, cidr in _pools(version, cluster)}
    if not pools:
        return Problem("", typed(_MORE, f"kubectl get {_POOLS[0].resource}.{_GROUPS[0][0]}"))
    taken = {
        each for each in _blocks(cluster) if any(_is_in(each.cidr, c) for _, c in pools.values())
    }
    every = sum(_size(pool, cidr) for pool, cidr in pools.values())
    used = len({each.cidr for each in taken})
    gone = sorted(each for each in taken if _is_gone(each.node, cluster))
    which = names(f"IPPool {pool.name} ({cidr})" for pool, cidr in pools.values())
    blocks = f"all {count(every, 'block')}" if used >= every else f"{used} of {every} blocks"
    words = f"{blocks} of {which} are taken"
    if not gone:
        first = next(iter(pools.values()))[0]
        return Problem(words, typed(_MORE, about("describe", first, _POOLS[0])))
    nodes = sorted({each.node for each in gone})
    words += f", {len(gone)} of them by nodes that do not exist ({names(nodes)})"
    return Problem(words, _release(gone, cluster))


_MORE: Final = (
    "add an IP pool, or release the addresses of pods that are gone (calicoctl ipam check)"
)


class FullBlocks(NamedTuple):
    """The blocks of a node that gets no further one, each without a free address."""

    reason: str
    remedy: str


def full(node: str, cluster: Cluster) -> FullBlocks | None:
    """Return that a node has as many blocks as Calico gives it, and no free address in them; None:
    it does not, or that is not known.
    """
    for version in _BITS:
        pools = [*_pools(version, cluster)]
        own = {
            each.cidr
            for each in entry(cluster, _by_node, node) or ()
            if any(_is_in(each.cidr, cidr) for _, cidr in pools)
        }
        limit = _limit(cluster)
        if limit is None or len(own) < limit:
            continue
        known = cluster.cached(_stored)
        if all(each in known and not any(_free(known[each])) for each in own):
            used = [pool for pool, cidr in pools if any(_is_in(each, cidr) for each in own)]
            return _full(node, sorted(own, key=str), used, cluster)
    return None


def _full(
    node: str, own: Sequence[_Network], pools: Sequence[Object], cluster: Cluster
) -> FullBlocks:
    limit, config, sizes = len(own), _config(cluster), {each.num_addresses for each in own}
    bits, least = sorted({each.prefixlen for each in own}), min(sizes)
    which = names(f"{pool.kind} {pool.name}" for pool in pools)
    size = f"blockSize {names(map(str, bits))} of {which}"
    each = f"of {least} address{'es' * (least > 1)} each " if len(sizes) == 1 else ""
    default = config is None or not config.at("spec", _LIMIT).integer
    source = f"{_MOST}, as {_CONFIGS[0].kind} default sets no {_LIMIT}" if default else _set(config)
    reason = (
        f"{node} has {count(limit, 'block')} {each}({size}), as many as Calico gives a node "
        f"({source}), and none has a free address"
    )
    needed = -(-cluster.cached(_most_admitted) // least)
    way = _raise(needed, config) if needed > limit else _LEFT
    larger = _BITS[own[0].version]
    pool = (
        f"give the nodes an IPPool with larger blocks (blockSize {larger}) and disable {which}, "
        "whose blockSize cannot be changed"
    )
    return FullBlocks(reason, f"{way}; or {pool}" if bits[-1] > larger else way)


_LEFT: Final = "release the addresses of pods that are gone (calicoctl ipam check)"


def _set(config: Object | None) -> str:
    return f"{_LIMIT} of {config.kind} {config.name}" if config is not None else ""


_LIMIT: Final = "maxBlocksPerHost"


def _raise(most: int, config: Object | None) -> str:
    """Return how a node gets more blocks."""
    if config is None:
        given = f"{_LIMIT} {most}, autoAllocateBlocks true and strictAffinity false"
        own = f"make {_CONFIGS[0].kind} default with {given}"
        return typed(own, f"kubectl explain {_CONFIGS[0].plural}.{_CONFIGS[0].group}.spec")
    way = f"set {_set(config)} to {most}, so that each pod which a kubelet admits gets an address"
    kind = next(each for each in _CONFIGS if each.kind == config.kind)
    return typed(way, merge_patch(kind, config.name, "", nested(("spec", _LIMIT), most)))


def _limit(cluster: Cluster) -> int | None:
    """Return how many blocks a node gets; None: not known."""
    config = _config(cluster)
    if config is None:
        return None if unlisted(cluster, _CONFIGS[0]) else _MOST
    found = config.at("spec", _LIMIT).integer
    return found if found and found > 0 else _MOST


def _config(cluster: Cluster) -> Object | None:
    return next(filter(None, (find(cluster, each, "", "default") for each in _CONFIGS)), None)


def _by_node(cluster: Cluster) -> Mapping[str, Sequence[_Block]]:
    return grouped(_blocks(cluster), lambda each: each.node)


def _stored(cluster: Cluster) -> Mapping[_Network | None, Object]:
    return {_parsed(each.at("spec", "cidr").text): each for each in cluster.known(_BLOCKS)}


def _free(block: Object) -> Iterator[Field]:
    """Yield the addresses of a block that no pod has; one without the list may have some."""
    listed = block.at("spec", "unallocated")
    return iter((listed,)) if not isinstance(listed.value, list) else listed.items()


def _most_admitted(cluster: Cluster) -> int:
    return max(map(admitted, cluster.known(NODE)), default=0)


def admitted(node: Object) -> int:
    """Return how many pods the kubelet of a node admits; 0: not known."""
    text = str(node.at("status", "allocatable").map.get("pods", ""))
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else 0


_DIGITS: Final = 10


def _pools(version: int, cluster: Cluster) -> Iterator[tuple[Object, _Network]]:
    for kind in _POOLS:
        for pool in cluster.known(kind):
            cidr = _parsed(pool.at("spec", "cidr").text)
            if cidr and cidr.version == version and _is_for_pods(pool):
                yield pool, cidr


def _is_for_pods(pool: Object) -> bool:
    """Return whether pods get new addresses of a pool. It is for them unless its uses are named."""
    uses = [each.text for each in pool.at("spec", "allowedUses").items()]
    return (not uses or _WORKLOAD in uses) and not pool.at("spec", "disabled").boolean


_WORKLOAD: Final = "Workload"
"""The use of an IP pool for pods (api/pkg/apis/projectcalico/v3/ippool.go#IPPoolAllowedUse)."""


def _size(pool: Object, cidr: _Network) -> int:
    """Return how many blocks a pool has."""
    bits = pool.at("spec", "blockSize").integer or _BITS[cidr.version]
    return int(2 ** max(0, min(bits, cidr.max_prefixlen) - cidr.prefixlen))


def _blocks(cluster: Cluster) -> Iterator[_Block]:
    """Yield the blocks that nodes have."""
    for kind in _AFFINITIES:
        for each in cluster.known(kind):
            spec, cidr = each["spec"], _parsed(each.at("spec", "cidr").text)
            deleted = spec["deleted"].boolean or spec["deleted"].text == "true"
            node = spec["node"].text or ""
            if cidr and not deleted:
                yield _Block(cidr, node if spec["type"].text in (None, "", "host") else "")


def _is_in(block: _Network, pool: _Network) -> bool:
    if isinstance(block, ipaddress.IPv4Network) and isinstance(pool, ipaddress.IPv4Network):
        return block.subnet_of(pool)
    if isinstance(block, ipaddress.IPv6Network) and isinstance(pool, ipaddress.IPv6Network):
        return block.subnet_of(pool)
    return False


def _is_gone(node: str, cluster: Cluster) -> bool:
    return bool(node) and not unlisted(cluster, NODE) and find(cluster, NODE, "", node) is None


def _parsed(cidr: str | None) -> _Network | None:
    try:
        return ipaddress.ip_network(cidr or "", strict=False)
    except ValueError:
        return None


def _release(gone: Sequence[_Block], cluster: Cluster) -> str:
    """Return what releases the blocks of nodes that do not exist."""
    pods = [each for each in cluster.known(POD) if each.labels.get("k8s-app") == _CONTROLLERS]
    deployment = find_named(cluster, DEPLOYMENT, _CONTROLLERS)
    way = f"{_CONTROLLERS}, which then releases the blocks of nodes that are gone"
    hand = _by_hand(gone, cluster)
    running = next((each for each in pods if each.is_true("Ready")), None)
    if running is not None:
        words = f"see why {_CONTROLLERS} does not release the blocks of nodes that are gone"
        return typed(words, logs_of(running), hand)
    if deployment is not None:
        return typed(f"repair {way}", about("describe", deployment, DEPLOYMENT), hand)
    if pods:
        return typed(f"repair {way}", about("describe", pods[0], POD), hand)
    where = f"kubectl get pods -A -l k8s-app={_CONTROLLERS}"
    if unlisted(cluster, POD) or unlisted(cluster, DEPLOYMENT):
        return typed(f"see whether {_CONTROLLERS} runs, which releases such blocks", where, hand)
    return typed(f"deploy {way} (none runs)", where, hand)


def _by_hand(gone: Sequence[_Block], cluster: Cluster) -> str:
    """Return which objects hold the blocks, where each address in them is of a node that is gone.

    A block may lend addresses to pods of other nodes, which would be given a second time. A VM may
    keep its address while it moves or is off (kubeVirtVMAddressPersistence).
    """
    blocks = cluster.cached(_stored)
    found = [blocks.get(each.cidr) for each in gone]
    own = [each for each in found if each is not None and _is_of_gone(each, cluster)]
    if len(own) < len(gone):
        return ""
    return (
        f"or, if their machines are off, delete IPAMBlock {names(each.name for each in own)} and "
        f"the BlockAffinity of each: no other node has an address of them"
    )


def _is_of_gone(block: Object, cluster: Cluster) -> bool:
    return all(_is_left(each, cluster) for each in block.at("spec", "attributes").items())


def _is_left(address: Field, cluster: Cluster) -> bool:
    """Return whether an address is of a node that is gone, and of no VM, whose attributes and
    handle name it (libcalico-go/lib/apis/crd.projectcalico.org/v1/ipam_block.go)."""
    own, handle = address["secondary"], address["handle_id"].text or ""
    of_vm = _OF_VM in handle or any(key.startswith("vm") for key in own.map)
    moves = any(True for _ in address["alternate"].map)
    return not of_vm and not moves and _is_gone(own["node"].text or "", cluster)


_OF_VM: Final = ".vmi"
"""In a handle of a VM, after the name of the network (ipam_plugin.go#createVMIHandleID)."""
