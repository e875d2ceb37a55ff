"""virt-launcher pods without a VMI, whose eviction KubeVirt refuses, and those of which the VMI
says something else.

Source: kubevirt/kubevirt
pkg/virt-api/webhooks/validating-webhook/admitters/pod-eviction-admitter.go.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Final

from virt_admit.forecasts.placement.starts import pod_starts, started_pods
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, entry, more_may_exist
from virt_admit.model.kubernetes.kinds import NODE, POD, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import union
from virt_admit.model.kubevirt.instances import expand, lifecycle, vmis, vms
from virt_admit.model.kubevirt.instances.lifecycle import Eviction
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.kubevirt.launcher.launcher_pod import MIGRATION_JOB, is_launcher
from virt_admit.model.lookups import find

DOMAIN: Final = "kubevirt.io/domain"
"""Annotation of a virt-launcher pod: the name of its VMI."""
WHAT_BECOMES: Final = "what becomes of VM"
"""Begins what is not known of a guest although all of it was read."""

READS: Final = union(
    clock.READS,
    expand.STRATEGY_READS,
    pod_starts.READS,
    {
        POD: (
            *("metadata.labels", "metadata.creationTimestamp", f"metadata.annotations.{DOMAIN}"),
            *("metadata.ownerReferences", "spec.nodeName", "status.phase"),
        ),
        VMI: ("status.phase", "status.nodeName", "status.migrationState"),
    },
)

_SETTLED: Final = datetime.timedelta(minutes=10)
"""A younger pod may be of a VMI that did not exist yet when VMIs were listed:
a large cluster is not read at once.
"""


def lost_its_vmi(pod: Object, cluster: Cluster) -> bool:
    """Return whether a virt-launcher pod is known to have no VMI, although it has not ended.

    The webhook answers its eviction with code 429, so ``kubectl drain`` repeats it forever
    (pod-eviction-admitter.go#admitLauncherPod). It lets hotplug pods of such a pod go
    (#admitHotplugPod).
    """
    name = pod.annotations.get(DOMAIN)
    if not is_launcher(pod) or not name:
        return False
    age = clock.age(pod, cluster)
    try:
        if age is None:
            for unread in more_may_exist(cluster, NODE):  # their heartbeats are the clock
                raise unread
        elif age < _SETTLED:
            return False
        return cluster.get(VMI, pod.namespace, name) is None
    except Unseen:
        return False


def starting_guest(pod: Object, cluster: Cluster) -> Object | None:
    """Return the VMI of a pod that KubeVirt has not handed over to the node yet; None: it has,
    or that is not known.
    """
    vmi = find(
        cluster, VMI, pod.namespace, vm_ledger.vmi_name(pod) or pod.annotations.get(DOMAIN, "")
    )
    begun = (
        vmi is None
        or vmi.deleted
        or vmi.at("status", "nodeName").text
        or MIGRATION_JOB in pod.labels
    )
    return None if begun else vmi


def waiting_guest(pod: Object, cluster: Cluster) -> Object | None:
    """Return the VMI of a pod that has not started its containers: no guest runs in it. None: one
    may, or that is not known.
    """
    if pod.at("status", "phase").text != "Pending":  # nearly all: no VMI is looked up for them
        return None
    vmi = starting_guest(pod, cluster)
    begins = vmi is not None and vmi.at("status", "phase").text in ("Pending", "Scheduling")
    return vmi if begins else None


def goes_before_its_guest(pod: Object, cluster: Cluster) -> bool:
    """Return whether a drain evicts the pod of a VMI that starts,
    before KubeVirt has handed that over to the node.

    The webhook lets it go, unless the VMI has to migrate, which it cannot yet (#admitLauncherPod).
    No budget protects a Pending pod.
    """
    vmi = waiting_guest(pod, cluster)
    if vmi is None:
        return False
    fails = pod_starts.fault(pod, cluster) is not None
    if fails and started_pods.attachment_fault(pod, cluster) is None:
        return False  # what fails, such as the network plugin, may keep the pod from ending as well
    strategy = expand.strategy(vmi, cluster).value
    return lifecycle.eviction(strategy, vmis.migratable(vmi) is True) is Eviction.SHUTS_DOWN


def require_known_guest(pod: Object, cluster: Cluster) -> None:
    """Check that the VMI of a virt-launcher pod is known, and runs on the node of the pod or
    migrates from or to it.

    VMIs and pods are listed one after the other, and a folder may join snapshots of different
    times. What a drain does with a guest that is on no list cannot be determined.

    Raises:
        Unseen: the pod runs a guest of which nothing else is known here.
    """
    name = vm_ledger.vmi_name(pod) or pod.annotations.get(DOMAIN, "")
    if not is_launcher(pod) or pod.ended:
        return
    node = pod.at("spec", "nodeName").text
    here = entry(cluster, vmis.by_node, node or "") or ()
    if any(
        vmi.name == name and vms.namespace_of(vmi) == (pod.namespace or "default") for vmi in here
    ):
        return  # nearly all: no VMI is decoded for them
    try:
        vmi = cluster.get(VMI, pod.namespace, name)
    except Unseen:
        return  # the kind is not complete, which is a doubt of its own
    if vmi is None:
        raise Unseen(f"what becomes of pod {pod.full_name}: its VMI {name} was not listed")
    migration = vmi.at("status", "migrationState")
    known = (
        vmi.at("status", "nodeName").text,
        migration["sourceNode"].text,
        migration["targetNode"].text,
    )
    if node in known or MIGRATION_JOB in pod.labels or vmi.ended:
        return
    says = f"is on {known[0]}" if known[0] else "has no node yet"
    raise Unseen(f"{WHAT_BECOMES} {vmi.full_name}: its VMI {says}, its pod {pod.name} is on {node}")


def unknown_guests(pods: Iterable[Object], cluster: Cluster) -> Iterator[str]:
    """Yield what cannot be determined of the guests of these pods."""
    for pod in pods:
        if not pod.deleted and waiting_guest(pod, cluster) is None:
            try:
                require_known_guest(pod, cluster)
            except Unseen as unseen:
                yield unseen.what
