"""Subnets of secondary networks from which OVN-Kubernetes gives a pod no address, as all are taken.

OVN-Kubernetes says so in an Event of the pod. The kubelet and Multus only say that the annotation
of the pod did not come in time, on each node. An address of a VM is kept by its IPAMClaim while the
VM is stopped, and goes with the VM: a controller takes its finalizer off when the VM or VMI changes
or goes. A claim of which it missed that keeps the finalizer, so no deletion of it ends. Sources:
ovn-kubernetes/ovn-kubernetes:go-controller/pkg/clustermanager/pod/allocator.go#recordPodErrorEvent,
:go-controller/pkg/allocator/pod/pod_annotation.go, :go-controller/pkg/allocator/ip/allocator.go
(range is full; later: subnet address pool exhausted), :go-controller/pkg/cni/types/types.go;
kubevirt/ipam-extensions:pkg/vminetworkscontroller/vmi_controller.go#shouldCleanFinalizers,
:pkg/vmnetworkscontroller/vm_controller.go#onVMPredicates, :pkg/claims/claims.go#Cleanup.
"""

from __future__ import annotations

import ipaddress
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from virt_admit.forecasts.placement.starts import attached_networks
from virt_admit.forecasts.placement.starts.started_pods import PodStart, StartFault
from virt_admit.model.commands import kubectl, shell, typed
from virt_admit.model.kubernetes import clock, events, kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NAD, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import down_vms, networks
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import find, is_absent
from virt_admit.model.messages import count, names

READS: Final[Reads] = union(attached_networks.READS, down_vms.READS)
IPAM_CLAIM: Final = kinds.guess("k8s.cni.cncf.io/v1alpha1", "IPAMClaim")
"""An address that outlives the pod of a VM. In a live cluster discovery finds it."""
_REASON: Final = "ErrorAllocatingPod"
_WANTED: Final = r"failed to assign pod addresses for ([\w.-]{{1,63}})/([\w.-]{{1,253}})/{pod}: "
"""The network comes first; that of the cluster has one part alone."""
_FULL: Final = re.compile(r"range is full|subnet address pool exhausted")
_AWAITED: Final = "timed out waiting for annotations"
_OF_NODE: Final = ("", "layer3")
"""Topologies whose subnets are divided among the nodes."""
_MOST: Final = 2**12
"""Addresses of a subnet that are counted, and exclusions that are read."""
_FINALIZER: Final = "kubevirt.io/persistent-ipam"


class _Holder(NamedTuple):
    """An IPAMClaim with addresses, and what becomes of them."""

    claim: Object
    addresses: tuple[str, ...]
    owner: str
    """The VM, with its namespace; empty: not known."""
    state: str
    """Why its VM does not need them now: ``is stopped``; empty: it may."""

    @property
    def words(self) -> str:
        return f"{names(self.addresses)} for VM {self.owner}, which {self.state}"

    @property
    def is_kept(self) -> bool:
        """Whether the finalizer of its VM keeps it."""
        return any(each.text == _FINALIZER for each in self.claim.metadata["finalizers"].items())


def fault(start: PodStart) -> StartFault | None:
    """Return which network has no address left for a pod; None: no Event says so, and its
    IPAMClaims do not hold all of them.
    """
    created = clock.instant(start.pod.created)
    text = events.last_warning(start.pod, _REASON, created, start.cluster)
    wanted = _WANTED.format(pod=re.escape(start.pod.full_name))
    said = re.search(wanted, text) if _FULL.search(text) else None
    definition = (
        find(start.cluster, NAD, said[1], said[2]) if said is not None else _awaiting(start)
    )
    if definition is not None:
        return _of_network(definition, start, certain=said is not None)
    if said is None:
        return None
    title = f"{said[1]}/{said[2]}"
    reason = f"OVN-Kubernetes has no address left for {NAD.kind} {title}"
    return StartFault(reason, f"network {title} has no address left", _wider(title), lasts=True)


def _awaiting(start: PodStart) -> Object | None:
    """Return the network for which OVN-Kubernetes has not written the annotation of a pod."""
    found = attached_networks.delegated(start)
    return found[0] if found is not None and _AWAITED in found[1] else None


def _of_network(definition: Object, start: PodStart, *, certain: bool) -> StartFault | None:
    config, title = networks.config(definition), definition.full_name
    subnets, excluded = config["subnets"].text or "", config["excludeSubnets"].text or ""
    without = f" and excludeSubnets {excluded}" if excluded else ""
    brief = f"network {title} has no address left"
    reason = (
        f"OVN-Kubernetes has no address left for {NAD.kind} {title}, whose spec.config has subnets "
        f"{subnets or '(none)'}{without}"
    )
    if (config["topology"].text or "") in _OF_NODE:
        return StartFault(reason, brief, _wider(title), of_node=True) if certain else None
    holders = list(_holders(config["name"].text or "", start.cluster))
    given = _addresses(subnets, excluded)
    taken = {each for holder in holders for each in holder.addresses}
    full = given and given <= taken
    if not (certain or full) or any(each.owner == _vm_of(start.pod) for each in holders):
        return None  # it has one since
    held = _held(holders, f"all {len(given)} addresses" if full else f"{len(taken)} of them")
    return StartFault(f"{reason}{held}", brief, _remedy(holders, title), lasts=True)


def _vm_of(pod: Object) -> str:
    return f"{pod.namespace}/{pod.labels.get(launcher_pod.NAME)}"


def _held(holders: Sequence[_Holder], some: str) -> str:
    """Return who has the addresses of a network; empty: no IPAMClaim is known.

    ``some``: how many they have.
    """
    if not holders:
        return ""
    claims = count(len(holders), "IPAMClaim")
    unused = [each for each in holders if each.state]
    told = f", among them {names((each.words for each in unused), 250)}" if unused else ""
    return f". {claims} {'holds' if len(holders) == 1 else 'hold'} {some}{told}"


def _remedy(holders: Sequence[_Holder], title: str) -> str:
    wider = _wider(title)
    gone = sorted((each for each in holders if each.state == _GONE), key=lambda each: each.is_kept)
    if gone:
        return _without_vm([each for each in gone if each.is_kept is gone[0].is_kept], wider)
    stopped = [each for each in holders if each.state]
    if not stopped:
        every = shell("kubectl", "get", IPAM_CLAIM.resource, "-A")
        unneeded = "delete a VM that is no longer needed, with which its IPAMClaim goes"
        return f"{wider}; or, as a decision, {unneeded} ({every})"
    which = names(f"VM {each.owner} ({names(each.addresses)})" for each in stopped)
    namespace, _, name = stopped[0].owner.partition("/")
    see = kubectl("describe", VM, name, namespace)
    return (
        f"{wider}; or, as a decision, if it is no longer needed ({see}), delete {which}, with "
        "which its IPAMClaim and the disks that it owns go"
    )


def _without_vm(gone: Sequence[_Holder], wider: str) -> str:
    """Return what frees the addresses of VMs that do not exist: where a finalizer is left, the
    deletion that the API server asks for does not end.
    """
    first, many = gone[0].claim, "s" if len(gone) > 1 else ""
    which = f"IPAMClaim{many} {names(each.claim.full_name for each in gone)}"
    unless = "whose VM does not exist, unless that VM is to be restored"
    if not gone[0].is_kept:
        delete = kubectl("delete", IPAM_CLAIM, first.name, first.namespace)
        return typed(f"delete {which}, {unless}", delete, f"or {wider}")
    return typed(
        f"as a decision, take finalizer {_FINALIZER} off {which}, {unless} (its controller does so "
        "only when a VM goes)",
        kubectl("edit", IPAM_CLAIM, first.name, first.namespace),
        f"see that this controller runs; or {wider}",
    )


def _wider(title: str) -> str:
    return (
        f"give the VM a network with larger subnets: a new {NAD.kind} instead of {title}, as pods "
        "that run keep the subnets of theirs"
    )


def _holders(network: str, cluster: Cluster) -> Iterator[_Holder]:
    """Yield the IPAMClaims of a network that have addresses."""
    for claim in sorted(cluster.known(IPAM_CLAIM), key=lambda each: each.full_name):
        texts = (each.text or "" for each in claim.at("status", "ips").items())
        addresses = tuple(each.partition("/")[0] for each in texts if each)
        if addresses and network and claim.at("spec", "network").text == network:
            owner = claim.controller
            own = owner is not None and owner["kind"].text in (VM.kind, VMI.kind)
            name = (owner["name"].text if owner is not None and own else None) or ""
            owned = f"{claim.namespace}/{name}" if name else ""
            yield _Holder(claim, addresses, owned, _state(claim.namespace, name, cluster))


def _state(namespace: str, name: str, cluster: Cluster) -> str:
    """Return why a VM needs no address now; empty: it may need one, or that is not known."""
    vm = find(cluster, VM, namespace, name)
    if vm is not None:
        return "is stopped" if down_vms.is_stopped(vm, cluster) else ""
    gone = name and all(is_absent(cluster, each, namespace, name) for each in (VMI, VM))
    return _GONE if gone else ""


_GONE: Final = "does not exist"


def _addresses(subnets: str, excluded: str) -> frozenset[str]:
    """Return the addresses that pods can have of small IPv4 subnets; empty: not known."""
    if excluded.count(",") > _MOST or subnets.count(",") > _MOST:
        return frozenset()
    try:
        given = [ipaddress.IPv4Network(each.strip()) for each in subnets.split(",")]
        without = [ipaddress.ip_network(each.strip()) for each in excluded.split(",") if each]
    except ValueError:
        return frozenset()
    if sum(each.num_addresses for each in given) > _MOST:
        return frozenset()
    spans = list(ipaddress.collapse_addresses(each for each in without if each.version == 4))
    starts = [each.network_address for each in spans]
    return frozenset(
        str(address)
        for network in given
        for address in network.hosts()
        if not (at := bisect_right(starts, address)) or address not in spans[at - 1]
    )
