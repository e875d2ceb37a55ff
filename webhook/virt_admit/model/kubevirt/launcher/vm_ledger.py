"""The ledger of a cluster: what its nodes hold,
and which of it starts again after the loss of a node.

It is kept by events of Nodes, Pods, VMIs and VMs in any order, or made from a cluster at once. Both
give equal ledgers. The pods of a migrating VMI count once, on its node: a migration changes
nothing.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from virt_admit.model.kubernetes.cluster import Cluster, Unseen, check_time, gather
from virt_admit.model.kubernetes.kinds import NODE, POD, VM, VMI, Kind
from virt_admit.model.kubernetes.nodes import SCHEDULABLE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads
from virt_admit.model.kubernetes.workloads import CONTAINERS
from virt_admit.model.kubevirt.instances import lifecycle, vmis, vms
from virt_admit.model.kubevirt.instances.lifecycle import Then
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import find
from virt_admit.model.scheduler.ledger import (
    Ledger,
    LedgerNode,
    Role,
    Shape,
    as_requests,
    ledger_node,
)
from virt_admit.model.scheduler.resources import amounts, pod_requests
from virt_admit.model.scheduler.snapshot import read_node

KINDS: Final = (NODE, POD, VMI, VM)
"""The kinds whose objects make the ledger."""

READS: Final[Reads] = {
    NODE: (
        "metadata.labels",
        "spec.unschedulable",
        "spec.taints",
        "status.allocatable",
        *CONDITIONS,
    ),
    POD: (
        *("metadata.labels", "metadata.ownerReferences"),
        *("spec.containers.name", "spec.containers.resources", "spec.initContainers.name"),
        *(
            "spec.initContainers.resources",
            "spec.initContainers.restartPolicy",
            "spec.nodeName",
            "spec.overhead",
        ),
        *("spec.priority", "spec.resources.requests", "spec.tolerations"),
        *(
            f"status.{kind}.{field}"
            for kind in CONTAINERS
            for field in ("name", "allocatedResources", "resources.requests")
        ),
        *("status.allocatedResources", "status.resources.requests", "status.phase"),
    ),
    VMI: ("metadata.ownerReferences", "status.nodeName", "status.phase"),
    VM: ("spec.running", "spec.runStrategy"),
}
_USUAL: Final = "node.kubernetes.io/"
"""Prefix of the taints that the API server,
KubeVirt and the DaemonSet controller let pods tolerate.
"""
_STAYING_OWNERS: Final = ("DaemonSet", "Node")
"""Controllers whose pods are bound to their node."""


class LedgerVmi(NamedTuple):
    """What the ledger keeps of a VMI. A cluster has few different ones."""

    node: str
    owner: str
    """The kind of the controller that makes another VMI; empty: none is known."""


class LedgerPod(NamedTuple):
    """What a pod holds of its node."""

    node: str
    shape: Shape


class Taken(NamedTuple):
    """What a VMI takes of the room."""

    requests: tuple[tuple[str, int], ...] | None
    """Of its pod; None: it has none."""
    computed: bool
    """Whether it is on a node and has no pod there, so that what it takes is computed."""

    def __bool__(self) -> bool:
        return self.requests is not None or self.computed


class PodFacts(NamedTuple):
    """What the ledger keeps of a pod."""

    pod: LedgerPod
    vmi: str = ""
    """The name of its VMI, for a launcher pod."""


Facts = LedgerNode | PodFacts | LedgerVmi | bool | None
"""What the ledger keeps of an object: of a VM whether it starts again after the loss of its node.
None: it counts as gone.
"""

_ByName = dict[str, dict[str, Any]]
"""By namespace, then by name."""


class VmLedger:
    """Keeps a ``Ledger`` by events: each replaces what is known of one object."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._pods: _ByName = {}
        """Of ordinary pods the ``LedgerPod``, of launcher pods the name of the VMI."""
        self._launchers: _ByName = {}
        """By VMI: name and ``LedgerPod`` of its pod, or several such pairs,
        as while it migrates.
        """
        self._vmis: _ByName = {}
        self._returning: _ByName = {}
        """The VMs that start again after the loss of their node."""
        self._without_pod: set[tuple[str, str]] = set()
        self._shared: dict[LedgerPod | LedgerVmi, Any] = {}
        self._generation = 0

    @property
    def generation(self) -> int:
        """A counter of the changes that a reader can see."""
        return self._generation + self.ledger.generation

    # --- events -----------------------------------------------------------------------------------

    def record(self, kind: Kind, namespace: str, name: str, facts: Facts) -> None:
        """Replace what is known of an object of one of ``KINDS``."""
        if kind is NODE:
            self.ledger.set_node(name, facts if isinstance(facts, LedgerNode) else None)
        elif kind is POD:
            self._set_pod(namespace, name, facts if isinstance(facts, PodFacts) else None)
        else:
            known = self._vmis if kind is VMI else self._returning
            value = self._share(facts) if isinstance(facts, LedgerVmi) else facts
            if known.get(namespace, {}).get(name) != value:
                with _Rebooked(self, namespace, name):
                    _set(known, namespace, sys.intern(name), value)
                self._generation += 1

    def _set_pod(self, namespace: str, name: str, facts: PodFacts | None) -> None:
        before = self._pods.get(namespace, {}).get(name)
        after = self._share(facts.pod) if facts is not None else None
        vmi = sys.intern(facts.vmi) if facts is not None else ""
        if isinstance(before, str):
            self._set_launcher(namespace, before, name, None if before != vmi else after)
        elif before is not None and (vmi or before is not after):
            self.ledger.add(before.node, before.shape, -1)
        if vmi and before != vmi:
            self._set_launcher(namespace, vmi, name, after)
        elif not vmi and after is not None and before is not after:
            self.ledger.add(*after)
        _set(self._pods, namespace, name, vmi or after)

    # --- what is known ----------------------------------------------------------------------------

    def names(self, kind: Kind, only: str | None = None) -> Iterator[tuple[str, str]]:
        """Yield namespace and name of the objects of a kind that count,
        of all namespaces or of one.
        """
        if kind is NODE:
            yield from (("", name) for name in tuple(self.ledger.nodes))
            return
        known = {POD: self._pods, VMI: self._vmis, VM: self._returning}[kind]
        for namespace in tuple(known) if only is None else (only,):
            yield from ((namespace, name) for name in tuple(known.get(namespace, ())))

    def taken(self, namespace: str, vmi: str) -> Taken:
        """Return what a VMI takes of the room.

        It changes once its pod, or a larger one, is known.
        """
        pod = self.booked(namespace, vmi)
        return Taken(
            pod.shape.requests if pod is not None else None, (namespace, vmi) in self._without_pod
        )

    def booked(self, namespace: str, vmi: str) -> LedgerPod | None:
        """Return what counts for a VMI; None: it has no pod."""
        pods = self._pods_of(namespace, vmi)
        facts = self._vmis.get(namespace, {}).get(vmi)
        if facts is not None and facts.node:
            pods = tuple(each for each in pods if each[1].node == facts.node)
        if not pods:
            return None
        pod: LedgerPod = min(pods)[1]
        if facts is None or not self._starts_again(namespace, vmi, facts):
            return pod
        return LedgerPod(pod.node, pod.shape._replace(role=Role.RETURNS))

    def runs(self, namespace: str, vmi: str) -> bool:
        """Return whether the VMI is known and has not ended."""
        return vmi in self._vmis.get(namespace, {})

    def returning_on(self, nodes: frozenset[str]) -> Iterator[tuple[str, str, Shape]]:
        """Yield namespace, name and shape of the VMIs on these nodes that start again elsewhere."""
        for namespace, found in tuple(self._vmis.items()):
            for name, facts in tuple(found.items()):
                if facts.node in nodes and self._starts_again(namespace, name, facts):
                    pod = self.booked(namespace, name)
                    if pod is not None:
                        yield namespace, name, pod.shape

    def without_pod(self) -> tuple[tuple[str, str], ...]:
        """Return the VMIs on a node that have no pod there, sorted:
        what they take has to be computed.
        """
        return tuple(sorted(self._without_pod))

    def node_of(self, namespace: str, vmi: str) -> str:
        """Return the node of a VMI; empty: it has none, or is not known."""
        facts = self._vmis.get(namespace, {}).get(vmi)
        return facts.node if facts is not None else ""

    def starts_again(self, namespace: str, vmi: str) -> bool:
        """Return whether it is certain that a VMI starts again after the loss of its node."""
        facts = self._vmis.get(namespace, {}).get(vmi)
        return facts is not None and self._starts_again(namespace, vmi, facts)

    def _starts_again(self, namespace: str, name: str, facts: LedgerVmi) -> bool:
        if facts.owner == VM.kind:
            return self._returning.get(namespace, {}).get(name) is True
        return bool(facts.owner)

    def _set_launcher(self, namespace: str, vmi: str, name: str, pod: LedgerPod | None) -> None:
        with _Rebooked(self, namespace, vmi):
            pods = [each for each in self._pods_of(namespace, vmi) if each[0] != name]
            if pod is not None:
                pods.append((name, pod))
            _set(
                self._launchers,
                namespace,
                vmi,
                (pods[0] if len(pods) == 1 else tuple(pods)) or None,
            )

    def _pods_of(self, namespace: str, vmi: str) -> tuple[tuple[str, LedgerPod], ...]:
        found = self._launchers.get(namespace, {}).get(vmi, ())
        return (found,) if found and isinstance(found[0], str) else found

    def _share(self, value: LedgerPod | LedgerVmi) -> Any:
        return self._shared.setdefault(value, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VmLedger) and (
            self.ledger,
            self._without_pod,
            self._vmis,
            self._returning,
        ) == (other.ledger, other._without_pod, other._vmis, other._returning)

    __hash__ = None  # type: ignore[assignment]


class _Rebooked:
    """Replaces what counts for a VMI by what counts after the block."""

    def __init__(self, ledger: VmLedger, namespace: str, vmi: str) -> None:
        self._ledger, self._key = ledger, (namespace, vmi)

    def __enter__(self) -> None:
        self._before = self._ledger.booked(*self._key)

    def __exit__(self, *_: object) -> None:
        ledger, after = self._ledger, self._ledger.booked(*self._key)
        if self._before != after:
            if self._before is not None:
                ledger.ledger.add(*self._before, number=-1)
            if after is not None:
                ledger.ledger.add(*after)
        namespace, name = self._key
        facts = ledger._vmis.get(namespace, {}).get(name)
        if facts is not None and facts.node and after is None:
            ledger._without_pod.add(self._key)
        else:
            ledger._without_pod.discard(self._key)


def _set(known: _ByName, namespace: str, name: str, value: Any) -> None:
    if value is not None:
        known.setdefault(namespace, {})[name] = value
        return
    objects = known.get(namespace)
    if objects is not None and objects.pop(name, None) is not None and not objects:
        del known[namespace]


# --- objects --------------------------------------------------------------------------------------


def facts_of(kind: Kind, obj: Object, summary: Mapping[str, Any] | None = None) -> Facts:
    """Return what the ledger keeps of an object; None: it counts as gone,
    such as a pod that has ended.

    ``summary``: the pod ``obj`` as ``pod_summary`` keeps it, whose requests are read faster.
    """
    if kind is NODE:
        return ledger_node(read_node(obj), hosts_vms=SCHEDULABLE in obj.labels)
    if kind is POD:
        return None if obj.ended else PodFacts(_ledger_pod(obj, summary), vmi_name(obj))
    if kind is VMI:
        return None if obj.ended else _ledger_vmi(obj)
    return True if returns(obj) and not obj.deleted else None


def vmi_of(pod: Object, cluster: Cluster) -> Object | None:
    """Return the VMI of a launcher pod; None: it is another pod, or its VMI is not known."""
    return find(cluster, VMI, pod.namespace, vmi_name(pod))


def user(pod: Object) -> str:
    """Return how a pod is named in a message: as the VM that it runs, if it runs one."""
    name = vmi_name(pod)
    return f"VM {pod.namespace}/{name}" if name else f"pod {pod.full_name}"


def vmi_name(pod: Object) -> str:
    """Return the name of the VMI of a launcher pod; empty for other pods."""
    # without fields, because this runs for every pod of a cluster
    metadata = _map(pod.data.get("metadata"))
    labels = _map(metadata.get("labels"))
    if labels.get("kubevirt.io") != "virt-launcher":
        return ""
    name = next(
        (each.get("name") for each in _owners(metadata) if each.get("kind") == VMI.kind), None
    )
    found = name if name is not None else labels.get(launcher_pod.NAME)
    return found if isinstance(found, str) else ""


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _owners(metadata: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    owners = metadata.get("ownerReferences")
    yield from (
        each for each in (owners if isinstance(owners, list) else ()) if isinstance(each, dict)
    )


def _ledger_pod(pod: Object, summary: Mapping[str, Any] | None) -> LedgerPod:
    spec = _map(pod.data.get("spec"))
    node = spec.get("nodeName")
    priority = spec.get("priority")
    tolerations = spec.get("tolerations")
    requests = (
        _summed(summary)
        if summary is not None
        else as_requests(pod_requests(pod["spec"], pod["status"]))
    )
    shape = Shape(
        _role(_map(pod.data.get("metadata"))),
        requests,
        priority if isinstance(priority, int) and not isinstance(priority, bool) else 0,
        isinstance(tolerations, list) and any(map(_is_unusual, tolerations)),
    )
    return LedgerPod(node if isinstance(node, str) else "", shape)


def _is_unusual(toleration: Any) -> bool:
    return isinstance(toleration, dict) and not str(toleration.get("key") or "").startswith(_USUAL)


def _role(metadata: Mapping[str, Any]) -> Role:
    """Return the role of an ordinary pod; launcher pods return only if their VM does."""
    kinds = [each.get("kind") for each in _owners(metadata) if each.get("controller") is True]
    return Role.STAYS if not kinds or kinds[0] in (VMI.kind, *_STAYING_OWNERS) else Role.CONTROLLED


def _summed(summary: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return the requests of a pod as ``pod_summary`` keeps it: those of one container."""
    for container in summary.get("spec", {}).get("containers") or ():
        return _parsed(tuple(container["resources"].get("requests", {}).items()))
    return ()


@functools.lru_cache(maxsize=4096)
def _parsed(requests: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, int], ...]:
    return as_requests(amounts(dict(requests)))


def _ledger_vmi(vmi: Object) -> LedgerVmi:
    node = vmi.at("status", "nodeName").text or ""
    if vmis.owner(vmi, "VirtualMachineInstanceReplicaSet"):
        return LedgerVmi(node, "VirtualMachineInstanceReplicaSet")
    return LedgerVmi(node, VM.kind if vmis.owner(vmi, VM.kind) == vmi.name else "")


def returns(vm: Object) -> bool:
    """Return whether it is certain that a running VM starts again after the loss of its node."""
    outcomes = lifecycle.RUN_STRATEGY.get(vms.run_strategy(vms.vm_spec(vm)) or "")
    return outcomes is not None and outcomes.node_lost is Then.RESTARTED


# --- a ledger at once -----------------------------------------------------------------------------


def of(cluster: Cluster) -> VmLedger:
    """Return the ledger of a cluster. A live cluster provides the one that its informers keep.

    Nodes from plain manifest files count as all nodes, and then the other objects of the files as
    all objects.

    Raises:
        Unseen: nodes, pods, VMIs or VMs cannot be read.
    """
    found = cluster.cached(read)
    if isinstance(found, Unseen):
        raise Unseen(found.what)
    return found


def read(cluster: Cluster) -> VmLedger | Unseen:
    """Return the ledger of the objects of a cluster, or what cannot be read."""
    objects = {kind: gather(cluster.list(kind)) for kind in KINDS}
    nodes, unseen_nodes = objects[NODE]
    from_files = bool(nodes and unseen_nodes)
    for _, unseen in objects.values():
        if unseen and not from_files:
            return Unseen(unseen)
    ledger = VmLedger()
    for kind, (found, _) in objects.items():
        for obj in found:
            check_time()
            namespace = vms.namespace_of(obj) if kind.namespaced else ""
            ledger.record(kind, namespace, obj.name, facts_of(kind, obj))
    return ledger
