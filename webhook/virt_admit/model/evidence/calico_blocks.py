"""The blocks of addresses that Calico's IP pools give to nodes, and those of nodes that are gone.

A node takes addresses from blocks with an affinity to it. calico-kube-controllers releases those of
a node that is deleted, and does so later for nodes that were deleted while it did not run. Without
it they stay. An affinity of the type virtual is none of a node (load-balancer). Sources:
projectcalico/calico:libcalico-go/lib/ipam/ipam.go#findOrClaimBlock,
:libcalico-go/lib/apis/v3/blockaffinity.go, :kube-controllers/pkg/controllers/node/ipam.go;
issues projectcalico/kube-controllers#564, projectcalico/calico#2713.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from virt_admit.model.commands import about, logs_of, typed
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import DEPLOYMENT, NODE, POD, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.lookups import find, find_named
from virt_admit.model.messages import count, names
from virt_admit.model.problems import Problem

_GROUPS: Final = (("crd.projectcalico.org", "v1"), ("projectcalico.org", "v3"))
"""Of the stored objects, and of Calico's API server, which shows the same ones."""
_POOLS: Final = tuple(Kind(group, (v,), "ippools", "IPPool") for group, v in _GROUPS)
_AFFINITIES: Final = tuple(
    Kind(group, (v,), "blockaffinities", "BlockAffinity") for group, v in _GROUPS
)
_BLOCKS: Final = Kind("crd.projectcalico.org", ("v1",), "ipamblocks", "IPAMBlock")
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
    blocks = {_parsed(each.at("spec", "cidr").text): each for each in cluster.known(_BLOCKS)}
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
