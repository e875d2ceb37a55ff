"""What cordoned a node, what it waits for, whether that ends by itself,
and what may be typed meanwhile.

One table of marks for all reports. Sources: kubereboot/kured:cmd/kured/main.go#drain #uncordon;
rancher/system-upgrade-controller:pkg/apis/upgrade.cattle.io/constants.go;
siderolabs/talos:pkg/machinery/constants/constants.go#AnnotationCordonedKey.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from virt_admit.model import machine_nodes
from virt_admit.model.commands import about, argument, kubectl, shell, typed
from virt_admit.model.kubernetes import clock, nodes
from virt_admit.model.kubernetes.cluster import Cluster, each, entry, unlisted
from virt_admit.model.kubernetes.kinds import (
    CAPI_MACHINE,
    DAEMON_SET,
    JOB,
    MACHINE,
    NODE,
    PLAN,
    POD,
    VMI,
)
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.lookups import find, is_absent
from virt_admit.model.messages import capital, cut
from virt_admit.model.node_updates import kured, maintenance_updates, plan_progress, updaters
from virt_admit.model.node_updates.node_phases import Phase
from virt_admit.model.node_updates.operators import (
    device_operators,
    left_maintenances,
    node_removals,
)
from virt_admit.model.node_updates.operators.cordons import Cordon
from virt_admit.model.node_updates.rancher import left_plans, plan_pods
from virt_admit.model.remediation import fence_taints, maintenance
from virt_admit.model.scheduler import controller_taints

_TALOS: Final = "talos.dev/cordoned"

READS: Final[Reads] = union(
    updaters.READS,
    fence_taints.READS,
    device_operators.READS,
    node_removals.READS,
    left_maintenances.READS,
    left_plans.READS,
    {
        NODE: (
            *(f"metadata.annotations.{_TALOS}", "metadata.labels"),
            *("spec.taints", "spec.unschedulable"),
        ),
        VMI: ("status.evacuationNodeName",),
    },
    dict.fromkeys(maintenance.KINDS, ("spec.reason",)),
)


def of_node(node: Object, cluster: Cluster, *, drained: bool = False) -> Cordon | None:
    """Return what cordoned a node; None: it is not cordoned, or nothing shows what did it.

    ``drained``: whether it has the taint of a drain, which counts like a cordon.
    """
    is_cordoned = drained or node.at("spec", "unschedulable").boolean
    order: Sequence[_Find] = _OF_CORDONED if is_cordoned else _OF_TAINTED
    return next((found for each in order if (found := each(node, cluster)) is not None), None)


def is_emptied(node: str, cluster: Cluster) -> bool:
    """Return whether VMs of a node are to leave it now:
    an uncordon by hand would come before the work on that node.
    """
    return bool(entry(cluster, _left, node))


def is_reserved(node: str, cluster: Cluster) -> bool:
    """Return whether a control-plane node is kept cordoned, as other clusters taint theirs: all of
    them take no pods, others do, and its cordon is older than a maintenance.
    """
    return bool(entry(cluster, _reserved, node))


def _reserved(cluster: Cluster) -> Mapping[str, bool]:
    """Return the control-plane nodes that are kept cordoned."""
    known = cluster.known(NODE)
    servers = [node for node in known if nodes.is_control_plane(node)]
    open_ones = any(not _is_closed(node) for node in known)
    if unlisted(cluster, NODE) or not open_ones or not all(map(_is_closed, servers)):
        return {}
    cordoned = (node for node in servers if node.at("spec", "unschedulable").boolean)
    return {
        node.name: True
        for node in cordoned
        if clock.has_lasted(_cordoned_at(node), _MAINTENANCE, cluster)
        and not is_emptied(node.name, cluster)
        and of_node(node, cluster) is None
    }


def _is_closed(node: Object) -> bool:
    """Return whether a node takes no pods, or is tainted for its role."""
    taints = node.at("spec", "taints").items()
    return bool(node.at("spec", "unschedulable").boolean) or any(
        taint["key"].text in nodes.CONTROL_PLANE and taint["effect"].text in _KEEPS_OFF
        for taint in taints
    )


def _cordoned_at(node: Object) -> str | None:
    taints = node.at("spec", "taints").items()
    return next((each["timeAdded"].text for each in taints if each["key"].text == _TAINT), None)


_TAINT: Final = "node.kubernetes.io/unschedulable"
"""kube-controller-manager adds it to a cordoned node, with the time."""
_KEEPS_OFF: Final = frozenset(("NoSchedule", "NoExecute"))
_MAINTENANCE: Final = timedelta(days=1)


def _left(cluster: Cluster) -> Mapping[str, bool]:
    """Return the nodes that VMs are to leave."""
    return dict.fromkeys(filter(None, each(cluster, VMI, _leaves)), True)


def _leaves(vmi: Object) -> str:
    """Return the node that a VMI is to leave and is still on; empty: there is none."""
    node = vmi.at("status", "evacuationNodeName").text or ""
    return node if node == vmi.at("status", "nodeName").text else ""


_Find = Callable[[Object, Cluster], Cordon | None]


def _driver(node: Object, cluster: Cluster) -> Cordon | None:
    cordon = device_operators.driver_upgrade(node, cluster)
    if cordon is None or not cordon.failed:
        return cordon
    taken = node.deleted or _update(node, cluster) is not None or is_emptied(node.name, cluster)
    return cordon._replace(uncordon=not taken)


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
        reason = find(cluster, kind, "", update.name)
        words = cut(reason.at("spec", "reason").words, 150) if reason is not None else ""
        mark = f"its reason: {words}" if words else ""
        return Cordon(f"{update.kind} {update.name}", waits, False, end, mark=mark)
    ends, by = False if failing else None, f"{update.kind} {update.name}, which updates it"
    if update.withdrawn:
        by = f"{update.kind} {update.name}, for an update that it has replaced"
        waits = f"Node {node.name} {update.withdrawn}. {waits}".rstrip()
    return Cordon(by, waits, ends, mark=str(update.phase))


def _machine(node: Object, cluster: Cluster) -> Cordon | None:
    own = entry(cluster, _deleted_machines, node.name)
    if own is None:
        return None
    new = machine_nodes.successor(own, cluster) if own.group == CAPI_MACHINE.group else None
    goes = "The node does not come back; a new one may take its place."
    if new is not None:
        goes = (
            f"The node came back with Machine {new.full_name}, and goes at the end of that "
            "deletion."
        )
    return Cordon(f"the deletion of Machine {own.full_name}", goes, quiet=True)


def machine_in_deletion(node: Object, cluster: Cluster) -> str:
    """Return the full name of the Machine of a node if it is being deleted, and the node with it;
    empty: none is.
    """
    found = entry(cluster, _deleted_machines, node.name)
    return found.full_name if found is not None else ""


def stuck_removal(node: Object, cluster: Cluster) -> str:
    """Return where to look if the deletion of the Machine of a node does not end, with a command;
    empty: it is young, or none is deleted.
    """
    own = entry(cluster, _deleted_machines, node.name)
    begun = own.metadata["deletionTimestamp"].text if own is not None else None
    if own is None or not clock.has_lasted(begun, _REMOVED, cluster):
        return ""
    which = f"the deletion of Machine {own.full_name}{clock.lasting(begun, cluster)}"
    kind = CAPI_MACHINE if own.group == CAPI_MACHINE.group else MACHINE
    return typed(f"see why {which} does not remove {node.name}", about("describe", own, kind))


_REMOVED: Final = timedelta(hours=4)
"""The drain of many large VMs lasts for hours, one that moves nothing for days."""


def _deleted_machines(cluster: Cluster) -> Mapping[str, Object]:
    deleted = [
        machine
        for kind in (CAPI_MACHINE, MACHINE)
        for machine in cluster.known(kind)
        if machine.deleted
    ]
    return {machine_nodes.emptied_node(machine, cluster): machine for machine in deleted}


def _fence(node: Object, cluster: Cluster) -> Cordon | None:
    if kept := fence_taints.kept(node, cluster):
        return Cordon("the remediator that fenced it", f"{kept}.", quiet=True)
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
    held = plan_pods.stuck(pod, cluster)
    if _is_of_deleted_plan(pod, cluster):
        return _deleted_plan(f"the deleted {plan}", pod, node, cluster)
    if held:
        ends = "the controller uncordons the node only when its Job has completed."
        remedy = typed(
            "see what that pod reports and correct it, a wrong image in that Plan",
            about("describe", pod, POD),
        )
        return Cordon(plan, f"Its pod {pod.full_name} {held}; {ends}", None, remedy, failed=True)
    ends = "the controller uncordons the node when its Job has ended."
    return Cordon(plan, f"Its pod {pod.full_name} {plan_pods.does(pod, cluster)}; {ends}")


def _deleted_plan(by: str, pod: Object, node: Object, cluster: Cluster) -> Cordon | None:
    """Return that a Plan was deleted before its Job completed: without it, the controller does not
    uncordon the node. None: its pod does not show that it cordoned the node.

    Source: rancher/system-upgrade-controller:pkg/upgrade/handle_batch.go#handleJobs. The Job has no
    owner reference, so it may outlive the Plan.
    """
    if not plan_pods.has_cordoned(pod):
        return None
    held, job = plan_pods.stuck(pod, cluster), pod.owned_by(JOB.kind)
    does = held or plan_pods.does(pod, cluster)
    waits = (
        "Without that Plan, the controller does not uncordon the node. Its pod "
        f"{pod.full_name} {does}."
    )
    uncordon = shell("kubectl", "uncordon", argument(node.name))
    remedy = f"wait until that pod has ended, then uncordon the node ({uncordon})"
    if held and job and not pod.deleted:
        remedy = typed(
            f"delete the Job that was left, then uncordon the node ({uncordon})",
            kubectl("delete", JOB, job, pod.namespace),
        )
    return Cordon(by, waits, False, remedy, by_hand=True)


def _failed_plan(node: Object, cluster: Cluster) -> Cordon | None:
    """Return that the Job of a Plan has failed: only one that completes uncordons the node."""
    job = plan_progress.left_cordoned(node, cluster)
    if job is None:
        return None
    by = f"Plan {job.plan.full_name} of the system upgrade controller"
    waits = f"{capital(plan_progress.words(job, cluster))}."
    remedy = plan_progress.remedy(job, cluster)
    known = not unlisted(cluster, POD)  # else the Job may run again
    ends = False if known else None
    return Cordon(by, waits, ends, f"{remedy[:1].lower()}{remedy[1:]}", uncordon=True, failed=known)


def _plan_pods(cluster: Cluster) -> Mapping[str, Object]:
    """Return the pod of a Plan on each node, best of a Plan that exists: it uncordons the node."""
    pods = (
        pod
        for pod in cluster.known(POD)
        if plan_progress.OF_PLAN in pod.labels and plan_progress.ON_NODE in pod.labels
    )
    unfinished = [pod for pod in pods if not pod.ended]
    unfinished.sort(key=lambda pod: not _is_of_deleted_plan(pod, cluster))
    return {pod.labels[plan_progress.ON_NODE]: pod for pod in unfinished}


def _is_of_deleted_plan(pod: Object, cluster: Cluster) -> bool:
    return is_absent(cluster, PLAN, pod.namespace, pod.labels[plan_progress.OF_PLAN])


def _talos(node: Object, _cluster: Cluster) -> Cordon | None:
    if node.annotations.get(_TALOS) != "true":
        return None
    return Cordon(
        "Talos, which upgrades or reboots it", "It uncordons the node itself when the node is back."
    )


def _removed(node: Object, cluster: Cluster) -> Cordon | None:
    """Return that a node is being deleted, or that an autoscaler is about to, which only taints it.

    Only a mark that its autoscaler has forgotten may be removed by hand.
    """
    found = node_removals.of_node(node, cluster)
    if found is not None:
        if not found.waits or machine_in_deletion(node, cluster):
            return found._replace(waits="", ends=None, remedy="")
        unread = any(unlisted(cluster, kind) for kind in (CAPI_MACHINE, MACHINE))
        ends = None if unread and not node.deleted else found.ends  # its Machine may be deleted
        return found._replace(ends=ends, failed=bool(found.remedy))
    keys = (taint["key"].text or "" for taint in node.at("spec", "taints").items())
    key = next((key for key in keys if key.startswith("karpenter.sh/disrupt")), "")
    by = f"{controller_taints.owner(key)}, which deletes it (taint {key})"
    return Cordon(by, state=f"tainted by {by}") if key else None


def _deleted(node: Object, cluster: Cluster) -> Cordon | None:
    """Return the deletion of a node, which ends whatever else cordoned it."""
    return _removed(node, cluster) if node.deleted else None


_OF_CORDONED: Final[Sequence[_Find]] = (
    _fence,
    _driver,
    _machine,
    _deleted,
    _update,
    left_maintenances.of_node,
    device_operators.sriov,
    _kured,
    _plan,
    _removed,
    _talos,
    left_plans.of_node,
)
"""The first that fits. The operator of SR-IOV pauses a pool of nodes,
so that pool does not update them.
"""
_OF_TAINTED: Final[Sequence[_Find]] = (_removed, left_maintenances.of_node)
