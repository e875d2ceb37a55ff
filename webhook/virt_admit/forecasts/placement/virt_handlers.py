"""virt-handler, which runs on each node: without it no VM starts, leaves or arrives there."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Final

from virt_admit.forecasts.placement import pod_networks
from virt_admit.forecasts.placement.absent import unready_nodes
from virt_admit.forecasts.placement.absent.unready_nodes import UnreadyNode
from virt_admit.forecasts.placement.components.driver_daemons import HANDLER
from virt_admit.forecasts.placement.components.kubelets import young_pods
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.commands import kubectl, logs_of, typed
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, each, entry
from virt_admit.model.kubernetes.kinds import KUBEVIRT, NAD, NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import NAME, Reads, union
from virt_admit.model.kubevirt.launcher.launcher_pod import UNSERVED
from virt_admit.model.kubevirt.settings import migration_limits, migration_network
from virt_admit.model.lookups import find, is_absent
from virt_admit.model.messages import names
from virt_admit.model.scheduler.node_selectors import tolerates

HEARTBEAT_READS: Final[Reads] = union(
    node_health.READS, {NODE: ("metadata.annotations.kubevirt.io/heartbeat",)}
)
READS: Final[Reads] = union(
    HEARTBEAT_READS,
    pod_networks.READS,
    young_pods.READS,
    {NAD: NAME, KUBEVIRT: ("spec.workloads.nodePlacement.tolerations",), NODE: ("spec.taints",)},
)

BROKEN: Final = "virt-handler on "
"""How each reason begins."""
_HEARTBEAT: Final = "kubevirt.io/heartbeat"
_BEATS_WITHIN: Final = datetime.timedelta(minutes=5)
"""virt-controller makes a node not schedulable after this time
(pkg/virt-controller/watch/node/node.go).
"""
_STARTS_WITHIN: Final = datetime.timedelta(minutes=10)
_SETTLES_WITHIN: Final = datetime.timedelta(minutes=5)


def problem(cluster: Cluster, node: str, *, brief: bool = False) -> str:
    """Return why the virt-handler of a node is known not to work, with the error or, if ``brief``,
    with what that comes from; empty: it works, or that is not known.
    """
    handler = pod(cluster, node)
    unready = handler is not None and handler.condition("Ready")["status"].text == "False"
    # else the node controller wrote that
    if handler is not None and unready and not outlives_kubelet(cluster, node):
        if (root := _without_network(cluster, node)) is not None:
            return f"{BROKEN}{node} waits for the pod network of its node: {root.root}"
        lost = migration_network.fault(handler, cluster)
        why = cluster.cached(_missing_network) or (
            lost.reason if lost is not None else pod_starts.words(handler, cluster, brief=brief)
        )
        why = why.replace("; ", ", ")  # one cause
        return f"{BROKEN}{node} is not ready{f': {why}' if why else ''}"
    age = _silent_for(find(cluster, NODE, "", node), cluster)
    if age is not None and age > _BEATS_WITHIN:
        return f"{BROKEN}{node} sent its last heartbeat {clock.duration(age)} ago"
    return ""


def repair(cluster: Cluster, node: str) -> str:
    """Return what repairs a virt-handler that no wait does; empty: it may recover, or works.

    The kubelet tries again after five minutes at the most, so what fails for longer has a cause
    that stays.
    """
    handler = pod(cluster, node)
    if (
        handler is None
        or handler.condition("Ready")["status"].text != "False"
        or node_health.silence_now(node, cluster)
        or outlives_kubelet(cluster, node)
    ):
        return ""
    lost = migration_network.fault(handler, cluster)
    if lost is not None:
        return lost.remedy
    age = node_health.pod_unready_for(handler, find(cluster, NODE, "", node), cluster)
    if age is None or age <= _LASTS:
        return ""
    if (root := _without_network(cluster, node)) is not None:
        return root.remedy
    if network := cluster.cached(_lost_network):
        return migration_network.create(network, cluster)
    fault = pod_starts.fault(handler, cluster)
    return fault.remedy if fault is not None else ""


def _without_network(cluster: Cluster, node: str) -> UnreadyNode | None:
    """Return that a node has no pod network, for which virt-handler waits as all pods do; None: it
    has one."""
    found = unready_nodes.named(node, cluster)
    return found if found is not None and not found.has_network else None


_LASTS: Final = datetime.timedelta(minutes=20)


def is_starting(cluster: Cluster, node: str) -> bool:
    """Return whether the virt-handler of a node is not ready yet, as on a new node or after a
    reboot, and may become so.
    """
    handler, back = pod(cluster, node), returned(cluster, node)
    if handler is None:
        return False
    if back is not None and back < _SETTLES_WITHIN:
        return True  # the first failures after a boot are those of a network that is not there yet
    if pod_starts.fault(handler, cluster) is not None:
        return False
    ages = clock.age(handler, cluster), back
    return any(age is not None and age < _STARTS_WITHIN for age in ages)


def failure(cluster: Cluster, node: str) -> str:
    """Return the same as ``problem``; also empty while the virt-handler is only being replaced."""
    found = problem(cluster, node)
    return "" if found and is_replaced(cluster, node) else found


def is_replaced(cluster: Cluster, node: str) -> bool:
    """Return whether the virt-handler of a node that sent its heartbeat a moment ago has just been
    made again, as in an update of KubeVirt: what needs it waits until it is ready.
    """
    handler = pod(cluster, node)
    return (
        handler is not None
        and beats(cluster, node)
        and young_pods.starts(handler, cluster)
        and _without_network(cluster, node) is None
        and migration_network.fault(handler, cluster) is None
        and pod_starts.fault(handler, cluster) is None
    )


def returned(cluster: Cluster, node: str) -> datetime.timedelta | None:
    """Return how long ago a node became Ready, as after a boot; None: it is not,
    or that is not known.
    """
    found = find(cluster, NODE, "", node)
    ready = found.condition("Ready") if found is not None else None
    if ready is None or ready["status"].text != "True":
        return None
    return clock.since(ready["lastTransitionTime"].text, cluster)


def remedy(cluster: Cluster, node: str) -> str:
    """Return what repairs the virt-handler of a node, with a command."""
    handler = pod(cluster, node)
    if (root := _without_network(cluster, node)) is not None:
        return root.remedy
    if handler is not None and (lost := migration_network.fault(handler, cluster)) is not None:
        return lost.remedy
    if handler is None:
        return typed(
            f"repair virt-handler on {node}",
            "kubectl get pods -A -l kubevirt.io=virt-handler -o wide",
        )
    if (fault := pod_starts.fault(handler, cluster)) is not None:
        return fault.remedy
    return typed(
        f"repair virt-handler on {node}", kubectl("describe", POD, handler.name, handler.namespace)
    )


def outlives_kubelet(cluster: Cluster, node: str) -> bool:
    """Return whether the virt-handler of a node is known to report although its kubelet no longer
    does.

    Its heartbeat is younger than the end of the node's condition Ready, and not older than five
    minutes.
    """
    found = find(cluster, NODE, "", node)
    age = _silent_for(found, cluster)
    if age is None or age > _BEATS_WITHIN or found is None:
        return False
    lost = clock.since(found.condition("Ready")["lastTransitionTime"].text, cluster)
    return bool(node_health.silence(found, cluster)) and lost is not None and age < lost


def beats(cluster: Cluster, node: str) -> bool:
    """Return whether the virt-handler of a node is known to send its heartbeat."""
    age = _silent_for(find(cluster, NODE, "", node), cluster)
    return age is not None and age <= _BEATS_WITHIN


def is_lost(cluster: Cluster, node: str) -> bool:
    """Return whether nothing on a node reports, neither its kubelet nor its virt-handler."""
    return bool(node_health.silence_now(node, cluster)) and not outlives_kubelet(cluster, node)


def _silent_for(node: Object | None, cluster: Cluster) -> datetime.timedelta | None:
    """Return how long ago the virt-handler of a node sent its last heartbeat; None: not known."""
    return clock.since(node.annotations.get(_HEARTBEAT), cluster) if node is not None else None


def pod(cluster: Cluster, node: str) -> Object | None:
    """Return the pod of virt-handler on a node; None: none is known."""
    return entry(cluster, _pods, node)


def logs(cluster: Cluster, node: str) -> str:
    """Return the command that shows the logs of virt-handler on a node; empty:
    its pod is not known.
    """
    found = pod(cluster, node)
    return logs_of(found) if found is not None else ""


def _missing_network(cluster: Cluster) -> str:
    """Return that the migration network does not exist; empty: it may."""
    lost = cluster.cached(_lost_network)
    network = f"{NAD.kind} {lost}"
    other = migration_limits.elsewhere(lost, cluster)
    return f"the migration network, {network}, does not exist{other}" if lost else ""


def _lost_network(cluster: Cluster) -> str:
    """Return the migration network, which the pods of virt-handler join, if it does not exist;
    else empty.

    Source:
    kubevirt/kubevirt:pkg/virt-operator/resource/generate/components/daemonsets.go#NewHandlerDaemonSet.
    """
    for kubevirt in cluster.known(KUBEVIRT):
        namespace, name = migration_limits.network(kubevirt) or ("", "")
        namespace = namespace or kubevirt.namespace
        if name and is_absent(cluster, NAD, namespace, name):
            return f"{namespace}/{name}"
    return ""


def broken(cluster: Cluster) -> Mapping[str, str]:
    """Return the nodes on which no VM starts as virt-handler, or the pod network, does not work,
    each with the reason.
    """
    nodes = [node.name for node in cluster.known(NODE)]
    found = (
        (name, failure(cluster, name) or pod_networks.problem(cluster, name)) for name in nodes
    )
    return {name: reason for name, reason in found if reason}


def own_tolerations(refusals: Mapping[str, str], cluster: Cluster) -> str:
    """Return what a VM lacks on nodes whose taints virt-handler alone tolerates; empty:
    there are none.

    KubeVirt gives launcher pods the tolerations of their VM, and none of ``nodePlacement``. A
    toleration without a key does not ask for VMs on such nodes. Sources:
    kubevirt/kubevirt:pkg/virt-controller/services/template.go, issue kubevirt/kubevirt#14831.
    """
    by_taints = [
        name
        for name, why in sorted(refusals.items())
        if all(cause.startswith("taint ") for cause in why.split("; "))
    ]
    for kubevirt in cluster.known(KUBEVIRT):
        placement = kubevirt.at("spec", "workloads", "nodePlacement")
        own = [each.map for each in placement["tolerations"].items() if each["key"].text]
        for node in filter(None, (find(cluster, NODE, "", name) for name in by_taints)):
            hard = [each.map for each in node.at("spec", "taints").items()]
            hard = [taint for taint in hard if taint.get("effect") in _HARD]
            if hard and all(tolerates(own, taint) for taint in hard):
                keys = names(str(taint.get("key")) for taint in hard)
                which = f"{keys} of {node.name} (spec.template.spec.tolerations)"
                whose = f"workloads.nodePlacement of KubeVirt {kubevirt.full_name}"
                return f"give the VM tolerations of {which}, as {whose} is not for VMs"
    return ""


_HARD: Final = ("NoSchedule", "NoExecute")


def _pods(cluster: Cluster) -> Mapping[str, Object]:
    """Return the pods of virt-handler by node."""
    return {
        pod.at("spec", "nodeName").text or "": pod
        for pod in filter(None, each(cluster, POD, _handler))
    }


def _handler(pod: Object) -> Object | None:
    """Return the pod if it is one of virt-handler that has not ended."""
    return pod if pod.labels.get("kubevirt.io") == HANDLER and not pod.ended else None


_OF_HANDLER: Final = (
    "machine type ",
    "CPU feature ",
    "CPU model ",
    "host model ",
    "TSC frequency ",
    "Hyper-V ",
)


def needs(why: str) -> str:
    """Return why a node refuses a pod, so that a value which the pod demands does not read as one
    of the node: ``needs CPU model Denverton``.
    """
    demanded = (*_OF_HANDLER, "architecture ")
    causes = (f"{'needs ' * each.startswith(demanded)}{each}" for each in why.split("; "))
    return "; ".join(causes)


def lacks_handler(why: str) -> bool:
    """Return whether a node refuses a pod for nothing but what virt-handler labels and offers there
    once it works.
    """
    return all(map(is_of_handler, why.split("; ")))


def is_of_handler(cause: str) -> bool:
    """Return whether a node refuses a pod for what virt-handler labels and offers there."""
    device = cause.startswith("devices.kubevirt.io/") and cause.endswith(" missing")
    return cause == UNSERVED or device or cause.startswith((*_OF_HANDLER, BROKEN))
