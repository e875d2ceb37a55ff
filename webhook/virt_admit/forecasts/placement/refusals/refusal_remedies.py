"""What helps where no node takes a VM, by the causes for which they refuse it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from virt_admit.forecasts.placement import candidates, virt_handlers
from virt_admit.forecasts.placement.absent import larger_nodes
from virt_admit.forecasts.placement.candidates import SchedulingTarget
from virt_admit.forecasts.placement.common_model import common_model
from virt_admit.forecasts.placement.components.linstor import lost_quorums
from virt_admit.forecasts.placement.running_launchers import COPIES_TOLERATIONS
from virt_admit.model import node_bridges
from virt_admit.model.commands import argument, shell
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE
from virt_admit.model.kubernetes.nodes import CONTROL_PLANE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances.cpu_models import HOST, TARGET
from virt_admit.model.kubevirt.launcher.launcher_pod import CPU_FEATURE
from virt_admit.model.kubevirt.settings import configuration, live_updates
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import names
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler import controller_taints
from virt_admit.model.scheduler.node_labels import UNATTACHED
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.resources import PODS, show
from virt_admit.model.scheduler.topology_spread import SPREAD

MORE_PODS: Final = (
    "raise max-pods of the kubelets, as far as the addresses for pods of a node reach (Harvester: "
    "200 since 1.2; RKE2: kubelet-arg; OpenShift: maxPods of a KubeletConfig), remove other pods "
    "there, or add a node"
)
"""What helps where nodes have their CPU and memory free, but as many pods as they may have.

Sources: kubernetes/kubernetes:pkg/kubelet/apis/config/types.go (MaxPods, 110 by default);
harvester/harvester:package/upgrade/upgrade_node.sh#set_max_pods, issue 2707.
"""
DOWNTIME: Final = ("plan for its downtime", "let drains shut the guest down")
"""The other way for a VM that runs: where it is restarted, and where it is to move."""
KEPT: Final = ", and do not stop the VM before"
_PAGES: Final = "hugepages-"


def either(remedy: str, otherwise: str) -> str:
    """Return a remedy, and another one if there is one."""
    return f"{remedy}, or {otherwise}" if otherwise else remedy


def unfit_remedy(refusals: Mapping[str, str], kept: str, cluster: Cluster) -> Problem | None:
    """Return what ends a taint of a controller that every node has, after what it means; None:
    there is none.

    ``kept``: how it ends, as a guest that stops stays off.
    """
    command = shell("kubectl", "describe", "node", argument(min(refusals)))
    for cause in sorted(common_causes(refusals)):
        key = cause.removeprefix("taint ")
        who = controller_taints.owner(key) if key != cause else ""
        means, repair = "", f"repair what {who} reports with that taint, which it then removes"
        if (lost := lost_quorums.of_taint(key, cluster)) is not None:
            means, repair, command = f". {lost.reason}", lost.remedy, lost.command or command
        if who:
            return Problem(means, f"{repair}{kept}", ProblemCause.NO_TARGET, command=command)
    return None


def common_causes(refusals: Mapping[str, str]) -> set[str]:
    """Return the causes for which every node refuses the pod."""
    return set.intersection(*(set(why.split("; ")) for why in refusals.values()))


def lasting_remedy(
    target: SchedulingTarget, refusals: Mapping[str, str], cluster: Cluster, *, starts: bool
) -> str:
    """Return what helps where every node is refused for the same cause, which no new node repairs,
    or one for the pod alone that attaches volumes; else empty.

    ``starts``: the VM does not run. Its pod is there, and a change does not reach that.
    """
    if any(all(map(_is_unattached, why.split("; "))) for why in refusals.values()):
        return _ATTACHING
    causes = sorted(common_causes(refusals))
    for start, words in _LASTING:
        found = next((cause for cause in causes if cause.startswith(start)), "")
        if found:
            effect = AGAIN if starts else live_updates.effect(cluster)
            named = next(iter(found.removeprefix(start).split()), "")
            room = _room(target, refusals, cluster)
            node = "that node" if room else "another node"
            return f"{room}{words.format(named, effect=effect, node=node)}"
    return ""


def _room(target: SchedulingTarget, refusals: Mapping[str, str], cluster: Cluster) -> str:
    """Return what has to be freed or added before another remedy helps; empty: one of the nodes
    has room.
    """
    lacking = [
        {cause.partition(": ")[0] for cause in why.split("; ") if cause.endswith(" missing")}
        for why in refusals.values()
    ]
    if not all(lacking):
        return ""
    if larger := larger_nodes.remedy(target, refusals, cluster):
        return f"{larger}, then "
    fit = larger_nodes.large_enough(target, refusals, cluster)
    where = "another node" if len(fit) == len(refusals) else names(fit, 60)
    return f"free the missing {names(sorted(set().union(*lacking)))} on {where} first, then "


def _is_unattached(cause: str) -> bool:
    return cause.startswith(UNATTACHED)


_ATTACHING: Final = (
    f"update KubeVirt to {COPIES_TOLERATIONS} or later, which gives that pod the tolerations of "
    "the VM, or unplug these volumes before a move"
)
AGAIN: Final = ", and restart the VM"
_LASTING: Final = (
    ("volume of claim ", "move claim {} to storage that the other nodes reach"),
    ("node selector kubernetes.io/hostname=", "remove the node selector for {} from the VM"),
    ("node selector ", "set the label {} on {node}, or remove the node selector from the VM"),
    ("network ", "set network {} up on {node}, in Harvester by a VlanConfig that selects it"),
    ("node affinity", "change its node affinity, or the labels of {node}"),
    (
        "machine type ",
        "set a machine type that another node offers instead of {}, and restart the VM",
    ),
    ("architecture ", "add a node of architecture {}"),
    ("Hyper-V ", "add a node with the Hyper-V feature {}, or remove it from the VM and restart it"),
    (
        SPREAD,
        "as a decision, set whenUnsatisfiable: ScheduleAnyway in its constraint over {}, and "
        "restart the VM",
    ),
    (
        "pod affinity demands ",
        "as a decision, make its required pod affinity a preferred one{effect}",
    ),
)
"""What helps against a cause that no amount of room repairs; the first one that fits."""


def absent_resource(refusals: Mapping[str, str], cluster: Cluster) -> str:
    """Return the device or huge pages that every node lacks because none of them has any; empty:
    there is none.
    """
    nodes = candidates.scheduler(cluster).state.nodes
    causes = [why.split("; ") for why in refusals.values()]
    lacking = [
        {cause.partition(": ")[0] for cause in each if cause.endswith(" missing")}
        for each in causes
    ]
    common = sorted(
        name for name in set.intersection(*lacking) if "/" in name or name.startswith(_PAGES)
    )
    none = (
        each
        for each in common
        if not any((nodes[name].allocatable or {}).get(each) for name in refusals)
    )
    return next(none, "")


def is_gone_at_home(device: str, target: SchedulingTarget, cluster: Cluster) -> bool:
    """Return whether the own node of a VM no longer offers a device that the VM has: once it has
    stopped, it does not start there either.

    A kubelet goes on to report a device whose plugin has ended, as 0.
    """
    here = candidates.scheduler(cluster).state.nodes.get(target.placement.without)
    offered = (here.allocatable or {}).get(device) if here is not None else None
    return offered is not None and offered < target.pod.requests.get(device, 0)


def offer(device: str, nodes: Collection[str], cluster: Cluster) -> str:
    """Return how a device comes to one of these nodes; empty: there is no such device.
    virt-handler offers its own.
    """
    if bridge := node_bridges.bridge(device):
        return node_bridges.remedy(bridge, nodes, cluster)
    if device.startswith("devices.kubevirt.io/"):
        return (
            f"see why virt-handler offers no {device} there (/dev/kvm, nested virtualization, "
            "kernel modules)"
        )
    if device.startswith(_PAGES):
        return (
            f"reserve huge pages of {device.removeprefix(_PAGES)} on one of them by its kernel "
            "arguments"
        )
    return f"add a node that has {device}" if device else ""


def broken_claim(causes: Collection[str]) -> str:
    """Return the first claim that keeps the pod from every node; empty: there is none."""
    broken = (
        cause for cause in causes if cause.startswith("claim ") and "allows one pod" not in cause
    )
    return next((cause.split()[1] for cause in broken), "")


def cause_of(causes: Collection[str]) -> ProblemCause:
    """Return the cause of the problem that no node takes the pod."""
    if broken_claim(causes):
        return ProblemCause.CLAIM_BROKEN
    if all(" missing on " in cause for cause in causes):
        return ProblemCause.NO_ROOM
    if any(cause.startswith("host model ") for cause in causes):
        return ProblemCause.HOST_MODEL
    return ProblemCause.NO_TARGET


def has_no_room(item: tuple[str, str]) -> tuple[bool, str]:
    """Return whether a node lacks room, by its name and why it refuses, with its name: a key for
    sorting.
    """
    lacks = (each for each in item[1].split("; ") if not virt_handlers.is_of_handler(each))
    return any(each.endswith(" missing") for each in lacks), item[0]


def asked(pod: Pod, causes: Collection[str]) -> str:
    """Return what a pod asks for of that which no node has left, as an insertion; empty: other
    causes keep nodes away as well.
    """
    if not causes or not all(" missing on " in cause for cause in causes):
        return ""
    requests = pod.requests
    lacking = dict.fromkeys(cause.partition(": ")[0] for cause in causes)
    said = (f"{name} {show(name, requests[name])}" for name in lacking if name in requests)
    return f" (its pod asks for {told})" if (told := ", ".join(said)) else ""


def of_host_model(target: SchedulingTarget, causes: Collection[str], cluster: Cluster) -> str:
    """Return that a guest has the CPU features of its node by ``host-model``, as an insertion;
    empty: they are not the cause, the VM itself asks for them, or not even its node has them now,
    so that a restart alone helps. Where its host model is that of other processors, return which
    ones the other nodes have.
    """
    if any(each.startswith(_HOST_MODEL) for each in causes):  # another kind of processor
        return _other_hosts(target.placement.without, cluster)
    node = candidates.scheduler(cluster).state.nodes.get(target.placement.without)
    labels = node.labels if node is not None else {}
    lacking = [each.partition(_FEATURE)[2] for each in causes if each.startswith(_FEATURE)]
    by_host = any(key.startswith(TARGET) for key in target.pod.node_selector)
    if not lacking or not by_host or not all(f"{CPU_FEATURE}{name}" in labels for name in lacking):
        return ""
    return (
        ", as with CPU model host-model the guest keeps the features that firmware and microcode "
        "gave the node which started it"
    )


def _other_hosts(own: str, cluster: Cluster) -> str:
    """Return the host models of the other nodes, as an insertion; empty: they are not known."""
    return cluster.cached(_unlike).get(cluster.cached(_by_host).get(own, ""), "")


def _by_host(cluster: Cluster) -> Mapping[str, str]:
    return {node.name: _host_models(node) for node in cluster.known(NODE)}


def _unlike(cluster: Cluster) -> Mapping[str, str]:
    """Return by host model which nodes have another one, as that insertion. VMs share it: to look
    at all labels of all nodes for each VM takes long."""
    models = cluster.cached(_by_host)
    by_model = grouped(filter(models.get, models), models.__getitem__)
    said = {model: f"{names(some)}: {model}" for model, some in sorted(by_model.items())}
    return {
        own: f", while other nodes have another one ({names(others, 150)})"
        for own in ("", *said)
        if (others := [text for model, text in said.items() if model != own])
    }


def _host_models(node: Object) -> str:
    return names(sorted(key.removeprefix(HOST) for key in node.labels if key.startswith(HOST)))


_HOST_MODEL: Final = "host model "
_FEATURE: Final = "CPU feature "


def common_model_remedy(model: str, cluster: Cluster) -> str:
    """Return how a guest with ``host-model`` gets a processor that every node has."""
    found = configuration.known_or_none(configuration.hyperconverged, cluster)
    found = found or configuration.known_or_none(configuration.kubevirt, cluster)
    what = configuration.Setting.DEFAULT_CPU_MODEL
    field = configuration.setting(found, what).path if found is not None else ""
    for_all = f" (for all VMs without one: {found.kind} {field})" if found is not None else ""
    return (
        f"set CPU model {model}, which every node offers{for_all}, and restart the VM (a restart "
        "alone gives it the features of one node again)"
    )


def remedy_of(
    causes: Collection[str], otherwise: str, cluster: Cluster, host_model: str = ""
) -> str:
    """Return what helps. A VM that is restarted while a claim of it cannot be mounted stays off.

    ``host_model``: that the CPU features are those of the node on which the guest was started.
    """
    if claim := broken_claim(causes):
        return f"repair claim {claim}{KEPT if otherwise else ''}"
    if causes and all(cause.startswith(f"{PODS}: ") for cause in causes):
        return MORE_PODS  # a pod that waits may take the place of a guest that is shut down
    if all(" missing on " in cause for cause in causes):
        return either("add a node or free that much on one", otherwise)
    # no node's processor can be changed
    if any(cause.startswith("host model ") for cause in causes):
        model = common_model(cluster)
        other = (
            f"set CPU model {model}, which every node offers, and restart the VM" if model else ""
        )
        return either(other or "add a node with the same processor", otherwise)
    # of the node on which the guest was started
    if any(cause.startswith("CPU feature ") for cause in causes):
        if host_model and (model := common_model(cluster)):
            return either(common_model_remedy(model, cluster), otherwise)
        return either(
            "restart the VM, which then needs the processor of the node where it starts", otherwise
        )
    if {cause.removeprefix("taint ") for cause in causes} <= set(CONTROL_PLANE):
        return either("add a node, as these are control-plane nodes", otherwise)
    if all(cause.startswith("taint ") for cause in causes):
        return either(
            "remove the taint from one of the nodes, or let the VM tolerate it", otherwise
        )
    return either("remove the causes on one of the nodes", otherwise)
