"""Whether a node can run a VMI, and what the node of a running VMI demands of another one.

Importing the model of kube-scheduler takes time, so ``placement`` imports this module once a node
is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from virt_admit.model.kubernetes.cluster import Cluster, check_time
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.quantities import parse_quantity
from virt_admit.model.kubevirt.instances.expand import ExpandedVmi
from virt_admit.model.kubevirt.launcher import launcher_pod, migration_target
from virt_admit.model.scheduler.node_labels import label_causes
from virt_admit.model.scheduler.snapshot import read_node


def refusals(vmi: ExpandedVmi, cluster: Cluster) -> Callable[[Object], str]:
    """Return the function that returns the first permanent reason why a node cannot run the VMI;
    empty: none.
    """
    pod = launcher_pod.node_demand(vmi, cluster, moment=False)
    hugepages = _hugepages(vmi)

    def refusal(node: Object) -> str:
        check_time()  # the VMI may demand thousands of labels of each node
        late = launcher_pod.written_later(pod.node_selector, node.metadata["labels"].map)
        lasting = {key: value for key, value in pod.node_selector.items() if key not in late}
        causes = label_causes(
            replace(pod, node_selector=lasting) if late else pod,
            read_node(node, moment=False),
            moment=False,
        )
        return next(causes, "") or _without_hugepages(node, hugepages)

    return refusal


def _hugepages(vmi: ExpandedVmi) -> str:
    """Return the size of the huge pages of a VMI, ``2Mi``; empty: it has none."""
    own = vmi.spec.at("domain", "memory", "hugepages", "pageSize").text
    given = vmi.instancetype
    return (
        own
        or (given.spec.at("memory", "hugepages", "pageSize").text if given is not None else "")
        or ""
    )


def _without_hugepages(node: Object, size: str) -> str:
    allocatable = node.at("status", "allocatable")
    if not size or not allocatable.is_map:
        return ""
    try:
        count = parse_quantity(allocatable.map.get(f"hugepages-{size}", "0"), integers=True)
    except ValueError:
        return ""
    return "" if count > 0 else f"huge pages of {size}"


def demanded_of_target(
    vmi: ExpandedVmi, node: Object, cluster: Cluster
) -> dict[str, tuple[str, str]]:
    """Return the labels that a migration target needs because of the CPU of the VMI's node: the
    value, and the words for it.
    """
    if not launcher_pod.uses_host_model(vmi, cluster):
        return {}
    needed = migration_target.labels(node.labels, {}, {}, cluster, host_model=True)
    return {key: (value, words) for key, value, words in needed}
