"""A virtual machine that should migrate on a drain fits on one node only.

**Why.** KubeVirt ignores selectors, affinity, taints and CPU model labels when it decides whether a
VM is migratable. If only one node meets them, the target pod of every migration stays Pending and a
drain of that node never completes. A running VM with ``host-model`` also needs a node that offers
the CPU model and features of its own node.

**Fix.** Give a VM with ``host-model`` a CPU model that all nodes offer, and restart it. Else relax
the constraint that excludes the other nodes, prepare a second node, or set
``evictionStrategy: None``: the VM then stops during the drain and starts again when the node
returns.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from virt_admit.forecasts.drain import vmi_evictions
from virt_admit.forecasts.placement import permanent_constraints
from virt_admit.forecasts.placement.permanent_constraints import Host
from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes import nodes
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt.instances import migratability, tsc
from virt_admit.model.kubevirt.instances.expand import ExpandedVmi, expand
from virt_admit.model.kubevirt.launcher import without_kvm
from virt_admit.model.messages import capital, names
from virt_admit.rule import Action, Context, DrainAdvice, Finding, Findings, Object, rule, union


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    reads=union(migratability.READS, permanent_constraints.READS, without_kvm.READS),
    action=Action.WARN,
    drain_advice=DrainAdvice.NO_NODE,
    event="MigrationImpossible",
    sources=(
        "kubevirt/kubevirt#9585",
        "kubevirt/kubevirt:pkg/virt-controller/services/nodeselectorrenderer.go",
        "kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    cluster = context.cluster
    vmi = context.cached(expand, obj)
    pin = permanent_constraints.pin(vmi)
    pinned = pin is not None and pin.tight
    if cluster.cached(nodes.only_of_harvester):
        return  # nothing can be done about it, and its upgrade stops the VMs itself
    if not vmi.spec.is_map or pinned or not vmi_evictions.awaits_migration(obj, context.facts):
        return
    candidates: list[str] = []
    constraints: dict[str, None] = {}
    features: list[str] = []
    refused, labels = dict[str, str](), dict[str, Mapping[str, Any]]()
    demanded = permanent_constraints.demanded_by_its_node(vmi, cluster)
    for host in permanent_constraints.hosts(vmi, cluster):
        refusal = host.refusal
        if not refusal and (refusal := _lacks(host, obj, demanded)):
            features.append(host.name)
        if refusal:
            constraints[refusal] = None
            refused[host.name], labels[host.name] = refusal, host.labels
            continue
        candidates.append(host.name)
        if len(candidates) > 1:
            return
    if not candidates:
        return
    only, others = candidates[0], "no other node exists"
    if constraints:
        others = f"the others are excluded by {names(constraints, 70)}"
    runs, command, way = ("can run this VM", "", _ALLOW)
    if (gap := tsc.gap(refused, labels, cluster)) is not None and gap.remedy:
        way = f"{capital(gap.remedy)}."
        command = shell("kubectl", "get", "nodes", "-L", tsc.TSC_FREQUENCY)
    if features and features == list(refused) and (model := _common_model(cluster)):
        # the VM itself excludes none of them: each could start it
        others = f"the others lack {names(constraints, 70)} of its host-model"
        runs = "can take the running guest"
        way = f"Set CPU model {model}, which every node offers, and restart it."
    if way == _ALLOW and _is_too_large(vmi, refused, cluster):
        way = f"No other node is large enough: add one, or set {_NONE}"
    if refused and all(without_kvm.seems_off(name, cluster) for name in refused):
        others = f"virtualization is off on {names(refused, 70)}"
        way = "Switch it on there, in the firmware or in the hypervisor below."
        command = shell("kubectl", "describe", "node", argument(next(iter(refused))))
    remedy = f"so a drain never completes. {way}"
    message = check.first_that_fits(
        vmi.spec.path,
        f"only node {only} {runs} ({others}), {remedy.replace(_NONE, _SHUT)}",
        f"only node {only} {runs} ({others}), {remedy}",
        f"only node {only} {runs}, {remedy}",
    )
    yield Finding(vmi.spec.path, message, value=only, command=command)


def _common_model(cluster: Cluster) -> str:
    # files alone know no nodes
    from virt_admit.forecasts.placement import common_model  # noqa: PLC0415

    return common_model.common_model(cluster)


_NONE: Final = "evictionStrategy: None."
_ALLOW: Final = f"Allow a second node, or set {_NONE}"
_SHUT: Final = "evictionStrategy: None, with which a drain shuts it down."


def _is_too_large(vmi: ExpandedVmi, refused: Collection[str], cluster: Cluster) -> bool:
    """Return whether certainly none of the refused nodes is large enough for a VMI."""
    if not refused:
        return False
    # files alone know no nodes
    from virt_admit.forecasts.placement.absent import larger_nodes  # noqa: PLC0415
    from virt_admit.model.kubevirt.launcher import launcher_resources  # noqa: PLC0415
    from virt_admit.model.scheduler.snapshot import read_node  # noqa: PLC0415

    known = {node.name: node for node in nodes.every(cluster) if node.name in refused}
    sizes = {name: read_node(node).allocatable for name, node in known.items()}
    try:
        requests = launcher_resources.least_memory(vmi, cluster)
    except Unseen:
        return False
    return larger_nodes.shortage(requests, sizes) is not None


def _lacks(host: Host, obj: Object, demanded: dict[str, tuple[str, str]]) -> str:
    if host.name == obj.at("status", "nodeName").text:
        return ""
    return next(
        (words for key, (value, words) in demanded.items() if host.labels.get(key) != value), ""
    )
