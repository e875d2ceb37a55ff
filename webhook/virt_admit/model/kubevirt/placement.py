"""The hosts that a VMI names, and the nodes that can run it.

KubeVirt ignores all of this when it publishes ``LiveMigratable``. A VMI with one possible node therefore counts as
migratable, its migration target is never scheduled, and a drain of that node waits forever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from virt_admit.model import nodes
from virt_admit.model.cluster import Cluster, Unseen
from virt_admit.model.kinds import NODE
from virt_admit.model.kubevirt import cpu_models
from virt_admit.model.kubevirt.cpu_models import OFFERED, TARGET, named
from virt_admit.model.kubevirt.effective import Effective, architecture
from virt_admit.model.kubevirt.versions import Gate, gate_is_on
from virt_admit.model.nodes import SCHEDULABLE
from virt_admit.model.objects import Field, Object, Path
from virt_admit.model.reads import CONDITIONS, union
from virt_admit.model.scheduler.filters import is_transient
from virt_admit.model.scheduler.node_selectors import NAME_FIELD, NodeSelector, parse_node_selector, tolerates
from virt_admit.model.scheduler.pods import HOSTNAME
from virt_admit.model.units import parse_quantity

READS: Final = union(
    cpu_models.READS,
    {NODE: ("metadata.labels", "spec.unschedulable", "spec.taints", "status.allocatable", *CONDITIONS)},
)

_REQUIRED: Final = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


@dataclass(frozen=True, slots=True)
class HostPin:
    """The hosts to which a VMI spec is restricted by name; none if the restrictions contradict each other."""

    hosts: frozenset[str]
    path: Path

    @property
    def tight(self) -> bool:
        """Whether at most one host is possible: the VMI is *pinned* and cannot migrate."""
        return len(self.hosts) <= 1


def pin(vmi: Effective) -> HostPin | None:
    """Return the hosts to which a VMI is restricted by name, and the path that restricts it; None: any host.

    Preferred affinity, ``NotIn`` and ``Exists`` restrict nothing.
    """
    selector = vmi.node_selector.field
    host = selector.texts.get(HOSTNAME)
    named = _affinity_hosts(vmi.spec)
    if host is not None:
        return HostPin(frozenset((host,)) if named is None else named & {host}, selector.path)
    terms = vmi.spec.at(*_REQUIRED, "nodeSelectorTerms")
    return None if named is None else HostPin(named, terms.path)


def _affinity_hosts(spec: Field) -> frozenset[str] | None:
    """Return the union of the alternatives if each of them names hosts; skip terms without requirements."""
    required = spec.at(*_REQUIRED)
    if not required.is_map:
        return None
    terms = [term for term in parse_node_selector(required.value).terms if term.labels or term.fields]
    union: frozenset[str] = frozenset()
    for term in terms:
        choices = [values for key in (HOSTNAME, NAME_FIELD) if (values := term.allowed_values(key)) is not None]
        if not choices:
            return None
        union |= frozenset.intersection(*choices)
    return union if terms else None


# --- candidate nodes -----------------------------------------------------------------------------------------------

_HARD: Final = ("NoSchedule", "NoExecute")

_MACHINE_TYPE: Final = "machine-type.node.kubevirt.io/"
_CPU_FEATURE: Final = "cpu-feature.node.kubevirt.io/"
_HYPERV: Final = "hyperv.node.kubevirt.io/"
_FAMILIES: Final = (
    OFFERED,
    TARGET,
    _MACHINE_TYPE,
    _CPU_FEATURE,
    _HYPERV,
    "kubevirt.io/cpumanager",
    "kubevirt.io/realtime",
    "kubevirt.io/sev",
    "kubevirt.io/tdx",
)
"""Prefixes of labels that KubeVirt writes on nodes. If no node has any label of a family, nothing is concluded."""

_HYPERV_FEATURES: Final = (
    "vpindex", "runtime", "reset", "synic", "synictimer", "frequencies", "reenlightenment", "tlbflush", "ipi",
)  # fmt: skip
"""Source: nodeselectorrenderer.go#makeHVFeatureLabelTable; required only if gate HypervStrictCheck is on."""


@dataclass(frozen=True, slots=True)
class NodeProfile:
    """A node that runs KubeVirt, with the properties that determine whether it can run a VMI."""

    name: str
    labels: Mapping[str, Any]
    taints: tuple[Any, ...]
    """Permanent taints that keep pods off the node."""
    allocatable: Mapping[str, Any] | None
    ready: bool
    """Whether it accepts VMIs now."""


def each_place(cluster: Cluster) -> Iterator[NodeProfile]:
    """Yield the nodes with the label key ``kubevirt.io/schedulable``, whatever its value, which changes often.

    They are not cached, because two are often enough, and nodes change too often to keep much of them.

    Raises:
        Unseen: no node is known, but nodes may exist.
    """
    return (place(node) for node in nodes.every(cluster) if SCHEDULABLE in node.metadata["labels"].map)


def places(cluster: Cluster) -> tuple[NodeProfile, ...]:
    """Return the nodes of ``each_place`` from the cache, for repeated use."""
    nodes.every(cluster)
    return cluster.cached(_places)


def _places(cluster: Cluster) -> tuple[NodeProfile, ...]:
    return tuple(each_place(cluster))


def place(node: Object) -> NodeProfile:
    """Return the profile of a node, without cordons and temporary taints."""
    allocatable = node.at("status", "allocatable")
    return NodeProfile(
        node.name,
        node.metadata["labels"].map,
        tuple(taint.value for taint in node.at("spec", "taints").items() if _stays(taint)),
        allocatable.map if allocatable.is_map else None,
        ready(node),
    )


def _stays(taint: Field) -> bool:
    """Return whether a taint keeps pods off for good.

    Results during a drain must equal those before it, or VMs that the drain stopped could not be created again.
    """
    return taint["effect"].text in _HARD and not is_transient(taint.map)


def ready(node: Object) -> bool:
    """Whether a node accepts VMIs now: served by virt-handler, not cordoned, Ready."""
    return (
        node.metadata["labels"].map.get(SCHEDULABLE) == "true"
        and not node.at("spec", "unschedulable").boolean
        and node.condition("Ready")["status"].value == "True"
    )


@dataclass(frozen=True, slots=True)
class Demand:
    """The requirements of a VMI for its node."""

    selector: Mapping[str, str]
    affinity: NodeSelector | None
    tolerations: Any
    labels: tuple[tuple[str, str], ...]
    """Labels that KubeVirt writes and that must be ``"true"``, each with its description."""
    architecture: str | None
    hugepages: str | None
    """The size of its huge pages, ``2Mi``."""


def demand(vmi: Effective, cluster: Cluster, source_model: str | None = None) -> Demand:
    """Return the requirements of a VMI for its node.

    Data that cannot be read requires nothing, so a node that does not qualify certainly does not. Capacity is ignored
    except for huge pages, because it changes by the minute.

    Args:
        vmi: the VMI.
        cluster: the cluster.
        source_model: the host model of the node from which a running ``host-model`` VMI would migrate.
    """
    spec = vmi.spec
    required = spec.at(*_REQUIRED)
    hugepages = spec.at("domain", "memory", "hugepages", "pageSize").text
    labels = [*_cpu_model(vmi, cluster), *_cpu(spec["domain"]), *_security(vmi.launch_security.field)]
    if source_model:
        labels.append((TARGET + source_model, f"host model {source_model}"))
    hyperv = spec.at("domain", "features", "hyperv")
    if hyperv.present and _is_on(cluster, Gate.HYPERV_STRICT_CHECK):
        labels += _hyperv(hyperv)
    if vmi.instancetype is not None:
        labels += _cpu(vmi.instancetype.spec)
        hugepages = hugepages or vmi.instancetype.spec.at("memory", "hugepages", "pageSize").text
    conclusive = cluster.cached(_conclusive) if labels else ()
    return Demand(
        vmi.node_selector.field.texts,
        parse_node_selector(required.value) if required.is_map else None,
        spec["tolerations"].value,
        tuple(each for each in labels if each[0].startswith(conclusive)),
        architecture(vmi, cluster, certain=True),
        hugepages,
    )


def _is_on(cluster: Cluster, gate: Gate) -> bool:
    try:
        return gate_is_on(cluster, gate)
    except Unseen:
        return False


# labels that virt-controller adds to the pod's node selector: nodeselectorrenderer.go, template.go


def _cpu_model(vmi: Effective, cluster: Cluster) -> Iterator[tuple[str, str]]:
    try:
        model = named(vmi, cluster)
    except Unseen:
        return
    if model is not None:
        yield OFFERED + model.name, f"CPU model {model.name}"


def _cpu(domain: Field) -> Iterator[tuple[str, str]]:
    """Yield the labels for a domain or an instance type, which spells one key differently and has no machine."""
    cpu = domain["cpu"]
    if cpu["dedicatedCpuPlacement"].boolean or cpu["dedicatedCPUPlacement"].boolean:
        yield "kubevirt.io/cpumanager", "dedicated CPUs"
    if cpu["realtime"].present:
        yield "kubevirt.io/realtime", "real-time CPUs"
    for feature in cpu["features"].items():
        name = feature["name"].text
        if name and feature["policy"].value in (None, "", "require"):
            yield _CPU_FEATURE + name, f"CPU feature {name}"
    machine = domain.at("machine", "type").text
    if machine:
        yield _MACHINE_TYPE + machine, f"machine type {machine}"


def _security(launch: Field) -> Iterator[tuple[str, str]]:
    if launch["sev"].present or launch["snp"].present:
        yield "kubevirt.io/sev", "AMD SEV"
    if launch.at("sev", "policy", "encryptedState").boolean:
        yield "kubevirt.io/sev-es", "AMD SEV-ES"
    if launch["snp"].present:
        yield "kubevirt.io/sev-snp", "AMD SEV-SNP"
    if launch["tdx"].present:
        yield "kubevirt.io/tdx", "Intel TDX"


def _hyperv(hyperv: Field) -> Iterator[tuple[str, str]]:
    for feature in _HYPERV_FEATURES:
        if hyperv[feature].is_map and hyperv[feature]["enabled"].boolean is not False:
            yield _HYPERV + feature, f"Hyper-V {feature}"


def _conclusive(cluster: Cluster) -> tuple[str, ...]:
    """Return the label prefixes that exist on some known node. The absence of the others proves nothing."""
    labels = {label for node in cluster.known(NODE) for label in node.metadata["labels"].map}
    return tuple(prefix for prefix in _FAMILIES if any(label.startswith(prefix) for label in labels))


def blocking_constraint(wanted: Demand, place: NodeProfile) -> str | None:
    """Return the constraint that keeps a VMI off a node; None: names, labels and taints allow the node."""
    labels = place.labels
    arch = labels.get("kubernetes.io/arch")
    if wanted.architecture and arch and wanted.architecture.lower() != arch:
        return f"architecture {wanted.architecture}"
    for key, value in wanted.selector.items():
        if labels.get(key) != value:
            return f"node selector {key}={value}"
    if wanted.affinity is not None and not wanted.affinity.matches(place.name, labels):
        return "node affinity"
    for taint in place.taints:
        if not tolerates(wanted.tolerations, taint):
            return f"taint {taint.get('key')}"
    for label, words in wanted.labels:
        if labels.get(label) != "true":
            return words
    if wanted.hugepages and place.allocatable is not None and not _has_hugepages(place.allocatable, wanted.hugepages):
        return f"huge pages of {wanted.hugepages}"
    return None


def _has_hugepages(allocatable: Mapping[str, Any], size: str) -> bool:
    try:
        return parse_quantity(allocatable.get(f"hugepages-{size}", "0"), integers=True) > 0
    except ValueError:
        return True
