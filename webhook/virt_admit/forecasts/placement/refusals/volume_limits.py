"""Nodes to which no more volumes of a CSI driver may be attached, and who holds them.

Source: kubernetes/kubernetes:pkg/scheduler/framework/plugins/nodevolumelimits/csi.go; the limit is
``allocatable.count`` of the driver in the CSINode, which the driver reports.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from virt_admit.forecasts.placement import candidates
from virt_admit.model.commands import pods_on, typed
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.lookups import find, grouped, maker_of
from virt_admit.model.messages import count, names
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler.pods import Pod
from virt_admit.model.scheduler.volumes import Volumes

_CAUSE: Final = re.compile(r"volumes of (\S+): (\d+) of (\d+) in use, needs (\d+)")


def of(refusals: Mapping[str, str], cluster: Cluster) -> Problem | None:
    """Return who holds the volumes of nodes that refuse a pod for their number alone, after a
    colon, and what helps; None: no node does, or nothing there holds them.
    """
    full = {name: found for name, why in refusals.items() if (found := _CAUSE.fullmatch(why))}
    held = {
        name: entry(cluster, _most, (name, found[1])) or ("", 0)
        for name, found in sorted(full.items())
    }
    if not all(number for _, number in held.values()) or len(full) < len(refusals):
        return None
    owners = grouped(held.items(), lambda each: each[1][0])
    said = [
        f"{who} holds {names(f'{number} on {name}' for name, (_, number) in there)}"
        for who, there in owners.items()
    ]
    name, found = min(full.items(), key=lambda each: (_over(each[1]), each[0]))
    amount = count(_over(found), "volume")
    way = f"take {amount} of {found[1]} away from {name} (move or stop pods that hold them)"
    further = f"or add a node, or {_raised(found[1])}"
    return Problem(f": {names(said)}", typed(way, pods_on(name), further))


def full(refusals: Mapping[str, str]) -> tuple[str, str]:
    """Return which nodes take no more volumes and lack nothing else, as a clause without the
    amounts of a pod, and what helps while other nodes stay away; both empty: none.
    """
    limited = {name: found for name, why in refusals.items() if (found := _CAUSE.fullmatch(why))}
    if not limited:
        return "", ""
    by_limit = grouped(sorted(limited), lambda name: (limited[name][1], limited[name][3]))
    said = (
        f"; too few of the {most} volumes of {driver} are left on {names(some, 60)}"
        for (driver, most), some in by_limit.items()
    )
    name, found = min(limited.items(), key=lambda each: (_over(each[1]), each[0]))
    amount = count(_over(found), "volume")
    way = (
        f"while that lasts, take {amount} of {found[1]} away from {name} (move or stop pods that "
        f"hold them), add a node, or {_raised(found[1])}"
    )
    return "".join(said), way


def _raised(driver: str) -> str:
    """Return how the limit of a driver is raised."""
    return f"raise the limit of the driver, if the machines take more{_SETTINGS.get(driver, '')}"


_SETTINGS: Final = {
    "csi.vsphere.vmware.com": (
        " (vSphere 8: MAX_VOLUMES_PER_NODE of its DaemonSet, above 59 before driver 3.2 only after "
        "max-pvscsi-targets-per-vm is true in ConfigMap "
        "internal-feature-states.csi.vsphere.vmware.com, from 3.7.1 high-pv-node-density there "
        "instead, on OpenShift maxAllowedBlockVolumesPerNode of its ClusterCSIDriver)"
    )
}
"""Source: kubernetes-sigs/vsphere-csi-driver:pkg/csi/service/node.go#NodeGetInfo, which fails for a
higher number than it allows, so that the node loses the driver;
openshift/vmware-vsphere-csi-driver-operator.
"""


def _over(found: re.Match[str]) -> int:
    used, limit, needed = map(int, found.groups()[1:])
    return used + needed - limit


def _most(cluster: Cluster) -> Mapping[tuple[str, str], tuple[str, int]]:
    """Return who holds the most volumes on each node of each driver, and how many. Each VM without
    a place asks for all full nodes.
    """
    scheduler = candidates.scheduler(cluster)
    found: dict[tuple[str, str], Counter[str]] = {}
    for node, pods in scheduler.state.pods.items():
        for pod in pods:
            drivers = list(_drivers(pod, scheduler.volumes))
            who = _holder(pod, cluster) if drivers else ""
            for driver in drivers:
                found.setdefault((node, driver), Counter())[who] += 1
    return {
        key: min(held.items(), key=lambda each: (-each[1], each[0])) for key, held in found.items()
    }


def _drivers(pod: Pod, volumes: Volumes) -> Iterator[str]:
    """Yield the driver of each claim of a pod, as far as they are known."""
    for claim in pod.claims:
        with contextlib.suppress(Unseen):
            if driver := volumes.claim(pod.namespace, claim).driver:
                yield driver


def _holder(pod: Pod, cluster: Cluster) -> str:
    found = find(cluster, POD, pod.namespace, pod.name)
    owner = maker_of(found, cluster) if found is not None else None
    if owner is None:
        return f"pod {pod.full_name}"
    return f"{owner['kind'].text} {pod.namespace}/{owner['name'].text}"
