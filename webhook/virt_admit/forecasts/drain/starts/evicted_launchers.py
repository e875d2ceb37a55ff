"""Launcher pods that a kubelet has evicted: the guest ends with the pod, and the run strategy
starts it into the same end.

Such a pod is Failed with the reason Evicted. No drain and no budget takes part. Sources:
kubernetes/kubernetes:pkg/kubelet/eviction/eviction_manager.go#localStorageEviction,
:pkg/kubelet/eviction/helpers.go; :plugin/pkg/admission/limitranger/admission.go;
kubevirt/kubevirt:pkg/virt-controller/services/renderresources.go #WithEphemeralStorageRequest (a
request of 50M, no limit), issue kubevirt/kubevirt#1663.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.states import vm_states_motion, vm_states_times
from virt_admit.model.commands import about, kubectl, typed
from virt_admit.model.kubernetes import clock, events, kinds
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import NODE, POD, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import expand, vms
from virt_admit.model.kubevirt.launcher import scratch_disks
from virt_admit.model.messages import cut_middle, names
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.resources import show

READS: Final[Reads] = union(
    clock.READS,
    scratch_disks.READS,
    {
        POD: (
            "metadata.creationTimestamp",
            "metadata.labels",
            "spec.nodeName",
            "status.phase",
            "status.reason",
            "status.message",
        )
    },
)

EVICTED: Final = "Evicted"
_LAUNCHER: Final = "virt-launcher-"
_GENERATED: Final = 5
"""Characters that the API server adds to ``generateName``, of which it keeps 58."""
_KEPT: Final = 58
_LONGEST: Final = 150
_STORAGE_LIMIT: Final = re.compile(
    r"(?:ephemeral local storage usage exceeds .{0,40}containers|exceeded its local ephemeral "
    r'storage limit) "?([0-9.]+\w{0,2})'
)
_NODE_LOW: Final = re.compile(r"node was low on resource: ([\w/-]{1,40})")


class LauncherEvictions(NamedTuple):
    """How often kubelets have evicted the pods of a VM,
    as far as its pods and their events tell.
    """

    message: str
    """Of the last one."""
    times: int
    last: datetime | None
    first: datetime | None
    node: str
    """The node of the last one; empty: not known."""


def of_vm(namespace: str, name: str, cluster: Cluster) -> LauncherEvictions | None:
    """Return the evictions of the pods of a VM by kubelets; None: none are known."""
    found: dict[str, tuple[datetime | None, str, str]] = {}
    key = namespace, f"{_LAUNCHER}{name}-"[:_KEPT]
    for event in cluster.cached(_evicted).get(key, ()):
        pod = event.at("involvedObject", "name").text or ""
        found.setdefault(
            pod, (events.time_of(event), event["message"].text or "", events.host(event))
        )
    for each in vm_states_motion.motion(cluster).pods.get((namespace, name), ()):
        if each.at("status", "reason").text == EVICTED:
            at = clock.instant(each.condition("DisruptionTarget")["lastTransitionTime"].text)
            said = each.at("status", "message").text or ""
            found[each.name] = (
                at or found.get(each.name, (None,))[0],
                said,
                each.at("spec", "nodeName").text or "",
            )
    if not found:
        return None
    ordered = sorted(found.values(), key=lambda row: row[0].isoformat() if row[0] else "")
    at, message, node = ordered[-1]
    return LauncherEvictions(
        " ".join(message.split()).rstrip("."), len(found), at, ordered[0][0], node
    )


def _evicted(cluster: Cluster) -> Mapping[tuple[str, str], Sequence[Object]]:
    """Return the events of evicted launcher pods by namespace and by the begin of their names,
    the newest first.
    """
    found: dict[tuple[str, str], list[Object]] = {}
    for event in events.newest_warnings(cluster):
        about = event["involvedObject"]
        name = about["name"].text or ""
        if event["reason"].text == EVICTED and name.startswith(_LAUNCHER):
            found.setdefault((about["namespace"].text or "default", name[:-_GENERATED]), []).append(
                event
            )
    return found


def problem(vm: Object, vmi: Object | None, cluster: Cluster) -> Problem | None:
    """Return that a kubelet evicted the last pod of a VM, why, and what keeps it from happening
    again; None: none is known.

    ``vm``: the VM, or a VMI without one.
    """
    found = of_vm(vms.namespace_of(vm), vm.name, cluster)
    if found is None or not _is_the_last_end(found, vm, vmi, cluster):
        return None
    because, remedy = _cause(vm, found, cluster)
    return Problem(f"{words(found, cluster)}: {because}", remedy, ProblemCause.NOT_REPORTED)


def _is_the_last_end(
    found: LauncherEvictions, vm: Object, vmi: Object | None, cluster: Cluster
) -> bool:
    """Return whether the last pod of a VM, or of its VMI, has ended by an eviction.

    An earlier one explains nothing now.
    """
    pods = vm_states_motion.pods(vm, cluster)
    newest = max(pods, key=lambda pod: pod.created, default=None)
    last = found.last
    if newest is not None and newest.at("status", "reason").text == EVICTED:
        last = last or clock.instant(newest.created)
    elif newest is not None and newest.ended:
        return False
    made = clock.instant(vmi.created) if vmi is not None else None
    now = clock.now(cluster)
    if last is None or (made is not None and last < made):
        return False
    return newest is not None or now is None or now - last < _RECENT


_RECENT: Final = timedelta(days=1)
"""Events are kept for an hour mostly."""


def words(found: LauncherEvictions, cluster: Cluster) -> str:
    """Return which kubelet evicted the pod of a VM, when and how often."""
    on = f" of {found.node}" if found.node else ""
    return f"the kubelet{on} evicted its pod{_times(found, cluster)}"


def _times(found: LauncherEvictions, cluster: Cluster) -> str:
    last = vm_states_times.ago(found.last, cluster)
    if found.times == 1:
        return last
    since = (
        f" within {clock.duration(found.last - found.first)}" if found.last and found.first else ""
    )
    return f"{last} ({found.times} times{since})"


def _cause(vm: Object, found: LauncherEvictions, cluster: Cluster) -> tuple[str, str]:
    said = cut_middle(found.message or "no reason is given", _LONGEST)
    if limited := _STORAGE_LIMIT.search(found.message):
        return _of_limit(vm, f"ephemeral storage above the limit of {limited[1]}", cluster)
    node = found.node or "its node"
    if low := _NODE_LOW.search(found.message):
        words = (
            f"free {low[1]} on {node}: see what runs there besides VMs; or let the VM request "
            "as much as it uses"
        )
        command = kubectl("describe", NODE, found.node) if found.node else ""
        return said, typed(words, command) if command else words
    command = (
        kubectl("describe", NODE, found.node)
        if found.node
        else about("describe", vm, kinds.of(vm) or VMI)
    )
    return said, typed(f"give it on {node} what this says it lacks, or let it use less", command)


def _of_limit(vm: Object, said: str, cluster: Cluster) -> tuple[str, str]:
    """Return that the pod wrote more to the node's disk than it may, what limits it,
    and which disks grow there.
    """
    limit = scratch_disks.limit(expand.expand(vm, cluster), cluster)
    disks = list(scratch_disks.growing(vms.vmi_spec(vm)))
    why = [f"LimitRange {limit.by} sets this limit for each new pod"] if limit and limit.by else []
    why += [f"{names(disk.words for disk in disks)} of the VM counts towards it"] if disks else []
    because = f"{said}. {', and '.join(why)}" if why else said
    size = scratch_disks.total(disks)
    above = f"above {show(scratch_disks.STORAGE, size)}" if size else "above what it writes"
    ways = [
        (
            f"set resources.limits.ephemeral-storage of the VM {above} (and requests, so that its "
            "node has that)"
        )
    ]
    if limit is not None and limit.by:
        ways.append(f"raise the default of LimitRange {limit.by}")
    return because, typed("; or ".join(ways), about("edit", vm, kinds.of(vm) or VMI))
