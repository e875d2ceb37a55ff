"""Hotplugged volumes that do not reach a guest that runs: the pod that attaches them is not placed,
or does not start.

kube-scheduler places the launcher pod without them, and the pod that attaches them must run on the
same node. Sources:
kubevirt/kubevirt:pkg/virt-controller/services/template.go#RenderHotplugAttachmentPodTemplate,
issues kubevirt/kubevirt#16945.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from virt_admit.forecasts.drain.guests import changed_disks, restart_guard
from virt_admit.forecasts.drain.starts import closed_nodes
from virt_admit.forecasts.drain.targets import awaited_volumes
from virt_admit.forecasts.placement import candidates, quotas, volume_attachments
from virt_admit.forecasts.placement.starts import pod_starts
from virt_admit.model.commands import argument, kubectl, merge_patch, shell, typed, virtctl
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import LIMIT_RANGE, POD, PVC, RESOURCE_QUOTA, VM, VMI
from virt_admit.model.kubernetes.nodes import HOSTNAME
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.kubevirt.launcher import claim_holders, launcher_pod, pod_refusals
from virt_admit.model.kubevirt.settings import versions
from virt_admit.model.kubevirt.settings.versions import Version
from virt_admit.model.lookups import find
from virt_admit.model.messages import cut_middle, shorten
from virt_admit.model.problems import Problem, ProblemCause
from virt_admit.model.scheduler import volumes
from virt_admit.model.scheduler.pods import claim_names

_LATE: Final = timedelta(minutes=5)
_LONGEST: Final = 200


def problem(vmi: Object, volume: str, claim: str, cluster: Cluster) -> Problem | None:
    """Return why a hotplugged volume of a VMI that runs is not attached; None: it is,
    or nothing says so yet.
    """
    if _is_ready(vmi, volume):
        return None
    pod = awaited_volumes.waiting(vmi, claim, cluster)
    if pod is None:
        return _refused(vmi, volume, cluster)
    pending = awaited_volumes.pending(pod, cluster)
    if not pending:
        return None
    waits = f"it is not attached: pod {pod.name} {pending}"
    if found := _out_of_reach(vmi, volume, claim, cluster):
        return found._replace(reason=f"{waits}, because {found.reason}")
    return _of_pod(vmi, pod, waits, unplug(vmi, volume, cluster), cluster)


def _is_ready(vmi: Object, volume: str) -> bool:
    """Return whether the guest has a hotplugged volume, whatever its pod does: virt-handler sets
    this phase once the domain names its target.
    """
    status = vmi.at("status", "volumeStatus").named(volume)
    return status["phase"].text == "Ready" and bool(status["target"].text)


def _kept(vmi: Object, volume: str, claim: str, cluster: Cluster) -> Problem | None:
    """Return why the pod of a volume that the guest has does not start again, as after an eviction;
    None: it runs, or it may soon.
    """
    pod = awaited_volumes.waiting(vmi, claim, cluster) if _is_ready(vmi, volume) else None
    pending = awaited_volumes.pending(pod, cluster) if pod is not None else ""
    if pod is None or not pending:
        return None
    kept = f"it is in the guest (phase Ready), but pod {pod.name}, which holds it on the node"
    return _of_pod(vmi, pod, f"{kept}, {pending}", "", cluster)


def _of_pod(vmi: Object, pod: Object, waits: str, unplugs: str, cluster: Cluster) -> Problem | None:
    """Return why a pod that attaches a volume waits.

    ``unplugs``: the command that unplugs the volume; empty: the guest has it.
    """
    node = vmi.at("status", "nodeName").text or ""
    said = (
        _PREEMPTION.sub("", pod.condition("PodScheduled")["message"].text or "")
        if not pod.at("spec", "nodeName").text
        else ""
    )
    if said and (taken := _taken(vmi, pod, said, cluster)):
        return taken._replace(reason=f"{waits}, because {taken.reason}")
    if said and (shut := closed_nodes.closed(vmi, pod, said, unplugs, cluster)):
        return Problem(f"{waits}, because {shut.reason}", shut.remedy, ProblemCause.NOT_REPORTED)
    if said:
        see = kubectl("describe", POD, pod.name, pod.namespace)
        way = typed(f"let {node} take pod {pod.name}", see)
        return Problem(
            f"{waits}: kube-scheduler says {shorten(said, _LONGEST)}",
            way,
            ProblemCause.NOT_REPORTED,
        )
    fault = pod_starts.fault(pod, cluster)
    if fault is None:
        return None
    return Problem(f"{waits}: {fault.words}", fault.remedy, ProblemCause.NOT_REPORTED)


_ONE_POD: Final = "ReadWriteOncePod"
"""Also in the words of kube-scheduler (pkg/scheduler/framework/plugins/volumerestrictions/
volume_restrictions.go#ErrReasonReadWriteOncePodConflict).
"""


def _taken(vmi: Object, pod: Object, said: str, cluster: Cluster) -> Problem | None:
    """Return which pod has a claim that one pod alone may use: virt-controller keeps the earlier
    pod of a VM until the next one, with all volumes, is ready
    (watch/vmi/volume-hotplug.go#cleanupAttachmentPods, kubevirt/kubevirt#18862).
    """
    for claim in claim_names(pod) if _ONE_POD in said else ():
        found = find(cluster, PVC, pod.namespace, claim)
        modes = found.at("spec", "accessModes").items() if found is not None else ()
        if all(mode.text != _ONE_POD for mode in modes):
            continue
        users = volume_attachments.users(pod.namespace, claim, cluster)
        holders = [each for each in users if each.at("status", "phase").text == "Running"]
        if (other := claim_holders.of_pods(holders, pod, cluster)) is not None:
            return Problem(f"{other.words}, and it is {_ONE_POD}", other.remedy)
        if holders and claim_holders.is_of(holders[0], vmi, cluster):
            kept = f"pod {holders[0].name} of this VM keeps claim {claim}, which is {_ONE_POD}"
            way = "restart the VM, which then attaches all its volumes with one pod"
            restart = typed(way, virtctl("restart", vmi.name, vms.namespace_of(vmi)))
            return Problem(
                f"{kept}, until the new pod is ready. This does not end by itself",
                changed_disks.safe(restart, vmi, cluster),
                ProblemCause.NOT_REPORTED,
            )
    return None


_PREEMPTION: Final = re.compile(r"\.? preemption: .*\Z", re.DOTALL)
"""What kube-scheduler adds about a pod that may displace none."""


def hotplugged(vmi: Object, cluster: Cluster) -> Iterator[tuple[int, str, Problem]]:
    """Yield the index and the name of each hotplugged volume of a VMI that is not attached, or
    whose pod is gone while the guest has it, with the reason.
    """
    for index, volume in enumerate(vmi.at("spec", "volumes").items()):
        claim, name = next(launcher_pod.claims_of(volume), None), volume["name"].text or ""
        if claim is None:
            continue
        found = problem(vmi, name, claim, cluster) or _kept(vmi, name, claim, cluster)
        if found is not None:
            yield index, name, found


def _refused(vmi: Object, volume: str, cluster: Cluster) -> Problem | None:
    """Return that the API server refuses the pod that is to attach a volume; None: it does not say
    so, or not for long.
    """
    said = vmi.condition("Synchronized")
    words = said["message"].words
    age = clock.since(said["lastTransitionTime"].text, cluster)
    if said["status"].text != "False" or _CREATES not in words or age is None or age < _LATE:
        return None
    own = vmi.at("status", "volumeStatus").named(volume)["hotplugVolume"]
    if not own.present or own["attachPodName"].text:
        return None
    why = cut_middle(_REFUSED.sub("", words), _LONGEST)
    by, remedy = _cause(vmi, words, cluster)
    reason = (
        f"it is not attached for {clock.duration(age)}: {by or 'the API server'} refuses the pod "
        f"that attaches it: {why}"
    )
    return Problem(reason, remedy, ProblemCause.NOT_REPORTED)


_CREATES: Final = "attachment pod"
"""What virt-controller says of it
(pkg/virt-controller/watch/vmi/volume-hotplug.go#createAttachmentPod).
"""
_REFUSED: Final = re.compile(r'^Error creating attachment pod:? |\bpods? "[\w.-]+" is forbidden: ')
_QUOTA: Final = re.compile(r"exceeded quota: ([\w.-]{1,253})|failed quota: ([\w.-]{1,253})")
_WEBHOOK: Final = re.compile(r'admission webhook "([\w.-]{1,253})" denied')


def _cause(vmi: Object, words: str, cluster: Cluster) -> tuple[str, str]:
    """Return which object refuses the pods that attach volumes,
    as its name and what is to be done about it.
    """
    namespace = vms.namespace_of(vmi)
    if quota := _QUOTA.search(words):
        name = quota[1] or quota[2]
        edit = kubectl("edit", RESOURCE_QUOTA, name, namespace)
        return f"ResourceQuota {namespace}/{name}", typed("raise the quota", edit)
    if denied := _WEBHOOK.search(words):
        listed = "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"
        return "", typed(
            f"let webhook {denied[1]} accept pods of type hotplug-disk in {namespace}", listed
        )
    if limited := quotas.refuses_attachment(vmi, cluster):
        found, why = limited
        edit = kubectl("edit", LIMIT_RANGE, found.name, namespace)
        return f"LimitRange {namespace}/{found.name} ({why})", typed(
            quotas.attachment_remedy(cluster), edit
        )
    if " per Container is " in words or " per Pod is " in words:
        edit = kubectl("edit", LIMIT_RANGE, "", namespace)
        return f"a LimitRange of {namespace}", typed(quotas.attachment_remedy(cluster), edit)
    if known := pod_refusals.remedy(vmi, words, cluster):
        return "", known
    return "", typed("correct what this names", kubectl("describe", VMI, vmi.name, namespace))


def _out_of_reach(vmi: Object, volume: str, claim: str, cluster: Cluster) -> Problem | None:
    """Return that the node of a VMI does not reach a claim; None: it does, or that is not known."""
    node = vmi.at("status", "nodeName").text or ""
    here = candidates.scheduler(cluster).state.nodes.get(node)
    try:
        found = volumes.claim(cluster, vms.namespace_of(vmi), claim)
    except Unseen:
        return None
    if here is None or not found.refusal(here.name, here.labels):
        return None
    where, remedy = f"{node} does not reach claim {claim}", "restart it on another node"
    command = unplug(vmi, volume, cluster)
    if (place := found.place) is not None:
        label = f"{HOSTNAME}={place.label.partition('=')[2]}" if place.is_node else place.label
        where = f"claim {claim} is {place.words} alone"
        remedy = f"restart the VM {place.words} (node selector {label})"
        if vmis.owner(vmi, VM.kind):
            return _elsewhere(vmi, where, label, command, cluster)
    return _apart(where, vmi, f"{remedy}; or {typed('unplug the volume', command)}")


def _elsewhere(vmi: Object, where: str, label: str, unplugs: str, cluster: Cluster) -> Problem:
    """Return that a VM has to be started where its volume is: a node selector brings it there, a
    restart alone may not.
    """
    key, _, value = label.partition("=")
    data = {"spec": {"template": {"spec": {"nodeSelector": {key: value}}}}}
    namespace = vms.namespace_of(vmi)
    then = f"which takes effect after its restart ({virtctl('restart', vmi.name, namespace)})"
    ways = f"give the VM node selector {label}, {then}; or unplug the volume ({unplugs})"
    remedy = typed(ways, merge_patch(VM, vmi.name, namespace, data))
    remedy = restart_guard.guarded(remedy, vmi, cluster)
    return _apart(where, vmi, changed_disks.safe(remedy, vmi, cluster))


def _apart(where: str, vmi: Object, remedy: str) -> Problem:
    node = vmi.at("status", "nodeName").text or ""
    why = "KubeVirt places a VM without regard to its hotplugged volumes"
    reason = f"{where}, and the VM runs on {node}: {why}. This does not end by itself"
    return Problem(reason, remedy, ProblemCause.NOT_REPORTED)


def unplug(vmi: Object, volume: str, cluster: Cluster) -> str:
    """Return the command that unplugs a volume: also from its VM if that names it, else KubeVirt
    would plug it in again.

    With ``DeclarativeHotplugVolumes`` alone virt-api refuses to change the VMI of a VM
    (kubevirt/kubevirt:pkg/virt-api/rest/ volumes.go#vmiVolumePatch), and virt-controller follows
    the VM (watch/vm/vm.go#handleDeclarativeVolumeHotplug). virtctl does so without ``--persist``
    from 1.8 on.
    """
    where = *_persist(vmi, volume, cluster), "-n", vms.namespace_of(vmi)
    return shell("virtctl", "removevolume", argument(vmi.name), f"--volume-name={volume}", *where)


def plug(vmi: Object, volume: str, claim: str, serial: str, cluster: Cluster) -> str:
    """Return the command that plugs a disk on bus scsi with a serial, as it is in the VMI; empty:
    ``virtctl addvolume`` cannot tell all of it, or no serial is known.

    Source: kubevirt/kubevirt:pkg/virtctl/vm/add_volume.go#addVolume.
    """
    disk = vms.vmi_spec(vmi).at("domain", "devices", "disks").named(volume)
    if not serial or set(disk.map) - _PLUGGABLE or set(disk["disk"].map) - {"bus"}:
        return ""
    cache = disk["cache"].text
    options = (f"--serial={serial}", *((f"--cache={cache}",) if cache else ()))
    where = *_persist(vmi, volume, cluster), "-n", vms.namespace_of(vmi)
    named = f"--volume-name={claim}"
    return shell("virtctl", "addvolume", argument(vmi.name), named, *options, *where)


_PLUGGABLE: Final = frozenset({"cache", "disk", "name", "serial"})


def _persist(vmi: Object, volume: str, cluster: Cluster) -> tuple[str, ...]:
    vm = vmis.known_vm(vmi, cluster)
    named = vm is not None and vms.vmi_spec(vm)["volumes"].named(volume).present
    return ("--persist",) if named and not versions.has_release(cluster, _PERSISTS) else ()


_PERSISTS: Final = Version(1, 8)
