"""Until when Cluster API drains a node that does not report: it waits for pods that are being
deleted, whose end no kubelet confirms.

It leaves such a pod out once its ``deletionTimestamp`` has passed, which includes the grace period:
five minutes later before 1.7.4, a second later from it on. The taint manager deletes pods with
their own grace period. 1.7.4 to 1.8 evict them again with one of a second, unless that is refused;
1.9 and later leave them as they are. Before 1.7.4 it waits then for the volumes that the node has
attached. Sources: kubernetes-sigs/cluster-api: internal/controllers/machine/machine_controller.go
#drainNode #shouldWaitForNodeVolumes (v1.7.3, v1.7.4), internal/controllers/machine/drain/drain.go
#EvictPods;
kubernetes/kubernetes: pkg/controller/volume/attachdetach/util/util.go#ProcessPodVolumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.endless import given_time_outs
from virt_admit.forecasts.drain.states.vm_states_times import moment
from virt_admit.forecasts.remediation.capi_releases import release
from virt_admit.model.kubernetes import clock, kinds, node_health
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import CAPI_MACHINE, NODE
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.lookups import find
from virt_admit.model.remediation import machine_drain

READS: Final[Reads] = union(
    clock.READS,
    node_health.READS,
    given_time_outs.READS,
    machine_drain.READS,
    {NODE: ("status.volumesAttached",)},
)
_FAST: Final = Version(1, 7, 4)
_LEAVES: Final = Version(1, 9)
UPDATE: Final = (
    f"update Cluster API to {_FAST} or later, which does not wait for the volumes of a dead node"
)
_LATE, _SOON = timedelta(minutes=5), timedelta(seconds=1)
NOT_AWAITED: Final = "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach"


class AwaitedPods(NamedTuple):
    """The pods that are being deleted and hold a drain now."""

    left: int
    """The seconds until the drain leaves the last of them out."""
    words: str
    """``waits until 11:51 UTC for pod shop/db (and 1 more), whose grace period of 60 min ends at
    11:46 UTC``
    """


def unreachable(node: str, cluster: Cluster) -> tuple[Object | None, bool]:
    """Return a node, and whether Cluster API takes it as unreachable, as it does one that is gone
    (controllers/noderefutil/util.go#IsNodeUnreachable).
    """
    found = find(cluster, NODE, "", node)
    return found, found is None or found.condition("Ready")["status"].text == "Unknown"


def awaited(
    pods: Iterable[Object],
    machine: Object,
    node: str,
    refused: Callable[[Object], bool],
    cluster: Cluster,
) -> AwaitedPods | None:
    """Return the pods for which the drain of an unreachable node waits now; None: for none that is
    known.

    Args:
        pods: those that a drain of the node evicts.
        machine: the one that is being deleted.
        node: its name.
        refused: whether KubeVirt refuses the eviction of a pod.
        cluster: the cluster.
    """
    if kinds.of(machine) is not CAPI_MACHINE or machine_drain.is_over(machine):
        return None
    if not (unreachable(node, cluster)[1] and node_health.silence_now(node, cluster)):
        return None
    runs, now = release(cluster), clock.now(cluster)
    again = runs is None or _FAST <= runs < _LEAVES
    stays = late(cluster)
    ends: list[tuple[datetime, Object]] = []
    for pod in pods:
        end = clock.instant(pod.metadata["deletionTimestamp"].text)
        if end is None or now is None or end + stays <= now or (again and not refused(pod)):
            continue
        kept = machine_drain.spared(pod, machine, cluster)
        if kept is None or kept.waits:
            ends.append((end, pod))
    if not ends or now is None:
        return None
    end, first = max(ends, key=lambda each: (each[0], each[1].full_name))
    grace = first.metadata["deletionGracePeriodSeconds"].integer
    period = f" of {clock.duration(timedelta(seconds=grace))}" if grace and grace < _MOST else ""
    also = f" (and {len(ends) - 1} more)" if ends[1:] else ""
    words = (
        f"waits until {moment(end + stays, now)} for pod {first.full_name}{also}, whose grace "
        f"period{period} ends at {moment(end, now)}, as no kubelet confirms its end and "
        f"{machine_drain.no_timeout(machine)}{f' (Cluster API {runs})' if runs else ''}"
    )
    return AwaitedPods(int((end + stays - now).total_seconds()), words)


_MOST: Final = 10**9


def late(cluster: Cluster) -> timedelta:
    """Return how long after its deletion time a pod of an unreachable node is left out."""
    runs = release(cluster)
    return _LATE if runs is not None and runs < _FAST else _SOON


def volumes(machine: Object | None, node: str, cluster: Cluster) -> str:
    """Return why the deletion of a Machine waits without a limit for the volumes of its dead node
    after the drain; empty: it does not, or that is not known.
    """
    if machine is None or kinds.of(machine) is not CAPI_MACHINE:
        return ""
    runs, attached = release(cluster), _attached(find(cluster, NODE, "", node))
    if runs is None or runs >= _FAST or not attached or NOT_AWAITED in machine.annotations:
        return ""
    if machine_drain.detach_timeout(machine) is not None:
        return ""
    why = machine_drain.no_timeout(machine, "nodeVolumeDetachTimeout")
    several = f"the {len(attached)} volumes" if attached[1:] else "the volume"
    return (
        f"for {several} that {node} has attached, which nothing detaches from a dead node while "
        f"its pods exist: {why}"
    )


def _attached(node: Object | None) -> Sequence[object]:
    return list(node.at("status", "volumesAttached").items()) if node is not None else ()
