"""Operators of devices that drain nodes: the driver upgrades of NVIDIA and the SR-IOV network
operator. What marks a node, what they wait for, and what lets them go on.

Sources: NVIDIA/k8s-operator-libs:pkg/upgrade/consts.go, :pkg/upgrade/pod_manager.go
#SchedulePodEviction;
k8snetworkplumbingwg/sriov-network-operator:pkg/drain/drainer.go#DrainNode #createDrainHelper.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from virt_admit.model import pod_owners
from virt_admit.model.commands import argument, shell, typed, virtctl
from virt_admit.model.evidence import complaints
from virt_admit.model.kubernetes.cluster import Cluster, entry
from virt_admit.model.kubernetes.kinds import DAEMON_SET, NODE, POD, VMI, Kind
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.lookups import grouped
from virt_admit.model.messages import names
from virt_admit.model.node_updates import config_pool_updates, sriov_drains
from virt_admit.model.node_updates.node_phases import Phase
from virt_admit.model.node_updates.operators.cordons import Cordon

CLUSTER_POLICY: Final = Kind(
    "nvidia.com", ("v1",), "clusterpolicies", "ClusterPolicy", namespaced=False
)
"""Of the GPU operator. In a live cluster discovery finds it."""

READS: Final[Reads] = union(
    config_pool_updates.READS,
    {
        NODE: tuple(
            f"metadata.annotations.nvidia.com/{driver}-driver-upgrade.node-initial-state."
            "unschedulable"
            for driver in ("gpu", "ofed")
        ),
        POD: ("spec.containers.resources", "spec.volumes.emptyDir"),
        VMI: ("spec.evictionStrategy", "status.conditions"),
    },
)


# --- drivers of NVIDIA ----------------------------------------------------------------------------

_DRIVER: Final = re.compile(r"nvidia\.com/([a-z]{1,20})-driver-upgrade-state")
_OPERATORS: Final = {"gpu": "the NVIDIA GPU operator", "ofed": "the NVIDIA network operator"}
_AT_REST: Final = frozenset(("", "upgrade-done", "upgrade-required"))
_FAILED: Final = "upgrade-failed"


def driver_upgrade(node: Object, cluster: Cluster) -> Cordon | None:
    """Return what an operator of NVIDIA does to a node; None: nothing."""
    for key, state in sorted(node.labels.items()):
        found = _DRIVER.fullmatch(key)
        if found is None or state in _AT_REST:
            continue
        earlier = f"nvidia.com/{found[1]}-driver-upgrade.node-initial-state.unschedulable"
        if earlier in node.annotations:  # it was cordoned before the upgrade
            continue
        operator = f"{_OPERATORS.get(found[1], 'an operator of NVIDIA')} for its driver upgrade"
        waits = "It uncordons the node itself when the new driver works."
        work = Cordon(operator, waits, mark=f"{key}={state}")
        return _failed_driver(node, key, work, cluster) if state == _FAILED else work
    return None


def _failed_driver(node: Object, key: str, work: Cordon, cluster: Cluster) -> Cordon:
    """Return what became of a failed upgrade.

    The operator begins it again only when the label asks for it. It uncordons the node all the same
    once the driver pod there is of the newest revision and ready
    (NVIDIA/k8s-operator-libs:pkg/upgrade/common_manager.go #ProcessUpgradeFailedNodes). It does not
    make that pod again while it may not delete a pod that uses the old driver.
    """
    of_gpu = key.startswith("nvidia.com/gpu-")
    users = (entry(cluster, _by_gpu, node.name) or ()) if of_gpu else ()
    kept = [
        pod
        for pod in users
        if any(each["emptyDir"].is_map for each in pod.at("spec", "volumes").items())
    ]
    kept = kept if _may_delete(cluster) is False else []
    why = "The upgrade has failed, and the operator does not begin it again"
    if kept:
        why += (
            f": {_pods(kept)} a GPU and keep{'s' * (len(kept) == 1)} an emptyDir, which the "
            "operator may not delete"
        )
    elif users:
        why += f": {_pods(users)} a GPU"
    again = shell(
        "kubectl", "label", "node", argument(node.name), f"{key}=upgrade-required", "--overwrite"
    )
    pod = _driver_pod(node, cluster, of_gpu=of_gpu)
    first = (
        f"once its work is saved, {pod_owners.taken_away(users[0], cluster)}"
        if users
        else f"see in the log of its driver pod{f' {pod.full_name}' if pod is not None else ''} why"
    )
    allow = (
        "; or let the operator delete it (podDeletion.deleteEmptyDir of its ClusterPolicy)"
        if kept
        else ""
    )
    remedy = f"{first}{allow}; {typed(f'then {_AGAIN}', again)}"
    fails = _failing(pod, cluster) if pod is not None else ""
    waits = f"{why}.{fails}{'' if kept else f' {_READY}'}{_behind(node, key, cluster)}"
    return work._replace(waits=waits, ends=False if kept else None, failed=True, remedy=remedy)


def _driver_pod(node: Object, cluster: Cluster, *, of_gpu: bool) -> Object | None:
    """Return the driver pod of a node; None: it is not known.

    Sources: NVIDIA/gpu-operator:controllers/upgrade_controller.go (DriverLabelKey),
    Mellanox/network-operator:manifests/state-ofed-driver.
    """
    known = entry(cluster, _by_driver, node.name) or ()
    return next((pod for pod in known if _is_driver(pod, of_gpu=of_gpu)), None)


def _by_driver(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the driver pods of both operators, by node."""
    own = (
        pod
        for pod in cluster.known(POD)
        if not pod.ended and any(_is_driver(pod, of_gpu=each) for each in (True, False))
    )
    made = (pod for pod in own if pod.owned_by(DAEMON_SET.kind))
    return grouped(made, lambda pod: pod.at("spec", "nodeName").text or "")


def _is_driver(pod: Object, *, of_gpu: bool) -> bool:
    if not of_gpu:
        return "nvidia.com/ofed-driver" in pod.labels
    component = pod.labels.get("app.kubernetes.io/component")
    return pod.labels.get("app") == "nvidia-driver-daemonset" or component == "nvidia-driver"


def _failing(pod: Object, cluster: Cluster) -> str:
    """Return what fails in the driver pod, as a sentence after a space; empty: it is ready, or
    reports nothing. The webhook keeps no container states."""
    found = None if pod.is_true("Ready") else next(complaints.of(pod, cluster), None)
    if found is None:
        return ""
    return f" Driver pod {pod.full_name} fails: {found.words}."


_READY: Final = (
    "It uncordons the node itself once the driver pod there is of the newest revision and ready."
)

_AGAIN: Final = "have the upgrade tried again, since an uncordon alone leaves the old driver"


def _behind(node: Object, key: str, cluster: Cluster) -> str:
    """Return which nodes wait for their turn, as a sentence after a space."""
    behind = entry(cluster, _asking, key) or ()
    return _queue([name for name in behind if name != node.name])


def _asking(cluster: Cluster) -> Mapping[str, Sequence[str]]:
    """Return the nodes that ask for an upgrade by the label of the driver, each in its order."""
    found: dict[str, list[str]] = {}
    for node in sorted(cluster.known(NODE), key=lambda each: each.name):
        for key, state in node.labels.items():
            if state == "upgrade-required" and _DRIVER.fullmatch(key):
                found.setdefault(key, []).append(node.name)
    return found


def _queue(behind: Sequence[str]) -> str:
    return f" {names(behind)} {'wait' if len(behind) > 1 else 'waits'} behind it." if behind else ""


def _pods(users: Sequence[Object]) -> str:
    several = len(users) > 1
    return (
        f"pod{'s' * several} {names(pod.full_name for pod in users)} {'use' if several else 'uses'}"
    )


def _may_delete(cluster: Cluster) -> bool | None:
    """Return whether the operator may delete pods with an emptyDir.

    None: its settings are not known.
    """
    policies = cluster.known(CLUSTER_POLICY)
    fields = [
        policy.at("spec", "driver", "upgradePolicy", "podDeletion", "deleteEmptyDir")
        for policy in policies
    ]
    return any(field.boolean is True for field in fields) if fields else None


def _by_gpu(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    return _with_resource("nvidia.com/", cluster)


# --- the SR-IOV network operator ------------------------------------------------------------------


def sriov(node: Object, cluster: Cluster) -> Cordon | None:
    """Return what the SR-IOV network operator does to a node; None: nothing.

    Up to 1.2 its daemon on the node drains it itself, with all its pods, and marks it Draining. Its
    drain controller, which takes only pods with devices away, never marks a Node so. Sources:
    k8snetworkplumbingwg/sriov-network-operator:pkg/daemon/daemon.go#drainNode,
    :pkg/consts/constants.go#NodeDrainAnnotation.
    """
    state = node.annotations.get(sriov_drains.STATE, "")
    if state in sriov_drains.AT_REST:
        return None
    by_daemon = state.startswith("Draining")
    full = state.startswith("Reboot") or by_daemon
    reboots = state.startswith("Reboot")
    holders = [] if reboots else list(entry(cluster, _by_device, node.name) or ())
    kept = [vmi for pod in holders if (vmi := _kept(pod, cluster)) is not None]
    which = f" ({names(map(vm_ledger.user, holders))})" if holders else ""
    needs = (
        "It takes all pods away"
        if full
        else f"It takes only the pods with SR-IOV devices away{which}"
    )
    behind = sorted(
        each.name
        for each in cluster.known(NODE)
        if each.name != node.name
        and not each.at("spec", "unschedulable").boolean
        and each.annotations.get(sriov_drains.STATE, "") not in sriov_drains.AT_REST
    )
    mark, by = f"{sriov_drains.STATE}={state}", _SRIOV if by_daemon else _BY_SRIOV
    if not kept:
        waits = f"{needs}, then uncordons the node itself.{_unpaused(node, state, cluster)}"
        return Cordon(by, f"{waits}{_queue(behind)}", mark=mark)
    vms = names(vmi.full_name for vmi in kept)
    refused = f"{vms} cannot migrate, so KubeVirt refuses the eviction."
    way = typed(
        f"shut {vms} down for this time, and start {'it' if len(kept) == 1 else 'them'} again "
        "afterwards",
        virtctl("stop", kept[0].name, kept[0].namespace),
    )
    return Cordon(by, f"{needs}. {refused}{_queue(behind)}", False, way, mark=mark)


def _unpaused(node: Object, state: str, cluster: Cluster) -> str:
    """Return that a MachineConfigPool drains another node meanwhile, which the operator should have
    paused first, as a sentence after a space; empty: it does not.
    """
    if state != "Draining" or not node.at("spec", "unschedulable").boolean:
        return ""
    for pool in config_pool_updates.pools(cluster):
        own = pool.nodes.get(node.name)
        others = [name for name, each in pool.nodes.items() if each.phase is Phase.DRAINING]
        if own is not None and own.phase is not Phase.DRAINING and others:
            return (
                f" It has not paused {pool.kind} {pool.name}, which drains {names(others)} at the "
                "same time."
            )
    return ""


_SRIOV: Final = "the SR-IOV network operator"
_BY_SRIOV: Final = f"{_SRIOV} or by hand"
"""Its mark says that a node is to be drained, not whether that has begun or the node was cordoned
before. It uncordons both.
"""


def _kept(pod: Object, cluster: Cluster) -> Object | None:
    """Return the VMI of a launcher pod if KubeVirt refuses its eviction for good; None: it does
    not, or that is not known.
    """
    vmi = vm_ledger.vmi_of(pod, cluster)
    if (
        vmi is None
        or vmis.migratable(vmi) is not False
        or vmi.at("spec", "evictionStrategy").text != "LiveMigrate"
    ):
        return None
    return vmi


def _by_device(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    return _with_resource(sriov_drains.DEVICES, cluster)


def _with_resource(prefix: str, cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the pods that hold a device, by node."""
    found: dict[str, list[Object]] = {}
    for pod in cluster.known(POD):
        node = pod.at("spec", "nodeName").text
        if node and not pod.ended and _holds(pod, prefix):
            found.setdefault(node, []).append(pod)
    return {node: sorted(some, key=lambda pod: pod.full_name) for node, some in found.items()}


def _holds(pod: Object, prefix: str) -> bool:
    return any(
        name.startswith(prefix)
        for container in pod.at("spec", "containers").items()
        for part in ("requests", "limits")
        for name in container.at("resources", part).map
    )
