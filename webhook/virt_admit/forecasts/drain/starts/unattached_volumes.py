"""Hotplugged volumes that do not reach a guest that runs: the pod that attaches them is not placed, or does not start.

kube-scheduler places the launcher pod without them, and the pod that attaches them must run on the same node. Sources:
kubevirt/kubevirt:pkg/virt-controller/services/template.go#RenderHotplugAttachmentPodTemplate, issues kubevirt/kubevirt#16945.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.states import vm_states_motion, vm_states_times
from virt_admit.forecasts.placement import candidates, pod_starts
from virt_admit.model.commands import argument, kubectl, shell, typed
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import POD
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vms
from virt_admit.model.messages import cut
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler import volumes
from virt_admit.model.scheduler.pod_terms import HOSTNAME

_LATE: Final = timedelta(minutes=5)
_LONGEST: Final = 200


def problem(vmi: Object, volume: str, claim: str, cluster: Cluster) -> Problem | None:
    """Return why a hotplugged volume of a VMI that runs is not attached; None: it is, or nothing says so yet."""
    pod = _waiting(vmi, claim, cluster)
    created = clock.instant(pod.metadata["creationTimestamp"].text) if pod is not None else None
    if pod is None or not vm_states_times.is_older(created, _LATE, cluster):
        return None
    node = vmi.at("status", "nodeName").text or ""
    waits = f"it is not attached: pod {pod.name} is Pending since {vm_states_times.age(created, cluster)}"
    if found := _out_of_reach(vmi, volume, claim, node, cluster):
        return found._replace(reason=f"{waits}, because {found.reason}")
    said = pod.condition("PodScheduled")["message"].text if not pod.at("spec", "nodeName").text else ""
    why = f"kube-scheduler says {cut(said, _LONGEST)}" if said else pod_starts.failure(pod, cluster)
    if not why:
        return None
    return Problem(
        f"{waits}: {why}",
        typed(f"remove what keeps pod {pod.name} off {node}", kubectl("describe", POD, pod.name, pod.namespace)),
        ProblemCause.NOT_REPORTED,
    )


def _waiting(vmi: Object, claim: str, cluster: Cluster) -> Object | None:
    """Return the pod that is to attach a claim to the node of a VMI, unless one runs already."""
    motion, node = vm_states_motion.motion(cluster), vmi.at("status", "nodeName").text
    own = motion.pods.get((vms.namespace_of(vmi), vmi.name), ())
    here = [pod for pod in own if vm_states_motion.is_of(pod, vmi) and pod.at("spec", "nodeName").text == node]
    attaching = [
        pod
        for launcher in here
        for pod in motion.attachments.get(launcher.metadata["uid"].text or "-", ())
        if any(
            each.at("persistentVolumeClaim", "claimName").text == claim for each in pod.at("spec", "volumes").items()
        )
    ]
    pending = [pod for pod in attaching if pod.at("status", "phase").text == vm_states_motion.PENDING]
    return pending[-1] if len(pending) == len(attaching) and pending else None


def _out_of_reach(vmi: Object, volume: str, claim: str, node: str, cluster: Cluster) -> Problem | None:
    """Return that the node of a VMI does not reach a claim; None: it does, or that is not known."""
    here = candidates.scheduler(cluster).state.nodes.get(node)
    try:
        found = volumes.claim(cluster, vms.namespace_of(vmi), claim)
    except Unseen:
        return None
    if here is None or not found.refusal(here.name, here.labels):
        return None
    where, there = f"{node} does not reach claim {claim}", "restart it on another node"
    if (place := found.place) is not None:
        label = f"{HOSTNAME}={place.label.partition('=')[2]}" if place.is_node else place.label
        where = f"claim {claim} is {place.words} alone"
        there = f"restart the VM {place.words} (node selector {label})"
    unplug = shell(
        "virtctl", "removevolume", argument(vmi.name), f"--volume-name={volume}", "-n", vms.namespace_of(vmi)
    )
    return Problem(
        f"{where}, and the VM runs on {node}. This does not end by itself",
        typed(f"{there}, or unplug the volume", unplug),
        ProblemCause.NOT_REPORTED,
    )
