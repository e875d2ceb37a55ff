"""What cordoned a node, what it waits for, whether that ends by itself,
and what may be typed meanwhile.

One table of marks for all reports. Sources: NVIDIA/k8s-operator-libs:pkg/upgrade/consts.go,
:pkg/upgrade/pod_manager.go #SchedulePodEviction;
k8snetworkplumbingwg/sriov-network-operator:pkg/drain/drainer.go#DrainNode #createDrainHelper;
kubereboot/kured:cmd/kured/main.go#drain #uncordon;
rancher/system-upgrade-controller:pkg/apis/upgrade.cattle.io/constants.go;
siderolabs/talos:pkg/machinery/constants/constants.go#AnnotationCordonedKey.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from virt_admit.model import machine_nodes, pod_owners
from virt_admit.model.commands import argument, kubectl, shell, typed, virtctl
from virt_admit.model.kubernetes.cluster import Cluster, each, entry, unlisted
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    DAEMON_SET,
    MACHINE,
    NODE,
    POD,
    VMI,
    Kind,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.lookups import find
from virt_admit.model.messages import capital, names
from virt_admit.model.node_updates import (
    kured,
    maintenance_updates,
    plan_progress,
    sriov_drains,
    updaters,
)
from virt_admit.model.node_updates.node_phases import Phase
from virt_admit.model.remediation import fence_taints, maintenance
from virt_admit.model.scheduler import controller_taints
from virt_admit.model.scheduler.pods import FINISHED

CLUSTER_POLICY: Final = Kind(
    "nvidia.com", ("v1",), "clusterpolicies", "ClusterPolicy", namespaced=False
)
"""Of the GPU operator. In a live cluster discovery finds it."""
_TALOS: Final = "talos.dev/cordoned"

READS: Final[Reads] = union(
    updaters.READS,
    fence_taints.READS,
    {
        NODE: (
            f"metadata.annotations.{_TALOS}",
            "metadata.annotations.nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable",
            "metadata.annotations.nvidia.com/ofed-driver-upgrade.node-initial-state.unschedulable",
        ),
        POD: ("spec.containers.resources", "spec.volumes.emptyDir"),
        VMI: ("spec.evictionStrategy", "status.conditions", "status.evacuationNodeName"),
    },
)


class Cordon(NamedTuple):
    """What keeps new pods from a node."""

    by: str
    """Who did it, as in ``cordoned by X``; it may say for what."""
    waits: str = ""
    """What that waits for, in whole sentences. Empty: it does not say."""
    ends: bool | None = None
    """False: it does not end by itself. None: that is not known."""
    remedy: str = ""
    """What ends it, with a command. Empty: nothing is to be done."""
    uncordon: bool = False
    """Whether an uncordon by hand lasts. Where it does not, it is cordoned again,
    or what was begun is disturbed.
    """
    mark: str = ""
    """What on the node shows it."""
    quiet: bool = False
    """Whether the report about the node says it already."""
    failed: bool = False
    """Whether what it is for has failed, so that it may not end by itself."""

    @property
    def reason(self) -> str:
        """What it waits for and whether it ends, in sentences; empty: not known."""
        return " ".join(filter(None, (self.waits, STAYS if self.ends is False else "")))

    @property
    def words(self) -> str:
        """Everything about it in sentences, for the report about the node."""
        mark = f" ({self.mark})" if self.mark else ""
        keep = "" if self.uncordon else "Do not uncordon it by hand meanwhile."
        said = (
            f"This node is cordoned by {self.by}{mark}.",
            self.reason,
            keep,
            capital(self.remedy),
        )
        return " ".join(filter(None, said))


STAYS: Final = "That does not end by itself."


def of_node(node: Object, cluster: Cluster, *, drained: bool = False) -> Cordon | None:
    """Return what cordoned a node; None: it is not cordoned, or nothing shows what did it.

    ``drained``: whether it has the taint of a drain, which counts like a cordon.
    """
    order: Sequence[_Find] = _OF_CORDONED if drained or _is_cordoned(node) else _OF_TAINTED
    return next((found for each in order if (found := each(node, cluster)) is not None), None)


def is_emptied(node: str, cluster: Cluster) -> bool:
    """Return whether VMs of a node are to leave it now:
    an uncordon by hand would come before the work on that node.
    """
    return bool(entry(cluster, _left, node))


def _left(cluster: Cluster) -> Mapping[str, bool]:
    """Return the nodes that VMs are to leave."""
    return dict.fromkeys(filter(None, each(cluster, VMI, _leaves)), True)


def _leaves(vmi: Object) -> str:
    """Return the node that a VMI is to leave and is still on; empty: there is none."""
    node = vmi.at("status", "evacuationNodeName").text or ""
    return node if node == vmi.at("status", "nodeName").text else ""


def _is_cordoned(node: Object) -> bool:
    return bool(node.at("spec", "unschedulable").boolean)


_Find = Callable[[Object, Cluster], Cordon | None]


# --- drivers of NVIDIA ----------------------------------------------------------------------------

_DRIVER: Final = re.compile(r"nvidia\.com/([a-z]{1,20})-driver-upgrade-state")
_OPERATORS: Final = {"gpu": "the NVIDIA GPU operator", "ofed": "the NVIDIA network operator"}
_AT_REST: Final = frozenset(("", "upgrade-done", "upgrade-required"))
_FAILED: Final = "upgrade-failed"


def _driver(node: Object, cluster: Cluster) -> Cordon | None:
    for key, state in sorted(node.labels.items()):
        found = _DRIVER.fullmatch(key)
        if found is None or state in _AT_REST:
            continue
        earlier = f"nvidia.com/{found[1]}-driver-upgrade.node-initial-state.unschedulable"
        if earlier in node.annotations:  # it was cordoned before the upgrade
            continue
        operator = f"{_OPERATORS.get(found[1], 'an operator of NVIDIA')} for its driver upgrade"
        cordon = Cordon(
            operator,
            "It uncordons the node itself when the new driver works.",
            mark=f"{key}={state}",
        )
        return _failed_driver(node, key, cordon, cluster) if state == _FAILED else cordon
    return None


def _failed_driver(node: Object, key: str, cordon: Cordon, cluster: Cluster) -> Cordon:
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
    first = (
        f"once its work is saved, {pod_owners.taken_away(users[0], cluster)}"
        if users
        else "see in its log why"
    )
    allow = (
        ", or let the operator delete it (podDeletion.deleteEmptyDir of its ClusterPolicy)"
        if kept
        else ""
    )
    remedy = typed(f"{first}{allow}, then {_AGAIN}", again)
    waits = f"{why}.{'' if kept else f' {_READY}'}{_behind(node, key, cluster)}"
    free = _update(node, cluster) is None and not is_emptied(node.name, cluster)
    return cordon._replace(
        waits=waits, ends=False if kept else None, failed=True, remedy=remedy, uncordon=free
    )


_READY: Final = (
    "It uncordons the node itself once the driver pod there is of the newest revision and ready."
)


_AGAIN: Final = "have the upgrade tried again, since an uncordon alone leaves the old driver"


def _behind(node: Object, key: str, cluster: Cluster) -> str:
    """Return which nodes wait for their turn, as a sentence after a space."""
    behind = sorted(
        each.name for each in cluster.known(NODE) if each.labels.get(key) == "upgrade-required"
    )
    return _queue([name for name in behind if name != node.name])


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


def _sriov(node: Object, cluster: Cluster) -> Cordon | None:
    state = node.annotations.get(sriov_drains.STATE, "")
    if state in sriov_drains.AT_REST:
        return None
    full = state.startswith("Reboot")
    holders = [] if full else list(entry(cluster, _by_device, node.name) or ())
    kept = [vmi for pod in holders if (vmi := _kept(pod, cluster)) is not None]
    which = f" ({names(map(_user, holders))})" if holders else ""
    needs = (
        "It takes all pods away"
        if full
        else f"It takes only the pods with SR-IOV devices away{which}"
    )
    others = (
        each for each in cluster.known(NODE) if each.name != node.name and not _is_cordoned(each)
    )
    behind = sorted(
        each.name
        for each in others
        if each.annotations.get(sriov_drains.STATE, "") not in sriov_drains.AT_REST
    )
    cordon = Cordon(_BY_SRIOV, mark=f"{sriov_drains.STATE}={state}")
    if not kept:
        return cordon._replace(waits=f"{needs}, then uncordons the node itself.{_queue(behind)}")
    vms = names(vmi.full_name for vmi in kept)
    refused = f"{vms} cannot migrate, so KubeVirt refuses the eviction."
    way = typed(
        f"shut {vms} down for this time, and start {'it' if len(kept) == 1 else 'them'} again "
        "afterwards",
        virtctl("stop", kept[0].name, kept[0].namespace),
    )
    return cordon._replace(waits=f"{needs}. {refused}{_queue(behind)}", ends=False, remedy=way)


_BY_SRIOV: Final = "the SR-IOV network operator or by hand"
"""Its mark says that a node is to be drained, not whether that has begun or the node was cordoned
before. It uncordons both.
"""


def _kept(pod: Object, cluster: Cluster) -> Object | None:
    """Return the VMI of a launcher pod if KubeVirt refuses its eviction for good; None: it does
    not, or that is not known.
    """
    name = vm_ledger.vmi_name(pod)
    vmi = find(cluster, VMI, pod.namespace, name) if name else None
    if (
        vmi is None
        or vmis.migratable(vmi) is not False
        or vmi.at("spec", "evictionStrategy").text != "LiveMigrate"
    ):
        return None
    return vmi


def _user(pod: Object) -> str:
    name = vm_ledger.vmi_name(pod)
    return f"VM {pod.namespace}/{name}" if name else f"pod {pod.full_name}"


def _by_device(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    return _with_resource(sriov_drains.DEVICES, cluster)


def _with_resource(prefix: str, cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    """Return the pods that hold a device, by node."""
    found: dict[str, list[Object]] = {}
    for pod in cluster.known(POD):
        node = pod.at("spec", "nodeName").text
        if node and pod.at("status", "phase").text not in FINISHED and _holds(pod, prefix):
            found.setdefault(node, []).append(pod)
    return {node: sorted(some, key=lambda pod: pod.full_name) for node, some in found.items()}


def _holds(pod: Object, prefix: str) -> bool:
    return any(
        name.startswith(prefix)
        for container in pod.at("spec", "containers").items()
        for part in ("requests", "limits")
        for name in container.at("resources", part).map
    )


# --- updates, maintenances, remediation, deletion -------------------------------------------------


def _update(node: Object, cluster: Cluster) -> Cordon | None:
    update = updaters.of_nodes(cluster).get(node.name)
    if update is None or update.phase in (Phase.DONE, Phase.NEXT, Phase.WAITING, Phase.NOT_PART):
        return None
    failing = update.phase is Phase.FAILING
    waits = f"It says: {update.waits_for.rstrip('.')}." if update.waits_for and failing else ""
    if update.kind == DAEMON_SET.kind:
        return _kured(node, cluster)
    if update.kind == NODE.kind:
        again = (
            maintenance_updates.cordoned_again(node, cluster)
            if maintenance_updates.is_requested(node)
            else ""
        )
        waits = f"{again}." if again else waits
        remedy = typed(*maintenance_updates.way_back(node))
        return Cordon(maintenance_updates.cordoner(node), waits, False, remedy, quiet=True)
    kind = next((each for each in maintenance.KINDS if each.kind == update.kind), None)
    if kind is not None:
        end = typed(
            f"delete that {kind.kind} when the maintenance is over",
            kubectl("delete", kind, update.name),
        )
        return Cordon(f"{update.kind} {update.name}", waits, False, end)
    ends, by = False if failing else None, f"{update.kind} {update.name}, which updates it"
    return Cordon(by, waits, ends, mark=str(update.phase))


def _machine(node: Object, cluster: Cluster) -> Cordon | None:
    name = machine_in_deletion(node, cluster)
    own = find(cluster, CAPI_MACHINE, *name.split("/", 1)) if name else None
    new = machine_nodes.successor(own, cluster) if own is not None else None
    goes = "The node does not come back; a new one may take its place."
    if new is not None:
        goes = (
            f"The node came back with Machine {new.full_name}, and goes at the end of that "
            "deletion."
        )
    return Cordon(f"the deletion of Machine {name}", goes, quiet=True) if name else None


def machine_in_deletion(node: Object, cluster: Cluster) -> str:
    """Return the full name of the Machine of a node if it is being deleted, and the node with it;
    empty: none is.
    """
    return entry(cluster, _deleted_machines, node.name) or ""


def _deleted_machines(cluster: Cluster) -> Mapping[str, str]:
    deleted = [
        machine
        for kind in (CAPI_MACHINE, MACHINE)
        for machine in cluster.known(kind)
        if machine.deleted
    ]
    return {machine_nodes.emptied_node(machine, cluster): machine.full_name for machine in deleted}


def _fence(node: Object, cluster: Cluster) -> Cordon | None:
    left = fence_taints.left(node, cluster)
    if left is None or all(
        taint["key"].text == fence_taints.OUT_OF_SERVICE for taint in left.every
    ):
        return None  # an administrator may have set that taint
    waits = fence_taints.waits_for(node.name, cluster)
    remedy, command = fence_taints.way_out(node.name, left, cluster)
    said = f"It waits for {waits}." if waits else ""
    return Cordon("the remediator that fenced it", said, None, typed(remedy, command))


# --- reboots and upgrades of the operating system -------------------------------------------------


def _kured(node: Object, cluster: Cluster) -> Cordon | None:
    if not kured.reboots(node, cluster):
        return None
    if kured.was_cordoned(node, cluster):
        return Cordon(
            "an order from before kured drained it", "kured may leave it cordoned after the reboot."
        )
    return Cordon(
        "kured, which drains and reboots it", "It uncordons the node itself after the reboot."
    )


def _plan(node: Object, cluster: Cluster) -> Cordon | None:
    pod = entry(cluster, _plan_pods, node.name)
    if pod is None:
        return _failed_plan(node, cluster)
    plan = f"Plan {pod.labels[plan_progress.OF_PLAN]} of the system upgrade controller"
    ends = "the controller uncordons the node when its Job has ended."
    return Cordon(plan, f"Its pod {pod.full_name} {plan_progress.does(pod, cluster)}; {ends}")


def _failed_plan(node: Object, cluster: Cluster) -> Cordon | None:
    """Return that the Job of a Plan has failed: only one that completes uncordons the node."""
    job = plan_progress.left_cordoned(node, cluster)
    if job is None:
        return None
    by = f"Plan {job.plan.full_name} of the system upgrade controller"
    waits, remedy = (
        f"{capital(plan_progress.words(job, cluster))}.",
        plan_progress.remedy(job, cluster),
    )
    known = not unlisted(cluster, POD)  # else the Job may run again
    ends = False if known else None
    return Cordon(by, waits, ends, f"{remedy[:1].lower()}{remedy[1:]}", uncordon=True, failed=known)


def _plan_pods(cluster: Cluster) -> Mapping[str, Object]:
    pods = (
        pod
        for pod in cluster.known(POD)
        if plan_progress.OF_PLAN in pod.labels and plan_progress.ON_NODE in pod.labels
    )
    return {
        pod.labels[plan_progress.ON_NODE]: pod
        for pod in pods
        if pod.at("status", "phase").text not in FINISHED
    }


def _talos(node: Object, _cluster: Cluster) -> Cordon | None:
    if node.annotations.get(_TALOS) != "true":
        return None
    return Cordon(
        "Talos, which upgrades or reboots it", "It uncordons the node itself when the node is back."
    )


def _removed(node: Object, _cluster: Cluster) -> Cordon | None:
    """Return that an autoscaler is about to delete a node, which it only taints."""
    for key in _keys(node):
        if key.startswith(("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupt")):
            who = controller_taints.owner(key)
            return Cordon(f"{who}, which deletes it (taint {key})")
    return None


def _keys(node: Object) -> Iterator[str]:
    yield from (taint["key"].text or "" for taint in node.at("spec", "taints").items())


_OF_CORDONED: Final[Sequence[_Find]] = (
    _fence,
    _driver,
    _machine,
    _update,
    _sriov,
    _kured,
    _plan,
    _removed,
    _talos,
)
"""The first that fits. The operator of SR-IOV pauses a pool of nodes,
so that pool does not update them.
"""
_OF_TAINTED: Final[Sequence[_Find]] = (_removed,)
