"""The volumes of pods: which nodes can mount them, and how many a CSI driver attaches to a node.

Sources: k8s.io/kubernetes pkg/scheduler/framework/plugins: volumebinding/binder.go,
volumezone/volume_zone.go, volumerestrictions/volume_restrictions.go, nodevolumelimits/csi.go.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from virt_admit.model.kubernetes import kinds, selectors
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, gather
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubernetes.reads import Reads
from virt_admit.model.kubernetes.selectors import Selector
from virt_admit.model.lookups import find
from virt_admit.model.scheduler.node_selectors import NodeSelector, parse_node_selector
from virt_admit.model.scheduler.resources import MEMORY, amount, show

_SELECTED: Final = "volume.kubernetes.io/selected-node"
READS: Final[Reads] = {
    kinds.PVC: (
        f"metadata.annotations.{_SELECTED}",
        "spec.accessModes",
        "spec.resources.requests.storage",
        "spec.storageClassName",
        "spec.volumeName",
        "status.phase",
    ),
    kinds.PV: (
        "metadata.labels",
        "spec.claimRef.uid",
        "spec.csi.driver",
        "spec.csi.volumeHandle",
        "spec.nodeAffinity",
        "spec.storageClassName",
    ),
    kinds.STORAGE_CLASS: ("allowedTopologies", "provisioner", "volumeBindingMode"),
    kinds.CSI_DRIVER: ("spec.storageCapacity",),
    kinds.CSI_CAPACITY: ("capacity", "maximumVolumeSize", "nodeTopology", "storageClassName"),
    kinds.CSI_NODE: ("spec.drivers.name", "spec.drivers.allocatable"),
}
"""What decides which nodes can mount the volumes of a pod."""

_ZONE_KEYS: Final = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels of volumes and nodes, each with the label that a node may have instead."""


NO_STORAGE: Final = "storage for claim "
"""How the refusal of a node begins whose driver has too little left for a claim."""


@dataclass(frozen=True, slots=True)
class StorageOffers:
    """The largest possible volume of a StorageClass, by the labels of nodes.

    A class may have an offer for each node.
    """

    every: tuple[tuple[Selector, int], ...] = ()
    _by_label: dict[tuple[str, str] | None, list[tuple[Selector, int]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The offers by a label that the nodes must have; None: by none."""

    def __post_init__(self) -> None:
        for offer in self.every:
            self._by_label.setdefault(_demanded(offer[0]), []).append(offer)

    def __hash__(self) -> int:
        """Return a hash that does not look at each offer."""
        return hash((len(self.every), self.every[:1]))

    def most(self, labels: Mapping[str, Any]) -> int | None:
        """Return the largest volume of a node with these labels; None: nothing is offered there."""
        given = ((key, value) for key, value in labels.items() if isinstance(value, str))
        asked = (each for label in (None, *given) for each in self._by_label.get(label, ()))
        return max((size for nodes, size in asked if nodes.matches(labels)), default=None)


def _demanded(selector: Selector) -> tuple[str, str] | None:
    """Return a label without which the selector matches nothing, that of one node first; None: it
    demands no single value.
    """
    exact = (
        each
        for each in selector.requirements
        if each.operator == selectors.IN and len(each.values) == 1
    )
    labels = ((each.key, next(iter(each.values))) for each in exact)
    return min(labels, key=lambda label: (not label[0].endswith(_NODE_KEYS), label), default=None)


@dataclass(frozen=True, slots=True)
class FreeStorage:
    """What a CSI driver says that nodes have left for a claim that is bound when its pod has a
    node.

    Source: pkg/scheduler/framework/plugins/volumebinding/binder.go#hasEnoughCapacity #nodeHasAccess
    #capacitySufficient.
    """

    driver: str
    storage_class: str
    size: int
    """What the claim requests, in bytes."""
    allowed: NodeSelector | None
    """The topologies of the StorageClass; None: all."""
    offers: StorageOffers

    def most(self, labels: Mapping[str, Any]) -> int | None:
        """Return the largest volume that a node may get; None: the driver says nothing about it."""
        return self.offers.most(labels)

    @property
    def needed(self) -> str:
        """What the claim requests, in words."""
        return show(MEMORY, self.size)

    def says(self, labels: Mapping[str, Any]) -> str:
        """Return what the driver says of a node, in words."""
        most = self.most(labels)
        return "nothing" if most is None else show(MEMORY, most)

    def lacks(self, labels: Mapping[str, Any]) -> str:
        """Return what keeps a node from getting the volume now, in words; empty: nothing."""
        if (self.most(labels) or 0) >= self.size:
            return ""
        return f"{self.driver} reports {self.says(labels)} there, {self.needed} needed"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim, and the volume that it is bound to, demand of a node."""

    name: str
    fault: str = ""
    """Why no pod that mounts the claim is scheduled at all; empty: nothing."""
    node_affinity: NodeSelector | None = None
    zones: tuple[tuple[str, frozenset[str]], ...] = ()
    """Labels of the volume, each with the values that a node with any such label must have."""
    driver: str = ""
    handle: str = ""
    """The volume's name at the CSI driver; the same one is attached only once to a node."""
    exclusive: bool = False
    """Whether one pod in the cluster may use it (``ReadWriteOncePod``)."""
    free: FreeStorage | None = None
    """Where its volume could be made; None: it has one."""
    unserved: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Nodes that cannot mount it now, which kube-scheduler does not know, each with the reason."""

    @property
    def place(self) -> VolumePlace | None:
        """Where alone the volume can be used, by nodes before zones; None: anywhere,
        or it cannot be said shortly.
        """
        return _place(self.node_affinity, self.zones)

    def refusal(self, node: str, labels: Mapping[str, Any], *, moment: bool = True) -> str:
        """Return why a node cannot mount the volume; empty: it can.

        ``moment``: what passes counts.
        """
        if moment and node in self.unserved:
            return self.unserved[node]
        if (
            self.free is not None
            and self.free.allowed is not None
            and not self.free.allowed.matches(node, labels)
        ):
            return (
                f"StorageClass {self.free.storage_class} allows no volume for claim {self.name} "
                "there"
            )
        if self.free is not None and moment and (lacks := self.free.lacks(labels)):
            return f"{NO_STORAGE}{self.name}: {lacks}"
        if self.node_affinity is not None and not self.node_affinity.matches(node, labels):
            where = f"{self.place.words} alone" if self.place is not None else "not reachable"
            return f"volume of claim {self.name} is {where}"
        if any(key in labels for key in _ZONE_KEYS):
            for key, values in self.zones:
                if labels.get(key, labels.get(_ZONE_KEYS[key])) not in values:
                    return f"volume of claim {self.name} is in another zone"
        return ""


class VolumePlace(NamedTuple):
    """Where alone a volume can be used."""

    words: str
    """``on node n1``, ``in zone b``."""
    label: str
    """What its nodes have, ``topology.kubernetes.io/zone=b``."""
    is_node: bool
    """Whether nodes are named."""


_NODE_KEYS: Final = ("/hostname", "/node", "/nodename", "/nodeid")
"""How the keys end that name one node: of Kubernetes, TopoLVM, csi-driver-host-path, OpenEBS."""
_MOST_PLACES: Final = 3


@functools.lru_cache(maxsize=4096)
def _place(
    affinity: NodeSelector | None, zones: tuple[tuple[str, frozenset[str]], ...]
) -> VolumePlace | None:
    terms = affinity.terms if affinity is not None else ()
    keys = {requirement.key for term in terms for requirement in term.labels}
    found = dict(zones)
    for key in keys:
        allowed = [values for term in terms if (values := term.allowed_values(key)) is not None]
        if len(allowed) == len(terms):
            found[key] = frozenset[str]().union(*allowed)
    few = {key: sorted(values) for key, values in found.items() if 0 < len(values) <= _MOST_PLACES}
    for key in sorted(
        few, key=lambda key: (not key.endswith(_NODE_KEYS), not key.endswith("zone"), key)
    ):
        is_node, named = key.endswith(_NODE_KEYS), " or ".join(few[key])
        where = (
            f"on node {named}" if is_node else f"in zone {named}" if key.endswith("zone") else ""
        )
        label = f"{key}={few[key][0]}"
        return VolumePlace(where or f"on nodes with {key}={named}", label, is_node)
    return None


@dataclass(frozen=True, slots=True)
class Volumes:
    """How the claims of pods are looked up."""

    claim: Callable[[str, str], Claim]
    """By namespace and name; raises ``Unseen``."""
    limits: Callable[[str], Mapping[str, int]]
    """Attachable volumes of a node by CSI driver; raises ``Unseen``."""


def claim(cluster: Cluster, namespace: str, name: str) -> Claim:
    """Return what a claim demands of a node.

    Raises:
        Unseen: the claim or its volume cannot be read, or kube-scheduler chooses a node and a
            volume together.
    """
    found = cluster.get(kinds.PVC, namespace, name)
    if found is None:
        return Claim(name, f"claim {name} does not exist")
    fault = _fault(found)
    volume_name = found.at("spec", "volumeName").text
    waits = _waits_for_pod(found, cluster) if not fault and not volume_name else None
    if waits is not None:
        free = _free_storage(found, waits, cluster)
        if free is None:
            raise Unseen(f"where storage for claim {namespace}/{name} can be provisioned")
        return Claim(name, free=free, exclusive=_is_exclusive(found))
    if not volume_name:
        return Claim(name, fault or f"claim {name} is not bound")
    if fault:
        return _faulty(found, fault, volume_name, cluster)
    volume = cluster.get(kinds.PV, "", volume_name)
    if volume is None:
        return Claim(name, f"claim {name} is bound to volume {volume_name}, which does not exist")
    return _bound(found, volume)


def _faulty(found: Object, fault: str, volume_name: str, cluster: Cluster) -> Claim:
    """Return a claim that no new pod can mount.

    Pods that run with it still attach its volume (csi.go#getCSIDriverInfo).
    """
    volume = find(cluster, kinds.PV, "", volume_name)
    if volume is None:
        return Claim(found.name, fault)
    return replace(_bound(found, volume), fault=fault, node_affinity=None, zones=())


def _fault(found: Object) -> str:
    if found.deleted:
        return f"claim {found.name} is being deleted"
    if found.at("status", "phase").text == "Lost":
        return f"claim {found.name} has lost its volume"
    if found.at("status", "phase").text == "Pending" and found.at("spec", "volumeName").text:
        return f"claim {found.name} is not bound"
    return ""


def _waits_for_pod(found: Object, cluster: Cluster) -> Object | None:
    """Return the StorageClass of a claim that is bound only when kube-scheduler has chosen a node;
    None: it is not.

    Raises:
        Unseen: its StorageClass cannot be read.
    """
    name = found.at("spec", "storageClassName").text
    chosen = cluster.get(kinds.STORAGE_CLASS, "", name) if name else None
    if chosen is not None and chosen["volumeBindingMode"].text == "WaitForFirstConsumer":
        return chosen
    return None


def _free_storage(found: Object, chosen: Object, cluster: Cluster) -> FreeStorage | None:
    """Return where the volume of a claim could be made; None: nothing says so, or kube-scheduler
    has an existing one to choose.

    Raises:
        Unseen: what says so could not be read.
    """
    driver = chosen["provisioner"].text or ""
    size = amount(MEMORY, found.at("spec", "resources", "requests", "storage").value)
    known = (
        cluster.get(kinds.CSI_DRIVER, "", driver)
        if driver and size and not found.annotations.get(_SELECTED)
        else None
    )
    if known is None or known.at("spec", "storageCapacity").boolean is not True:
        return None
    existing, unread = cluster.cached(_classes_with_volumes)
    if chosen.name in existing:
        return None
    capacities, blind = cluster.cached(_capacities)
    if unread or blind:
        raise Unseen(unread or blind)
    terms = allowed_terms(chosen)
    allowed = parse_node_selector({"nodeSelectorTerms": terms}) if terms else None
    return FreeStorage(
        driver, chosen.name, size, allowed, capacities.get(chosen.name, StorageOffers())
    )


def allowed_terms(storage_class: Object) -> list[dict[str, Any]]:
    """Return the topologies that a StorageClass allows, as terms of a node selector."""
    return [
        {"matchExpressions": [_expression(each) for each in term["matchLabelExpressions"].items()]}
        for term in storage_class["allowedTopologies"].items()
    ]


def _expression(demand: Field) -> dict[str, Any]:
    return {"key": demand["key"].value, "operator": "In", "values": demand["values"].value}


def _classes_with_volumes(cluster: Cluster) -> tuple[frozenset[str], str]:
    """Return the StorageClasses with a volume bound to no claim, and what could not be read."""
    volumes, unread = gather(cluster.list(kinds.PV))
    free = (each for each in volumes if not each.at("spec", "claimRef", "uid").text)
    return frozenset(each.at("spec", "storageClassName").text or "" for each in free), unread


def _capacities(cluster: Cluster) -> tuple[Mapping[str, StorageOffers], str]:
    """Return what the CSIStorageCapacities of each StorageClass say, and what could not be read."""
    found: dict[str, list[tuple[Selector, int]]] = {}
    listed, unread = gather(cluster.list(kinds.CSI_CAPACITY))
    for each in listed:
        most = each["maximumVolumeSize"] if each["maximumVolumeSize"].present else each["capacity"]
        if each["nodeTopology"].is_map and most.present:
            offer = selectors.parse(each["nodeTopology"].value), amount(MEMORY, most.value)
            found.setdefault(each["storageClassName"].text or "", []).append(offer)
    return {name: StorageOffers(tuple(offers)) for name, offers in found.items()}, unread


def _is_exclusive(found: Object) -> bool:
    return "ReadWriteOncePod" in [mode.text for mode in found.at("spec", "accessModes").items()]


def _bound(found: Object, volume: Object) -> Claim:
    required = volume.at("spec", "nodeAffinity", "required")
    csi = volume.at("spec", "csi")
    return Claim(
        found.name,
        node_affinity=_by_labels(parse_node_selector(required.value)) if required.is_map else None,
        zones=tuple(_zones(volume.labels)),
        driver=csi["driver"].text or "",
        handle=csi["volumeHandle"].text or volume.name,
        exclusive=_is_exclusive(found),
    )


def _by_labels(selector: NodeSelector) -> NodeSelector | None:
    """Return the node affinity of a volume without ``matchFields``, which kube-scheduler ignores in
    it: the check gets the node's labels alone (component-helpers
    storage/volume/helpers.go#CheckNodeAffinity).
    """
    if any(term.fields and not term.labels for term in selector.terms):
        return None
    return selector._replace(
        terms=tuple(term._replace(fields=frozenset()) for term in selector.terms)
    )


def _zones(labels: Mapping[str, str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the zones of a volume; a label with an empty part is ignored
    (volume_zone.go#getPVTopologies).
    """
    for key in _ZONE_KEYS:
        values = [value.strip() for value in labels.get(key, "").split("__")]
        if all(values):
            yield key, frozenset(values)


def limits(cluster: Cluster, node: str) -> Mapping[str, int]:
    """Return how many volumes each CSI driver attaches to the node at most;
    drivers without a limit are omitted.

    Raises:
        Unseen: the CSINode cannot be read.
    """
    found = cluster.get(kinds.CSI_NODE, "", node)
    if found is None:
        return {}
    counts = {
        driver["name"].text or "": driver.at("allocatable", "count").integer
        for driver in found.at("spec", "drivers").items()
    }
    return {driver: count for driver, count in counts.items() if count is not None}
