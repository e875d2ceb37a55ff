"""Deschedulers, which evict VMs although no node is drained, and do so again at each of their runs.

KubeVirt refuses the eviction of a launcher pod and migrates the VM. A descheduler that does not
evict in the background counts that as a failure and evicts the next VM. Sources:
kubernetes-sigs/descheduler:pkg/descheduler/evictions/ evictions.go#EvictPod,
#EvictionRequestInProgress;
openshift/runbooks:alerts/openshift-virtualization-operator/HCOMisconfiguredDescheduler.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from virt_admit.model.commands import merge_patch, typed
from virt_admit.model.kubernetes import events
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import KUBE_DESCHEDULER
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads

READS: Final[Reads] = {KUBE_DESCHEDULER: ("spec",)}

_FOR_VMS: Final = frozenset(("KubeVirtRelieveAndMigrate", "DevKubeVirtRelieveAndMigrate"))
"""The profiles that evict in background by themselves."""
_INTERVAL: Final = 3600
"""Seconds between two runs, where nothing is set
(openshift/cluster-kube-descheduler-operator:README.md).
"""
_COMPONENT: Final = "sigs.k8s.io/descheduler"


def evicts_in_foreground(descheduler: Object) -> bool:
    """Return whether a KubeDescheduler takes each VM that migrates for a pod that it failed to
    evict.
    """
    spec = descheduler["spec"]
    named = {item.text for item in spec["profiles"].items()}
    background = spec.at("profileCustomizations", "devEnableEvictionsInBackground").value is True
    evicts = spec["mode"].text == "Automatic"  # the default only predicts
    return bool(evicts and named and not named & _FOR_VMS and not background)


def evicted(pod: Object, cluster: Cluster) -> str:
    """Return the strategy for which a descheduler evicted a pod; empty: it did not,
    or no Event says so.
    """
    return cluster.cached(_evicted).get((pod.namespace, pod.name), "")


def _evicted(cluster: Cluster) -> Mapping[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for event in cluster.known(events.EVENT):
        about = event["involvedObject"]
        by = event.at("source", "component").text or event["reportingComponent"].text
        if by == _COMPONENT and about["kind"].text == "Pod":
            found[about["namespace"].text or "", about["name"].text or ""] = (
                event["reason"].text or "an eviction"
            )
    return found


def remedy(cluster: Cluster) -> str:
    """Return why a descheduler evicts more and more VMs, and what ends it; empty:
    none is known to do so.
    """
    wrong = sorted(
        filter(evicts_in_foreground, cluster.known(KUBE_DESCHEDULER)),
        key=lambda each: each.full_name,
    )
    if not wrong:
        return ""
    found = wrong[0]
    seconds = found.at("spec", "deschedulingIntervalSeconds").integer or _INTERVAL
    field = {"spec": {"profileCustomizations": {"devEnableEvictionsInBackground": True}}}
    return typed(
        f"{found.kind} {found.full_name} takes a VM that migrates for a failed eviction and evicts "
        f"the next one. That does not stop by itself: it begins again every {seconds} s. Let it "
        "evict in the background; or use the profile KubeVirtRelieveAndMigrate",
        merge_patch(KUBE_DESCHEDULER, found.name, found.namespace, field),
    )
