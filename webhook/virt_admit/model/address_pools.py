"""Ranges of addresses that whereabouts gives to pods,
and the entries that it keeps for pods which are gone.

Discovery finds its IPPools in a cluster. Sources:
k8snetworkplumbingwg/whereabouts:pkg/allocate/allocate.go#AssignmentError,
:pkg/api/whereabouts.cni.cncf.io/v1alpha1/ippool_types.go (the key of an allocation is its distance
from the first address of the network).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterator
from typing import Final

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import NAD, POD, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.lookups import is_absent
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem

IP_POOL: Final = Kind("whereabouts.cni.cncf.io", ("v1alpha1",), "ippools", "IPPool")
RESERVATION: Final = Kind(
    "whereabouts.cni.cncf.io",
    ("v1alpha1",),
    "overlappingrangeipreservations",
    "OverlappingRangeIPReservation",
)
_FULL: Final = re.compile(
    r"Could not allocate IP in range: ip: ([0-9A-Fa-f.:]{2,45}) / - ([0-9A-Fa-f.:]{2,45})"
)
_NETWORK: Final = re.compile(r'to network "([\w.-]{1,250})"')


def full_range(said: str, cluster: Cluster) -> Problem | None:
    """Return what it means that a pod gets no address of a range; None:
    the words do not say that.
    """
    found = _FULL.search(said)
    if found is None:
        return None
    network = _NETWORK.search(said)
    first, last = found[1], found[2]
    what = f"whereabouts has no address left in {first} - {last}"
    of = (
        f"NetworkAttachmentDefinition {_full_name(network[1], cluster)}"
        if network
        else "its NetworkAttachmentDefinition"
    )
    widen = f"widen the range (range_end) in {of}"
    pool = next((each for each in cluster.known(IP_POOL) if _begin(each, first) is not None), None)
    if pool is None:
        return Problem(what, typed(widen, "kubectl get ippools.whereabouts.cni.cncf.io -A"))
    edit = shell("kubectl", "edit", IP_POOL.resource, argument(pool.name), "-n", pool.namespace)
    stale = list(_stale(pool, first, last, cluster))
    if not stale and unlisted(cluster, POD):
        return Problem(what, f"{widen}; see it: {edit}")
    if not stale:
        return Problem(
            f"{what}; every entry of {pool.kind} {pool.full_name} belongs to a pod",
            f"{widen}; see it: {edit}",
        )
    several = len(stale) > 1
    held = names(f'"{key}" of pod {pod}' for key, pod in stale)
    gone = f"entr{'ies' if several else 'y'} {held}, which no longer exist{'' if several else 's'}"
    keys = names(f'"{key}"' for key, _ in stale)
    remove = (
        f"remove entr{'ies' if several else 'y'} {keys} from {pool.kind} {pool.full_name}"
        f"{_reserved({pod for _, pod in stale}, cluster)}; or {widen}"
    )
    return Problem(f"{what}; {pool.kind} {pool.full_name} still has {gone}", typed(remove, edit))


def _full_name(network: str, cluster: Cluster) -> str:
    """Return a network with its namespace, where one namespace alone has it:
    the error has only its name.
    """
    found = [each.full_name for each in cluster.known(NAD) if each.name == network]
    return found[0] if len(found) == 1 else network


def _reserved(pods: Collection[str], cluster: Cluster) -> str:
    """Return the reservations of these pods, which hold the addresses as well; empty:
    none are known.

    Source:
    k8snetworkplumbingwg/whereabouts:pkg/storage/kubernetes/ipam.go#IPManagementKubernetesUpdate.
    """
    held = sorted(
        (each for each in cluster.known(RESERVATION) if each.at("spec", "podref").text in pods),
        key=lambda each: each.name,
    )
    if not held:
        return ""
    command = shell(
        "kubectl",
        "delete",
        RESERVATION.resource,
        *(argument(each.name) for each in held),
        "-n",
        held[0].namespace,
    )
    which = (
        "the reservation of that pod"
        if len(held) == 1
        else f"the {len(held)} reservations of these pods"
    )
    return (
        f"; delete {which} as well, which hold{'s' if len(held) == 1 else ''} the same addresses "
        f"({command})"
    )


_OFFSET: Final = re.compile(r"[0-9]{1,39}")
"""An entry's key: the address, counted from the begin of the network. IPv6 has 39 digits."""


def _begin(pool: Object, first: str) -> int | None:
    """Return the first address of the network of a pool as a number; None:
    it does not contain that address.
    """
    try:
        network = ipaddress.ip_network(pool.at("spec", "range").text or "", strict=False)
        return int(network.network_address) if ipaddress.ip_address(first) in network else None
    except ValueError:
        return None


def _stale(pool: Object, first: str, last: str, cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield the entries of a range whose pods certainly do not exist, each with the pod."""
    begin = _begin(pool, first)
    if begin is None or unlisted(cluster, POD):
        return
    try:
        low, high = (int(ipaddress.ip_address(each)) for each in (first, last))
    except ValueError:
        return
    for key, entry in sorted(pool.at("spec", "allocations").map.items()):
        reference = entry.get("podref") if isinstance(entry, dict) else None
        if not isinstance(reference, str) or "/" not in reference or not _OFFSET.fullmatch(key):
            continue
        namespace, _, name = reference.partition("/")
        if is_absent(cluster, POD, namespace, name) and low <= begin + int(key) <= high:
            yield key, reference
