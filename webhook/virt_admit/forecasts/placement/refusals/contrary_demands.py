"""Pods whose node selector and node affinity contradict each other: no node satisfies both.

kube-scheduler says only that no node matches. The selector is often that of an administrator, and
the affinity is written by a controller: Harvester demands of each node the label of the cluster
network to which a network of the VM belongs, again at each update of the VM. Sources:
kubernetes/kubernetes:pkg/scheduler/framework/plugins/nodeaffinity/node_affinity.go#Filter;
harvester/harvester:pkg/webhook/resources/virtualmachine/mutator.go#patchAffinity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from virt_admit.forecasts.placement import candidates, permanent_constraints
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.refusals import unreached_settings
from virt_admit.model.commands import kubectl
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import NAD, NODE, VM
from virt_admit.model.kubernetes.nodes import HOSTNAME
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubernetes.selectors import Requirement
from virt_admit.model.kubevirt.instances import networks
from virt_admit.model.kubevirt.launcher.launcher_pod import NAME
from virt_admit.model.lookups import find
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler.pods import Pod

READS: Final[Reads] = union(
    networks.NODE_LABEL_READS,
    unreached_settings.READS,
    {
        NODE: ("metadata.labels",),
        VM: ("spec.template.spec.networks", "spec.template.spec.nodeSelector"),
    },
)
_SELECTOR: Final = "node selector "
_AFFINITY: Final = "node affinity"
_ELSE: Final = "or give the VM a network that those nodes have"


def of(target: SchedulingTarget, refusals: Mapping[str, str], cluster: Cluster) -> Problem | None:
    """Return what the nodes of the selector of a pod lack for its affinity, after a colon, and what
    ends that; None: a node satisfies both.

    ``refusals``: why each node refuses the pod.
    """
    causes = {name: why.split("; ") for name, why in refusals.items()}
    pinned = [name for name, why in causes.items() if not any(map(_is_of_selector, why))]
    others = [name for name in causes if name not in pinned and _AFFINITY not in causes[name]]
    selectors = sorted({each for name in others for each in causes[name] if _is_of_selector(each)})
    if not pinned or not others or not all(_AFFINITY in causes[name] for name in pinned):
        return None
    lacked = _lacked(target.pod, pinned, cluster)
    if not lacked:
        return None
    lacks = "lacks" if len(pinned) == 1 else "lack"
    demands = " and ".join(map(str, lacked))
    selected = names(each.removeprefix(_SELECTOR) for each in selectors)
    reason = f": {names(pinned, 60)} {lacks} {demands}, which its node affinity demands"
    # a node with a further cause does not take the pod without the selector either
    able = [name for name in others if all(map(_is_of_selector, causes[name]))]
    there = f", so that it can run on {names(able, 60)}" if able else ""
    way = f"remove the node selector {selected} from the VM{there}, and restart it"
    vm = find(cluster, VM, target.pod.namespace, target.pod.labels.get(NAME))
    command = _command(vm, selectors) if vm is not None else ""
    network = _of_network(vm, lacked, pinned, cluster)
    if network is not None:
        told = f"{reason}{network.reason}"
        return Problem(told, f"{way}; or {network.remedy}", command=command)
    other = f"change its node affinity, or the labels of {pinned[0]}"
    return Problem(reason, f"{way}; or {other}", command=command)


def _command(vm: Object, selectors: Sequence[str]) -> str:
    """Return the command that removes the node selectors of a VM."""
    of_host = all(each.startswith(f"{_SELECTOR}{HOSTNAME}=") for each in selectors)
    edit = kubectl("edit", VM, vm.name, vm.namespace)
    return (permanent_constraints.unpin(vm) if of_host else "") or edit


def _is_of_selector(cause: str) -> bool:
    return cause.startswith(_SELECTOR)


def _lacked(pod: Pod, pinned: Sequence[str], cluster: Cluster) -> list[Requirement]:
    """Return what all these nodes lack of the same alternative of an affinity, of the one of which
    they lack least; empty: each lacks something else.
    """
    nodes = candidates.scheduler(cluster).state.nodes
    terms = pod.node_affinity.terms if pod.node_affinity is not None else ()
    found = []
    for term in terms:
        unmet = [
            {each for each in term.labels if not each.matches(dict(nodes[name].labels))}
            for name in pinned
        ]
        common = set.intersection(*unmet)
        if common and not term.fields:
            found.append(sorted(common, key=str))
    return min(found, key=len, default=[])


def _of_network(
    vm: Object | None, lacked: Sequence[Requirement], pinned: Sequence[str], cluster: Cluster
) -> Problem | None:
    """Return which cluster network of Harvester does not reach these nodes, and what lets it; None:
    they lack something else.
    """
    labels = list(networks.node_labels(vm, cluster)) if vm is not None else []
    owners = {each.key: each.network for each in labels if not isinstance(each, Unseen)}
    for each in lacked:
        name = each.key.removeprefix(networks.HARVESTER)
        if name == each.key or set(each.values) != {"true"}:
            continue
        own = owners.get(each.key)
        of = f"{NAD.kind} {own} is of it" if own else "its network is of it"
        reason = f". Harvester writes that demand for cluster network {name} ({of})"
        like = dict.fromkeys(pinned, f"network (label {each.key})")
        setting = unreached_settings.of("", like, cluster, names(pinned, 60))
        if setting is None:
            way = f"let a VlanConfig of cluster network {name} select {names(pinned, 60)}"
            return Problem(reason, f"{way}; {_ELSE}")
        return Problem(f"{reason}{setting.reason}", f"{setting.remedy}; {_ELSE}")
    return None
