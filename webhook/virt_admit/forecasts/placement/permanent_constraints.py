"""The hosts that a VMI names, and the nodes that can run it.

KubeVirt ignores all of this when it publishes ``LiveMigratable``. A VMI with one possible node
therefore counts as migratable, its migration target is never scheduled, and a drain of that node
waits forever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from virt_admit.model.commands import json_patch
from virt_admit.model.kubernetes import kinds, nodes
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.json_patch import Patch
from virt_admit.model.kubernetes.kinds import NAMESPACE, NODE, VMI
from virt_admit.model.kubernetes.nodes import HOSTNAME, NAMESPACE_SELECTOR, SCHEDULABLE
from virt_admit.model.kubernetes.objects import Field, Object, Path
from virt_admit.model.kubernetes.reads import CONDITIONS, union
from virt_admit.model.kubevirt.instances import cpu_models, vms
from virt_admit.model.kubevirt.instances.expand import ExpandedVmi
from virt_admit.model.scheduler.node_selectors import NAME_FIELD, parse_node_selector
from virt_admit.model.scheduler.pod_terms import REQUIRED

READS: Final = union(
    cpu_models.READS,
    {
        NODE: (
            "metadata.labels",
            "spec.unschedulable",
            "spec.taints",
            "status.allocatable",
            *CONDITIONS,
        ),
        NAMESPACE: (f"metadata.annotations.{NAMESPACE_SELECTOR}",),
    },
)

_REQUIRED: Final = ("affinity", "nodeAffinity", REQUIRED)


class HostPin(NamedTuple):
    """The hosts to which a VMI spec is restricted by name;
    none if the restrictions contradict each other.
    """

    hosts: frozenset[str]
    path: Path

    @property
    def tight(self) -> bool:
        """Whether at most one host is possible: the VMI is *pinned* and cannot migrate."""
        return len(self.hosts) <= 1


def pin(vmi: ExpandedVmi) -> HostPin | None:
    """Return the hosts to which a VMI is restricted by name, and the path that restricts it; None:
    any host.

    Preferred affinity, ``NotIn`` and ``Exists`` restrict nothing.
    """
    selector = vmi.node_selector.field
    host = selector.texts.get(HOSTNAME)
    named = _affinity_hosts(vmi.spec)
    if host is not None:
        return HostPin(frozenset((host,)) if named is None else named & {host}, selector.path)
    terms = vmi.spec.at(*_REQUIRED, "nodeSelectorTerms")
    return None if named is None else HostPin(named, terms.path)


def unpin(vm: Object) -> str:
    """Return the command that removes the host name from the node selector of a VM; empty:
    its template has none.
    """
    selector = vms.vmi_spec(vm)["nodeSelector"]
    if not selector[HOSTNAME].present:
        return ""
    step = Patch("remove", Path(*selector.path, HOSTNAME))
    return json_patch(kinds.VM, vm.name, vms.namespace_of(vm), [step])


def _affinity_hosts(spec: Field) -> frozenset[str] | None:
    """Return the union of the alternatives if each of them names hosts;
    skip terms without requirements.
    """
    required = spec.at(*_REQUIRED)
    if not required.is_map:
        return None
    terms = [
        term for term in parse_node_selector(required.value).terms if term.labels or term.fields
    ]
    union: frozenset[str] = frozenset()
    for term in terms:
        choices = [
            values
            for key in (HOSTNAME, NAME_FIELD)
            if (values := term.allowed_values(key)) is not None
        ]
        if not choices:
            return None
        union |= frozenset.intersection(*choices)
    return union if terms else None


# --- candidate nodes ------------------------------------------------------------------------------


class Host(NamedTuple):
    """A node that runs KubeVirt."""

    name: str
    labels: Mapping[str, Any]
    refusal: str
    """The first permanent reason why it cannot run the VMI; empty: names,
    labels and taints allow it.
    """


def hosts(vmi: ExpandedVmi, cluster: Cluster) -> Iterator[Host]:
    """Yield the nodes that have the label key ``kubevirt.io/schedulable``,
    judged without the moment.

    Cordons, transient taints, readiness, free capacity and other pods do not count: results during
    a drain must equal those before it, or VMs that the drain stopped could not be created again.
    ``room`` judges the moment. Nodes are judged one by one and not cached, because two candidates
    are often enough.

    Raises:
        Unseen: no node is known, but nodes may exist.
    """
    known = nodes.every(cluster)
    if not known:
        return
    # checking files alone knows no nodes
    from virt_admit.forecasts.placement import node_fit  # noqa: PLC0415

    refusal = node_fit.refusals(vmi, cluster)
    for node in known:
        labels = node.metadata["labels"].map
        if SCHEDULABLE in labels:
            yield Host(node.name, labels, refusal(node))


def demanded_by_its_node(vmi: ExpandedVmi, cluster: Cluster) -> dict[str, tuple[str, str]]:
    """Return the labels that a target needs because of the CPU of the VMI's node: the value,
    and the words for it.

    Empty for a VMI that has migrated: it keeps the model of its first node, which is not known.

    Raises:
        Unseen: no node is known, but nodes may exist.
    """
    status = vmi.obj["status"]
    name = status["nodeName"].text
    if kinds.of(vmi.obj) is not VMI or not name or status["migrationState"].present:
        return {}
    node = next((node for node in nodes.every(cluster) if node.name == name), None)
    if node is None:
        return {}
    # checking files alone knows no nodes
    from virt_admit.forecasts.placement import node_fit  # noqa: PLC0415

    return node_fit.demanded_of_target(vmi, node, cluster)


def ready(node: Object) -> bool:
    """Whether a node accepts VMIs now: served by virt-handler, not cordoned, Ready."""
    return (
        node.metadata["labels"].map.get(SCHEDULABLE) == "true"
        and not node.at("spec", "unschedulable").boolean
        and node.condition("Ready")["status"].value == "True"
    )
