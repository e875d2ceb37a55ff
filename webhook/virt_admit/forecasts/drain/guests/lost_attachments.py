"""Hotplugged volumes that are no longer attached on the node where their guest runs.

The pod ``hp-volume-…`` holds such a volume on the node. No PodDisruptionBudget covers it, so that a
drain may evict it before its VM has migrated. The guest then gets an I/O error from storage that is
healthy. Sources: kubevirt/kubevirt#13523, harvester/harvester#7128 (stopping and starting the VM
ends it), harvester/harvester#7133.
"""

from __future__ import annotations

from collections.abc import Iterator

from virt_admit.forecasts.drain.guests import changed_disks, restart_guard
from virt_admit.model.commands import typed, virtctl
from virt_admit.model.kubernetes.cluster import Cluster, unlisted
from virt_admit.model.kubernetes.kinds import NODE, POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.lookups import find
from virt_admit.model.problems import Problem
from virt_admit.model.scheduler.pods import claim_names


def problem(vmi: Object, volume: str, cluster: Cluster) -> Problem | None:
    """Return that a hotplugged volume is not attached any more; None: it is, or is not known.

    Args:
        vmi: a VMI whose guest is paused by an I/O error.
        volume: the volume that has the error; empty: it is not known which one.
        cluster: what the pods are read from.
    """
    pods = cluster.known(POD, vms.namespace_of(vmi))
    here = {pod.metadata["uid"].text or "-" for pod in pods if _is_launcher(pod, vmi)}
    if not here or unlisted(cluster, POD):
        return None
    plugs = (pod for pod in pods if pod.labels.get("kubevirt.io") == "hotplug-disk")
    attaching = [pod for pod in plugs if here & set(_owners(pod))]
    for name, claim in _plugged(vmi):
        own = [pod for pod in attaching if claim in claim_names(pod)]
        if volume in ("", name) and not any(map(_holds, own)):
            return _lost(vmi, name, own, cluster)
    return None


def _is_launcher(pod: Object, vmi: Object) -> bool:
    """Return whether the guest of a VMI runs in a pod."""
    node = vmi.at("status", "nodeName").text
    is_there = pod.at("spec", "nodeName").text == node and _holds(pod)
    uid = vmi.metadata["uid"].text
    return is_there and bool(uid) and pod.labels.get(launcher_pod.CREATED_BY) == uid


def _owners(pod: Object) -> Iterator[str]:
    return (each["uid"].text or "" for each in pod.metadata["ownerReferences"].items())


def _plugged(vmi: Object) -> Iterator[tuple[str, str]]:
    """Yield the volumes that were plugged into a guest, each with its claim.

    KubeVirt leaves the phase ``Ready`` when the pod is lost.
    """
    states = vmi.at("status", "volumeStatus").items()
    ready = (each for each in states if each["phase"].text == "Ready")
    plugged = {each["name"].text for each in ready if each["hotplugVolume"].present}
    for volume in vmi.at("spec", "volumes").items():
        name = volume["name"].text or ""
        if name in plugged:
            yield from ((name, claim) for claim in launcher_pod.claims_of(volume))


def _holds(pod: Object) -> bool:
    return not pod.deleted and pod.at("status", "phase").text == "Running"


def _lost(vmi: Object, volume: str, pods: list[Object], cluster: Cluster) -> Problem:
    node, namespace = vmi.at("status", "nodeName").text or "", vms.namespace_of(vmi)
    found = find(cluster, NODE, "", node)
    shut = found is not None and found.at("spec", "unschedulable").boolean is True
    new = next((pod for pod in pods if not pod.deleted), None)
    waits = f"; its new pod {new.name} does not run" if new is not None else ""
    waits += f", as it must run on {node}, which is cordoned" if new is not None and shut else ""
    why = ", as a drain evicts such pods, which no PodDisruptionBudget covers" if shut else ""
    begin = f"hotplugged volume {volume} is no longer attached on {node}"
    room = f", and uncordon {node} before if no other node can take it" if shut else ""
    room = restart_guard.later(vmi, cluster) or room
    words = f"stop and start the VM, which attaches volume {volume} again{room}"
    way = typed(words, virtctl("restart", vmi.name, namespace))
    reason = f"{begin}: its pod hp-volume-… there has ended{why}{waits}"
    return Problem(reason, changed_disks.safe(way, vmi, cluster))
