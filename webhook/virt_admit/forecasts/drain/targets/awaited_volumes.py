"""Hotplugged volumes whose pod waits, so that a migration would wait too.

A pod attaches all of them on the target as well, and KubeVirt goes on once that is ready. Source:
kubevirt/kubevirt:pkg/virt-controller/watch/migration/migration.go#processMigrationPhase.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.states import vm_states_motion, vm_states_times
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.launcher import launcher_pod
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler.pods import claim_names

_LATE: Final = timedelta(minutes=5)


def doubt(vmi: Object, cluster: Cluster) -> Problem | None:
    """Return which hotplugged volume keeps a migration from going on, wherever it goes; None: none
    does, as far as is known.
    """
    if not any(each["hotplugVolume"].is_map for each in vmi.at("status", "volumeStatus").items()):
        return None
    for volume in vmi.at("spec", "volumes").items():
        claim, name = next(launcher_pod.claims_of(volume), None), volume["name"].text or ""
        pod = waiting(vmi, claim, cluster) if claim is not None else None
        fault = pod_starts.fault(pod, cluster) if pod is not None else None
        if pod is None or fault is None or not fault.lasts or not pending(pod, cluster):
            continue
        reason = f"the target needs a pod that attaches volume {name}, and {fault.brief}"
        return Problem(reason, fault.remedy, ProblemCause.MIGRATION_FAILS)
    return None


def waiting(vmi: Object, claim: str, cluster: Cluster) -> Object | None:
    """Return the pod that is to attach a claim to the node of a VMI, unless one runs already."""
    motion, node = vm_states_motion.motion(cluster), vmi.at("status", "nodeName").text
    own = vm_states_motion.own_pods(vmi, cluster)
    here = [pod for pod in own if pod.at("spec", "nodeName").text == node]
    attaching = [
        pod
        for launcher in here
        for pod in motion.attachments.get(launcher.metadata["uid"].text or "-", ())
        if claim in claim_names(pod)
    ]
    found = [pod for pod in attaching if pod.at("status", "phase").text == vm_states_motion.PENDING]
    return found[-1] if len(found) == len(attaching) and found else None


def pending(pod: Object, cluster: Cluster) -> str:
    """Return that a pod waits, and for how long; empty: it has just been made."""
    created = clock.instant(pod.created)
    if not vm_states_times.is_older(created, _LATE, cluster):
        return ""
    return f"has been Pending for {vm_states_times.age(created, cluster)}"
