"""The volumes of pods: which nodes can mount them, and how many a CSI driver attaches to a node.

Sources: k8s.io/kubernetes pkg/scheduler/framework/plugins: volumebinding/binder.go, volumezone/volume_zone.go,
volumerestrictions/volume_restrictions.go, nodevolumelimits/csi.go.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import CSI_NODE, PV, PVC, STORAGE_CLASS
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.scheduler.node_selectors import NodeSelector, parse_node_selector

_ZONE_KEYS: Final = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels of volumes and nodes, each with the label that a node may have instead."""


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

    @property
    def place(self) -> VolumePlace | None:
        """Where alone the volume can be used, by nodes before zones; None: anywhere, or it cannot be said shortly."""
        return _place(self.node_affinity, self.zones)

    def refusal(self, node: str, labels: Mapping[str, Any]) -> str:
        """Return why a node cannot mount the volume, in words; empty if it can."""
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
def _place(affinity: NodeSelector | None, zones: tuple[tuple[str, frozenset[str]], ...]) -> VolumePlace | None:
    terms = affinity.terms if affinity is not None else ()
    keys = {requirement.key for term in terms for requirement in term.labels}
    found = dict(zones)
    for key in keys:
        allowed = [values for term in terms if (values := term.allowed_values(key)) is not None]
        if len(allowed) == len(terms):
            found[key] = frozenset[str]().union(*allowed)
    few = {key: sorted(values) for key, values in found.items() if 0 < len(values) <= _MOST_PLACES}
    for key in sorted(few, key=lambda key: (not key.endswith(_NODE_KEYS), not key.endswith("zone"), key)):
        is_node, named = key.endswith(_NODE_KEYS), " or ".join(few[key])
        where = f"on node {named}" if is_node else f"in zone {named}" if key.endswith("zone") else ""
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
        Unseen: the claim or its volume cannot be read, or kube-scheduler chooses a node and a volume together.
    """
    found = cluster.get(PVC, namespace, name)
    if found is None:
        return Claim(name, f"claim {name} does not exist")
    fault = _fault(found)
    volume_name = found.at("spec", "volumeName").text
    if not fault and not volume_name and _waits_for_pod(found, cluster):
        raise Unseen(f"where storage for claim {namespace}/{name} can be provisioned")
    if not volume_name:
        return Claim(name, fault or f"claim {name} is not bound")
    if fault:
        return _faulty(found, fault, volume_name, cluster)
    volume = cluster.get(PV, "", volume_name)
    if volume is None:
        return Claim(name, f"claim {name} is bound to volume {volume_name}, which does not exist")
    return _bound(found, volume)


def _faulty(found: Object, fault: str, volume_name: str, cluster: Cluster) -> Claim:
    """Return a claim that no new pod can mount. Pods that run with it still attach its volume (csi.go#getCSIDriverInfo)."""
    try:
        volume = cluster.get(PV, "", volume_name)
    except Unseen:
        volume = None
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


def _waits_for_pod(found: Object, cluster: Cluster) -> bool:
    """Return whether a claim is bound only when kube-scheduler has chosen a node, which is not modelled.

    Raises:
        Unseen: its StorageClass cannot be read.
    """
    name = found.at("spec", "storageClassName").text
    chosen = cluster.get(STORAGE_CLASS, "", name) if name else None
    return chosen is not None and chosen["volumeBindingMode"].text == "WaitForFirstConsumer"


def _bound(found: Object, volume: Object) -> Claim:
    required = volume.at("spec", "nodeAffinity", "required")
    csi = volume.at("spec", "csi")
    modes = [mode.text for mode in found.at("spec", "accessModes").items()]
    return Claim(
        found.name,
        node_affinity=_by_labels(parse_node_selector(required.value)) if required.is_map else None,
        zones=tuple(_zones(volume.labels)),
        driver=csi["driver"].text or "",
        handle=csi["volumeHandle"].text or volume.name,
        exclusive="ReadWriteOncePod" in modes,
    )


def _by_labels(selector: NodeSelector) -> NodeSelector | None:
    """Return the node affinity of a volume without ``matchFields``, which kube-scheduler ignores in it: the check
    gets the node's labels alone (component-helpers storage/volume/helpers.go#CheckNodeAffinity)."""
    if any(term.fields and not term.labels for term in selector.terms):
        return None
    return selector._replace(terms=tuple(term._replace(fields=frozenset()) for term in selector.terms))


def _zones(labels: Mapping[str, str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the zones of a volume; a label with an empty part is ignored (volume_zone.go#getPVTopologies)."""
    for key in _ZONE_KEYS:
        values = [value.strip() for value in labels.get(key, "").split("__")]
        if all(values):
            yield key, frozenset(values)


def limits(cluster: Cluster, node: str) -> Mapping[str, int]:
    """Return how many volumes each CSI driver attaches to the node at most; drivers without a limit are omitted.

    Raises:
        Unseen: the CSINode cannot be read.
    """
    found = cluster.get(CSI_NODE, "", node)
    if found is None:
        return {}
    counts = {
        driver["name"].text or "": driver.at("allocatable", "count").integer
        for driver in found.at("spec", "drivers").items()
    }
    return {driver: count for driver, count in counts.items() if count is not None}
