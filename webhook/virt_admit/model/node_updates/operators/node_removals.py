"""Nodes that are being deleted, or marked for that by an autoscaler: for how long, what keeps them,
and what ends it.

Such a node is not to be brought back. A mark that its controller has forgotten stays forever.

Sources: kubernetes-sigs/karpenter:pkg/utils/pod/scheduling.go#IsEvictable #IsDrainable,
:pkg/apis/v1/labels.go#DoNotDisruptAnnotationKey;
kubernetes/autoscaler:cluster-autoscaler/utils/taints/taints.go#AddTaints (the value of the taint is
the time), issue kubernetes/autoscaler#5048;
rancher/rke2:pkg/controllers/cisnetworkpolicy/cleanup.go, issue rancher/rke2#5855;
k3s-io/k3s:pkg/etcd/metadata_controller.go (the finalizer of etcd members);
kubernetes/kubernetes:pkg/controller/podgc/gc_controller.go#gcOrphaned (pods of a Node that is gone
are deleted by force).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from virt_admit.model.commands import about, argument, kubectl, shell, typed, virtctl
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster, entry, gather, unlisted
from virt_admit.model.kubernetes.kinds import KARPENTER_NODE_POOL, NODE, POD, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import CONDITIONS, Reads, union
from virt_admit.model.kubernetes.units import parse_duration
from virt_admit.model.kubevirt.instances import migrations, vmis
from virt_admit.model.kubevirt.launcher.launcher_pod import is_launcher
from virt_admit.model.lookups import find, grouped
from virt_admit.model.messages import names
from virt_admit.model.node_updates.operators import awaited_detaches
from virt_admit.model.node_updates.operators.cordons import Cordon
from virt_admit.model.scheduler.node_selectors import tolerates

_POOL: Final = "karpenter.sh/nodepool"
_KEPT: Final = "karpenter.sh/do-not-disrupt"
_KARPENTER: Final = "karpenter.sh/termination"
_LIMIT: Final = ("spec", "template", "spec", "terminationGracePeriod")
"""How long Karpenter lets pods that it may not evict keep a node, in a NodePool."""
_NONE: Final = timedelta()
_KARPENTER_TAINT: Final = "karpenter.sh/disrupt"
_ETCD: Final = "wrangler.cattle.io/managed-etcd-controller"
_LEFT: Final[Mapping[str, str]] = {
    "wrangler.cattle.io/cisnetworkpolicy-node": (
        "RKE2 sets that finalizer for CIS network policies, and a release that no longer runs that "
        "controller leaves it"
    )
}
"""Finalizers that guard nothing on the node, and why they stay."""
_STAYING: Final = ("DaemonSet", "Node")
"""The owners of pods that no drain takes away: the kubelet runs those of its Node from a file."""
AUTOSCALER: Final = "ToBeDeletedByClusterAutoscaler"

READS: Final[Reads] = union(
    awaited_detaches.READS,
    node_health.READS,
    vmis.READS,
    migrations.READS,
    {
        NODE: (
            *CONDITIONS,
            *("metadata.finalizers", f"metadata.labels.{_POOL}"),
            *("spec.taints", "spec.unschedulable"),
        ),
        POD: (
            *("spec.nodeName", "spec.tolerations", "spec.terminationGracePeriodSeconds"),
            "status.phase",
            *("metadata.labels", "metadata.ownerReferences", f"metadata.annotations.{_KEPT}"),
        ),
        KARPENTER_NODE_POOL: (".".join(_LIMIT),),
    },
)

PATIENCE: Final = timedelta(minutes=15)
"""A node without VMs is drained and deleted in minutes."""
_FORGOTTEN: Final = timedelta(hours=2)
"""The autoscaler takes its mark back where a drain lasts for longer than
``--max-graceful-termination-sec`` (10 minutes by default).
"""


def of_node(node: Object, cluster: Cluster) -> Cordon | None:
    """Return the deletion of a node, or the mark of an autoscaler on it; None: neither is there.
    Without a remedy, nothing is to be done now.
    """
    if node.deleted:
        return _deletion(node, cluster)
    for taint in node.at("spec", "taints").items():
        key = taint["key"].text or ""
        if key.startswith(AUTOSCALER):
            return _marked(node, key, taint["value"].text or "", cluster)
    return None


def in_deletion(name: str, cluster: Cluster) -> Cordon | None:
    """Return the deletion of a node by its name; None: it is not being deleted, or not known."""
    node = find(cluster, NODE, "", name)
    return _deletion(node, cluster) if node is not None and node.deleted else None


def instead_of_return(name: str, cluster: Cluster) -> str:
    """Return the remedy for what a node in deletion holds up, which is not to be brought back;
    empty: the node is not being deleted.
    """
    found = in_deletion(name, cluster)
    if found is None:
        return ""
    see = kubectl("get", NODE, name, "", "-o", "yaml")
    return found.remedy or typed(
        f"make sure that {name} is off, and wait until its Node is deleted", see
    )


# --- a Node with a deletionTimestamp --------------------------------------------------------------


def _deletion(node: Object, cluster: Cluster) -> Cordon:
    lasts = clock.since(node.metadata["deletionTimestamp"].text, cluster)
    state = f"being deleted{clock.lasts(lasts)}"
    held = [text for each in node.metadata["finalizers"].items() if (text := each.text)]
    mark = f"finalizer {names(held, 120)}" if held else ""
    removal = Cordon("its deletion", ends=False, mark=mark, state=state)
    if lasts is None or lasts < PATIENCE or not held:
        return removal
    if _KARPENTER in held:
        return _karpenter(node, removal, cluster)
    here, unread = gather(vmis.on_node(cluster, node.name))
    there = f"VMs on it: {names((each.full_name for each in here), 80)}" if here else ""
    others = [pod.full_name for pod in _leaving(node, cluster)]
    also = f", but {names(others, 80)}" if others else ""
    free = "" if unread else f"No VM is on it{also}"
    first = ". ".join(filter(None, (_why(held, node, cluster), there or free)))
    remedy = _guarded(node, bool(here or unread)) or _remedy(node, held, cluster)
    return removal._replace(waits=f"{first}." if first else "", remedy=remedy)


def _why(held: list[str], node: Object, cluster: Cluster) -> str:
    why = next((words for key, words in _LEFT.items() if key in held), "")
    if not why:
        return f"The controller of {held[0]} does not remove that"
    others = sorted(
        each.name
        for each in cluster.known(NODE)
        if each.name != node.name and any(key in _texts(each) for key in _LEFT)
    )
    return f"{why}{f' (also on {names(others, 60)})' if others else ''}"


def _texts(node: Object) -> list[str | None]:
    return [each.text for each in node.metadata["finalizers"].items()]


def _guarded(node: Object, guests: bool) -> str:
    """Return that guests leave a node before its deletion goes on; empty: none are there. Pods of a
    Node that is gone are deleted by force, so its guests must not run by then.
    """
    if not guests:
        return ""
    drain = shell("virt-admit", "drain", argument(node.name))
    off = "make sure first that no guest runs on it: migrate its VMs, or switch it off"
    return typed(f"{off}; do not remove the finalizer before", drain)


def _remedy(node: Object, held: list[str], cluster: Cluster) -> str:
    """Return what ends the deletion of a node without VMs."""
    see, edit = kubectl("describe", NODE, node.name), kubectl("edit", NODE, node.name)
    if all(key in _LEFT for key in held):
        return _emptied(node, cluster) or typed(
            "remove this finalizer from the Node, and do not bring the node back", edit
        )
    if _ETCD in held:
        etcd = "see in the log of the servers why it is not taken out of etcd"
        return typed(f"{etcd}, before the finalizer is removed by hand", see)
    repair = f"repair the controller of {next(key for key in held if key not in _LEFT)}"
    gone = "or remove the finalizer if that is gone and the machine off"
    return typed(f"{repair}, {gone}", edit)


def _emptied(node: Object, cluster: Cluster) -> str:
    """Return that other pods leave a node before its finalizer is removed: they would start
    elsewhere while they still run there. Empty: none are known to be there.
    """
    if not _leaving(node, cluster) and not unlisted(cluster, POD):
        return ""
    before = "before you remove this finalizer from the Node, whose pods are then deleted by force"
    if node_health.silence(node, cluster):  # then no drain of it ends
        see = kubectl("describe", NODE, node.name)
        return typed(f"make sure that {node.name} is off, as it does not report, {before}", see)
    drain = shell("kubectl", "drain", argument(node.name), "--ignore-daemonsets")
    return typed(f"drain {node.name} and switch it off {before}; do not bring it back", drain)


def _leaving(node: Object, cluster: Cluster) -> Sequence[Object]:
    """Return the pods that a drain takes from a node."""
    return [
        pod
        for pod in _pods(node, cluster)
        if pod.controller is None or pod.controller["kind"].text not in _STAYING
    ]


def _pods(node: Object, cluster: Cluster) -> Sequence[Object]:
    """Return the pods of a node that have not ended."""
    return entry(cluster, _by_node, node.name) or ()


def _by_node(cluster: Cluster) -> Mapping[str, Sequence[Object]]:
    left = (pod for pod in cluster.known(POD) if not pod.ended)
    return grouped(left, lambda pod: pod.at("spec", "nodeName").text or "")


# --- Karpenter ------------------------------------------------------------------------------------


def _karpenter(node: Object, removal: Cordon, cluster: Cluster) -> Cordon:
    """Return what Karpenter waits for before it ends a node, and the remedy; nothing while its pods
    leave.
    """
    is_silent = bool(node_health.silence(node, cluster))  # then nothing on it migrates or ends
    kept = [
        pod
        for pod in _pods(node, cluster)
        if not pod.deleted and pod.annotations.get(_KEPT) == "true"
    ]
    taints = [
        taint.value
        for taint in node.at("spec", "taints").items()
        if (taint["key"].text or "").startswith(_KARPENTER_TAINT)
    ]
    held = [
        pod
        for pod in kept
        if not any(tolerates(pod.at("spec", "tolerations").value, each) for each in taints)
        and (is_silent or not _migrates(_vmi(pod, cluster), cluster))
    ]
    is_empty = not _leaving(node, cluster) and not unlisted(cluster, POD)
    awaited = None if held else awaited_detaches.of_node(node, cluster, is_empty=is_empty)
    if awaited is not None:
        ends, until = _end_of_wait(node, cluster) if awaited.remedy else (None, "")
        return removal._replace(waits=f"{awaited.reason}{until}.", remedy=awaited.remedy, ends=ends)
    if not held:
        forced = _forced(node, cluster)
        then = f" It deletes those that are left {forced}." if forced else ""
        waits = f"Karpenter waits until its pods have left.{then}"
        see = typed("see what keeps them", shell("virt-admit", "drain", argument(node.name)))
        keeps = is_silent or not _leave(node, cluster)
        return removal._replace(
            waits=waits if keeps or then else "", remedy=see if keeps else "", ends=None
        )
    pods, single = names((pod.full_name for pod in held), 100), len(held) == 1
    carry = f"Pod {pods} carries {_KEPT}" if single else f"Pods {pods} carry {_KEPT}"
    it = "it" if single else "them"
    ends, until = _limit(node, it, cluster)
    waits = f"{carry}, so Karpenter does not evict {it}{until}."
    found = removal._replace(waits=waits, ends=ends)
    if is_silent:
        off = "make sure that its instance is off, as it does not report"
        words = f"{off}; do not remove finalizer {_KARPENTER} before"
        return found._replace(remedy=typed(words, kubectl("describe", NODE, node.name)))
    return found._replace(remedy=_free(held[0], cluster))


def _leave(node: Object, cluster: Cluster) -> bool:
    """Whether pods of a node end within their time, or VMs migrate away from it."""
    ending = (pod for pod in _pods(node, cluster) if pod.deleted)
    return any(_ends_in_time(pod, cluster) for pod in ending) or any(
        _migrates(vmi, cluster) for vmi in gather(vmis.on_node(cluster, node.name))[0]
    )


def _ends_in_time(pod: Object, cluster: Cluster) -> bool:
    late = clock.since(pod.metadata["deletionTimestamp"].text, cluster)
    grace = pod.at("spec", "terminationGracePeriodSeconds").integer or 0
    return late is None or late < PATIENCE + timedelta(seconds=clock.bounded(grace))


def _migrates(vmi: Object | None, cluster: Cluster) -> bool:
    """Whether a VM has a migration that has not ended, beside which no other one starts."""
    return vmi is not None and bool(gather(migrations.unfinished(vmi, cluster))[0])


def _limit(node: Object, it: str, cluster: Cluster) -> tuple[bool | None, str]:
    """Return whether the wait of a node ends, as ``Cordon.ends``, and how in words."""
    pool = find(cluster, KARPENTER_NODE_POOL, "", node.labels.get(_POOL, ""))
    if pool is not None and not pool.at(*_LIMIT).present:
        return False, f", and NodePool {pool.name} sets no {_LIMIT[-1]}"
    forced = _forced(node, cluster)
    return None, f", but deletes {it} {forced}" if forced else ""


def _end_of_wait(node: Object, cluster: Cluster) -> tuple[bool | None, str]:
    """Return whether the wait for volumes ends, as ``Cordon.ends``, and how, as a sentence."""
    forced = _forced(node, cluster)
    if forced:
        return None, f". It ends the instance {forced}"
    ends, until = _limit(node, "", cluster)
    return ends, until.replace(", and ", ". ", 1)


def _forced(node: Object, cluster: Cluster) -> str:
    """Return when Karpenter deletes what is left on a node by force; empty: never, it should have,
    or that is not known.

    It does so early enough for the grace period of each pod. Source: kubernetes-sigs/karpenter:
    pkg/controllers/node/termination/terminator/terminator.go#DeleteExpiringPods.
    """
    pool = find(cluster, KARPENTER_NODE_POOL, "", node.labels.get(_POOL, ""))
    lasts = clock.since(node.metadata["deletionTimestamp"].text, cluster)
    if pool is None or lasts is None:
        return ""
    try:
        limit = timedelta(microseconds=parse_duration(pool.at(*_LIMIT).value) // 1000)
    except ValueError:
        return ""
    said = f"{_LIMIT[-1]} {pool.at(*_LIMIT).text} of NodePool {pool.name}"
    left = limit - lasts
    return f"by force in {clock.duration(left)} at the latest ({said})" if left > _NONE else ""


def _free(pod: Object, cluster: Cluster) -> str:
    """Return how a pod may leave: the VM migrates, or Karpenter may evict the pod again."""
    keep = f"do not remove finalizer {_KARPENTER}, which would kill it"
    vmi = _vmi(pod, cluster)
    if vmi is not None and vmis.migratable(vmi) is True:
        words = f"migrate the VM by hand, take {_KEPT} out of its template, and {keep}"
        return typed(words, virtctl("migrate", vmi.name, vmi.namespace))
    words = f"remove {_KEPT} once the pod may be disrupted, and {keep}"
    return typed(words, about("annotate", pod, POD, f"{_KEPT}-"))


def _vmi(pod: Object, cluster: Cluster) -> Object | None:
    if not is_launcher(pod) or unlisted(cluster, VMI):
        return None
    return find(cluster, VMI, pod.namespace, pod.owned_by(VMI.kind))


# --- the cluster autoscaler -----------------------------------------------------------------------


def _marked(node: Object, key: str, value: str, cluster: Cluster) -> Cordon:
    """Return the mark of the autoscaler, which it forgets where it restarts at that moment.

    At its start it takes such marks off the nodes of its groups, older releases only off those that
    are not cordoned (cluster-autoscaler/core/static_autoscaler.go#cleanUpIfRequired; pull request
    kubernetes/autoscaler#5200).
    """
    lasts, mark = clock.elapsed(_time(value), cluster), f"taint {key}"
    state = f"marked for deletion by the cluster autoscaler{clock.lasts(lasts)}"
    removal = Cordon(_BY_AUTOSCALER, ends=False, mark=mark, state=state)
    is_young = lasts is None or lasts < _FORGOTTEN
    if is_young or not node.is_true("Ready") or unlisted(cluster, POD):
        return removal
    if _leave(node, cluster):
        return removal
    cordoned = node.at("spec", "unschedulable").boolean is True
    uncordon = shell("kubectl", "uncordon", argument(node.name))
    waits = (
        "It is still Ready, its Node is not being deleted, and no pod on it ends: unless its "
        "--max-graceful-termination-sec is longer, the autoscaler has forgotten it. At its start "
        "it takes its marks back, older releases not those of cordoned nodes."
    )
    words = f"once the autoscaler's log shows that it does not delete {node.name}, remove {mark}"
    also = f" and uncordon it ({uncordon})" if cordoned else ""
    untaint = shell("kubectl", "taint", "nodes", argument(node.name), f"{key}-")
    return removal._replace(waits=waits, ends=None, remedy=typed(f"{words}{also}", untaint))


_BY_AUTOSCALER: Final = "the cluster autoscaler, which deletes it"


def _time(value: str) -> datetime | None:
    """Return the time in the value of a taint, in seconds since 1970."""
    try:
        return datetime.fromtimestamp(int(value), UTC) if value.isascii() else None
    except (ValueError, OverflowError, OSError):
        return None
