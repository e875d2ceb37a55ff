"""Ranges of addresses that whereabouts gives to pods,
and the entries that it keeps for pods which are gone.

Discovery finds its IPPools in a cluster. Sources:
k8snetworkplumbingwg/whereabouts:pkg/allocate/allocate.go#AssignmentError,
k8snetworkplumbingwg/whereabouts:pkg/api/whereabouts.cni.cncf.io/v1alpha1/ippool_types.go (the key
of an allocation is its distance from the first address of the network);
harvester/harvester:pkg/webhook/resources/setting/validator.go#checkStorageNetworkUsage,
:pkg/util/constants.go#StorageNetworkAnnotation.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Final

from virt_admit.model.commands import argument, shell, typed
from virt_admit.model.kubernetes import clock, events, json_codec
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import LONGHORN_SETTING, NAD, POD, Kind
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
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
_NETWORK: Final = re.compile(r'to network \\?"([\w.-]{1,250})\\?"')
_STORAGE: Final = "storage-network.settings.harvesterhci.io"
"""Annotation of the network that Harvester has made of its setting for the traffic of Longhorn."""
_SETTING: Final = "storage-network"
"""The name of that setting, and of the setting of Longhorn that names the network."""
_RECENT: Final = timedelta(minutes=10)
READS: Final[Reads] = {
    NAD: ("spec.config", f"metadata.annotations.{_STORAGE}"),
    LONGHORN_SETTING: ("value",),
}


def of_pod(pod: Object, cluster: Cluster) -> Problem | None:
    """Return which range gives a pod no address that waits for its network; None: no event of the
    last minutes says so.
    """
    if pod.at("status", "phase").text != "Pending":
        return None
    since = clock.ago(_RECENT, cluster)
    said = events.last_warning(pod, "FailedCreatePodSandBox", since, cluster)
    return full_range(said, cluster)


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
    widen = _widen(network[1] if network else "", cluster)
    pool = next((each for each in cluster.known(IP_POOL) if _begin(each, first) is not None), None)
    if pool is None:
        return Problem(what, typed(widen, "kubectl get ippools.whereabouts.cni.cncf.io -A"))
    edit = shell("kubectl", "edit", IP_POOL.resource, argument(pool.name), "-n", pool.namespace)
    see = shell(
        *("kubectl", "get", IP_POOL.resource, argument(pool.name), "-n", pool.namespace),
        *("-o", "yaml"),
    )
    held = dict(_held(pool, first, last))
    if unlisted(cluster, POD):
        return Problem(what, f"{widen}; see it: {see}")
    stale = [(key, pod) for key, pod in held.items() if _is_gone(pod, cluster)]
    if not stale:
        each = f", and each of the {len(held)} entries" if len(held) > 1 else ", and the only entry"
        whose = f"{each} of {pool.kind} {pool.full_name} belongs to a pod" if held else ""
        return Problem(f"{what}{whose}", f"{widen}; see it: {see}")
    several = len(stale) > 1
    entries = names(f'"{key}" of pod {pod}' for key, pod in stale)
    gone = (
        f"entr{'ies' if several else 'y'} {entries}, which no longer exist{'' if several else 's'}"
    )
    keys = names(f'"{key}"' for key, _ in stale)
    remove = (
        f"remove entr{'ies' if several else 'y'} {keys} from {pool.kind} {pool.full_name}"
        f"{_reserved({pod for _, pod in stale}, cluster)}; or {widen}"
    )
    return Problem(
        f"{what}, and {pool.kind} {pool.full_name} still has {gone}", typed(remove, edit)
    )


def _widen(network: str, cluster: Cluster) -> str:
    """Return where the range of a network becomes larger. The error has only its name, or that in
    its configuration.
    """
    own = (each for each in cluster.known(NAD) if network in (each.name, _called(each)))
    found = list(own) if network else []
    if len(found) != 1:
        of = f"{NAD.kind} {network}" if network else f"its {NAD.kind}"
        return f"widen the range (range_end) in {of}"
    definition = found[0]
    title = f"{NAD.kind} {definition.full_name}"
    if definition.annotation(_STORAGE).text == "true":
        return (
            f"set a larger range in Harvester's setting {_SETTING}, of which it made {title}: it "
            "takes that only while all VMs are stopped and their volumes detached, and Longhorn "
            "makes its pods again"
        )
    named = (each for each in cluster.known(LONGHORN_SETTING) if each.name == _SETTING)
    if any(each["value"].text == definition.full_name for each in named):
        return (
            f"widen the range (range_end) in {title}, which Longhorn's setting {_SETTING} names; "
            "pods that run keep their addresses"
        )
    return f"widen the range (range_end) in {title}"


def _called(definition: Object) -> str:
    """Return the name of a network in its configuration; empty: it has none."""
    return Field(json_codec.embedded(definition.at("spec", "config").text))["name"].text or ""


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


def _held(pool: Object, first: str, last: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of a range, each with the pod that it is for."""
    begin = _begin(pool, first)
    if begin is None:
        return
    try:
        low, high = (int(ipaddress.ip_address(each)) for each in (first, last))
    except ValueError:
        return
    for key, entry in sorted(pool.at("spec", "allocations").map.items()):
        reference = entry.get("podref") if isinstance(entry, dict) else None
        if not isinstance(reference, str) or "/" not in reference or not _OFFSET.fullmatch(key):
            continue
        if low <= begin + int(key) <= high:
            yield key, reference


def _is_gone(pod: str, cluster: Cluster) -> bool:
    """Return whether a pod certainly does not exist."""
    namespace, _, name = pod.partition("/")
    return is_absent(cluster, POD, namespace, name)
