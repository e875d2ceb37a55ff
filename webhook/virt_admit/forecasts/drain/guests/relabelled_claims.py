"""Files of a guest that another pod takes from it: a second pod on its node mounts the same claim.

ReadWriteOnce allows that. Each launcher has an SELinux level of its own, and a container runtime
labels all files of a volume for the container that it starts, unless that is privileged. QEMU then
gets errors. Block devices have a node in each container, and shares such as NFS take no labels, so
these are not affected. Sources:
kubevirt/kubevirt issue #10687, :pkg/virt-handler/vm.go#updateSELinuxContext ("none": off);
kubernetes/website:content/en/docs/tasks/configure-pod-container/security-context.md (Assign SELinux
labels to a Container); containers/container-selinux.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from virt_admit.forecasts.drain.guests import changed_disks, restart_guard
from virt_admit.forecasts.placement import volume_attachments
from virt_admit.model import pod_owners
from virt_admit.model.commands import kubectl, typed, virtctl
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import PVC, VM, VMI
from virt_admit.model.kubernetes.objects import Field, Object
from virt_admit.model.kubevirt.instances import vmis, vms
from virt_admit.model.kubevirt.launcher import vm_ledger
from virt_admit.model.lookups import csi_of, find
from virt_admit.model.problems import Problem

_HOTPLUG: Final = "hotplug-disk"
"""Such a pod has the level of its launcher (pkg/virt-controller/services/template.go
#matchSELinuxLevelOfVMI).
"""
_SOON: Final = timedelta(minutes=10)
_SHARE: Final = re.compile(r"(?i)nfs|smb|cifs|\befs\b|file(?!system)|fsx|gluster|manila|netapp")
"""Drivers of shares, some of which also have block devices."""


class RelabelledClaim(NamedTuple):
    """A claim of a guest whose files another pod has taken, or may have."""

    problem: Problem
    is_certain: bool
    """Whether that pod sets another SELinux level; else its runtime has chosen one."""


def of_claim(vmi: Object, claim: str, cluster: Cluster) -> RelabelledClaim | None:
    """Return which pod mounted a claim of a guest with another SELinux level before the guest was
    paused, and what gives the files back; None: none is known.
    """
    context = vmi.at("status", "selinuxContext").text or ""
    paused, own = vmi.condition("Paused"), ":".join(context.split(":")[3:])
    since = clock.instant(paused["lastTransitionTime"].text)
    if paused["status"].text != "True" or since is None or not own:
        return None
    pods = sorted(_others(vmi, claim, since, cluster), key=lambda pod: not _level(pod))
    for pod in pods:  # those that set a level first
        if (level := _level(pod)) != own:
            found = _problem(vmi, claim, pod, level, own, cluster)
            return RelabelledClaim(found, is_certain=bool(level))
    return None


def _others(vmi: Object, claim: str, since: datetime, cluster: Cluster) -> Iterator[Object]:
    """Yield the pods of others that were started with a claim on the node of a VMI, after its
    launcher and shortly before ``since``: QEMU gets errors as soon as the label is another one.
    """
    namespace, node = vms.namespace_of(vmi), vmi.at("status", "nodeName").text
    found = find(cluster, PVC, namespace, claim)
    if found is None or found.at("spec", "volumeMode").text == "Block":
        return
    driver = csi_of(found, cluster)["driver"].text
    if not driver or _SHARE.search(driver):
        return
    here = [
        (started, pod)
        for pod in volume_attachments.users(namespace, claim, cluster)
        if pod.at("spec", "nodeName").text == node
        and (started := clock.instant(pod.at("status", "startTime").text)) is not None
    ]
    own = [started for started, pod in here if vm_ledger.vmi_name(pod) == vmi.name]
    for started, pod in here:
        other = vm_ledger.vmi_name(pod) != vmi.name and pod.labels.get("kubevirt.io") != _HOTPLUG
        if (
            other
            and own
            and max(own) < started <= since <= started + _SOON
            and _is_labelled(pod, claim)
        ):
            yield pod


def _containers(pod: Object) -> Iterator[Field]:
    for container in pod.at("spec", "containers").items():
        yield container["securityContext"]


def _is_labelled(pod: Object, claim: str) -> bool:
    """Return whether a volume gets the label of a pod: not one that is read-only in its spec
    (kubernetes/kubernetes:pkg/volume/csi/csi_mounter.go#GetAttributes, Managed).
    """
    sources = (each["persistentVolumeClaim"] for each in pod.at("spec", "volumes").items())
    writes = any(
        each["claimName"].text == claim and each["readOnly"].boolean is not True for each in sources
    )
    return writes and not any(each["privileged"].boolean is True for each in _containers(pod))


def _level(pod: Object) -> str:
    """Return the SELinux level that a pod sets; empty: none, so that the runtime chooses one."""
    given = (pod.at("spec", "securityContext"), *_containers(pod))
    return next(filter(None, (each["seLinuxOptions"]["level"].text for each in given)), "")


def _problem(
    vmi: Object, claim: str, pod: Object, level: str, own: str, cluster: Cluster
) -> Problem:
    levels = ", which may have another SELinux level, as it sets none,"
    if level:
        levels = f" with another SELinux level ({level}, its launcher has {own})"
    since = clock.stamp(clock.instant(pod.at("status", "startTime").text))
    reason = f"pod {pod.full_name}{levels} mounts claim {claim} on its node too, since {since}"
    name, namespace = vmis.owner(vmi, VM.kind) or "", vms.namespace_of(vmi)
    if not level:
        see = f"see why the storage of claim {claim} does not answer"
        return Problem(reason, typed(see, kubectl("describe", VMI, vmi.name, namespace)))
    taken = pod_owners.taken_away(pod, cluster)
    restart = f" ({virtctl('restart', name, namespace)})" if name else ""
    remedy = (
        f"{taken}; once its pod has ended, restart the VM{restart}, which labels the files for its "
        f"launcher again{restart_guard.later(vmi, cluster)}. Back up a snapshot or a clone of the "
        "claim instead"
    )
    return Problem(reason, changed_disks.safe(remedy, vmi, cluster))
