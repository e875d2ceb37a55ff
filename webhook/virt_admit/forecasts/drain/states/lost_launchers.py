"""Running VMIs whose virt-launcher pods no longer exist: their guests do not run,
and a drain has nothing to evict.

virt-controller makes such a VMI Failed at its next look, so what follows is what follows a crash.
Source: kubevirt/kubevirt:pkg/virt-controller/watch/vmi/lifecycle.go#updateStatus.
"""

from __future__ import annotations

import datetime
from typing import Final, NamedTuple

from virt_admit.forecasts.placement import running_launchers
from virt_admit.model.kubernetes import clock, node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import POD, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.kubevirt.launcher.launcher_pod import is_launcher

READS: Final[Reads] = union(
    clock.READS,
    node_health.READS,
    vmis.READS,
    {
        VMI: ("status.activePods",),
        POD: ("metadata.labels", "metadata.ownerReferences", "metadata.uid"),
    },
)

REASON: Final = "its virt-launcher pod is gone, so the guest does not run"

_SETTLED: Final = datetime.timedelta(minutes=10)
"""The pod of a younger VMI may not have been listed yet: a large cluster is not read at once."""


def is_gone(vmi: Object, cluster: Cluster) -> bool:
    """Return whether a running VMI is known to have no pod, and so no guest.

    On a node that does not report, a pod that was deleted by force says nothing of its guest, which
    may run on.
    """
    silent = node_health.silence_now(vmi.at("status", "nodeName").text or "", cluster)
    return not silent and has_no_pod(vmi, cluster)


def has_no_pod(vmi: Object, cluster: Cluster) -> bool:
    """Return whether all pods of a running VMI are known not to exist.

    False also if that cannot be determined.
    """
    uids = vmi.at("status", "activePods").map
    if not uids or not vmis.running(vmi):
        return False
    launchers = running_launchers.launchers(cluster)
    if launchers.unseen or launchers.by_vmi.get((vms.namespace_of(vmi), vmi.name)):
        return False
    age = clock.age(vmi, cluster)
    if age is not None and age < _SETTLED:
        return False
    known = cluster.cached(_known_pods)
    return known.have_uids and known.uids.isdisjoint(uids)


class _KnownPods(NamedTuple):
    uids: frozenset[str]
    have_uids: bool
    """Whether every launcher pod has a UID, or the name of its VMI;
    older snapshots hold no UIDs.
    """


def _known_pods(cluster: Cluster) -> _KnownPods:
    launchers = [pod for pod in cluster.known(POD) if is_launcher(pod)]
    uids = frozenset(filter(None, (pod.metadata["uid"].text for pod in launchers)))
    return _KnownPods(
        uids, all(pod.metadata["uid"].text or vm_ledger.vmi_name(pod) for pod in launchers)
    )
