"""VMIs that have ended, and that Harvester's Job before a drain still counts as VMs on the node.

It counts by a label that a VMI keeps: releases before 1.2.2 count all phases, later ones all but
Succeeded. With run strategies that start no VM after a shutdown, KubeVirt keeps a VMI that has
ended. Sources: harvester/harvester:package/upgrade/upgrade_node.sh#get_running_vm_count
#wait_vms_out_or_shutdown (v1.2.1, v1.2.2); harvester/harvester#4725;
kubevirt/kubevirt:pkg/virt-controller/watch/vm/vm.go#syncRunStrategy (what KubeVirt does with a VM
without a VMI, and that Halted deletes the VMI and starts none).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, merge_patch, typed
from virt_admit.model.kubernetes import clock, workloads
from virt_admit.model.kubernetes.cluster import Cluster, Unseen
from virt_admit.model.kubernetes.kinds import HARVESTER_UPGRADE, JOB, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import migrations, vmis, vms
from virt_admit.model.kubevirt.settings.versions import Version, parse_version
from virt_admit.model.messages import capital, names

_NODE: Final = "kubevirt.io/nodeName"

READS: Final[Reads] = union(
    clock.READS,
    migrations.READS,
    vmis.READS,
    {
        HARVESTER_UPGRADE: ("spec.version",),
        JOB: ("spec.template.spec.containers.image",),
        VM: ("spec.runStrategy", "spec.running"),
        VMI: (f"metadata.labels.{_NODE}", "status.phase", "status.phaseTransitionTimestamps"),
    },
)
_PATIENCE: Final = timedelta(minutes=5)
"""KubeVirt deletes a VMI that has ended in seconds where it starts its VM again."""
_SINCE: Final = Version(1, 2, 2)
"""The first release that does not count the phase Succeeded."""
_ONCE: Final = "Once"
"""With it KubeVirt starts each VM that has no VMI: a guest that was to run once runs again."""
_STARTED: Final = ("Always", "RerunOnFailure")
_RECEIVER: Final = "WaitAsReceiver"
_BEFORE_DRAIN: Final = "-pre-drain-"


class CountedVmi(NamedTuple):
    """VMIs that have ended and keep the Job before a drain from its end."""

    vmi: str
    """The first of them."""
    words: str
    remedy: str


def of_job(order: Object, job: Object, node: str, cluster: Cluster) -> CountedVmi | None:
    """Return which VMIs a Job before a drain counts although they have ended; None: none."""
    found = list(_counted(order, job, node, cluster)) if _BEFORE_DRAIN in job.name else []
    if not found:
        return None
    vmi = found[0]
    phase = vmi.at("status", "phase").text or ""
    lasts = clock.lasting(_entered(vmi), cluster)
    words = (
        f"VMI {vmi.full_name}: its phase is {phase}{lasts}, but its label {_NODE} is {node}, and "
        "the Job counts it as a VM that runs there"
    )
    return CountedVmi(f"VMI {vmi.full_name}", words, _remedy(vmi, found[1:], cluster))


def _remedy(vmi: Object, others: Sequence[Object], cluster: Cluster) -> str:
    """Return what takes a VMI that has ended off its node, and then so others."""
    known = {each.full_name: _runs_once(each, cluster) for each in (vmi, *others)}
    once, plain, unread = (
        [each.full_name for each in others if known[each.full_name] is kind]
        for kind in (True, False, None)
    )
    does = "delete" if known[vmi.full_name] else "so for"
    unless = f"unless the run strategy of its VM is {_ONCE},"
    perhaps = f"then, {unless} {does} {names(unread)} (not read)" if unread else ""
    if not known[vmi.full_name]:
        halted = f"then set runStrategy Halted of the VMs of {names(once)}" if once else ""
        also = (f"then so for {names(plain)}" if plain else "", perhaps, halted)
        words = "Delete that VMI, which has ended"
        if known[vmi.full_name] is None:
            words = f"{capital(unless)} delete that VMI, which has ended"
        further = "; ".join(filter(None, also))
        return typed(f"{words}{_starts(vmi, cluster)}", about("delete", vmi, VMI), further)
    also = (
        f"then so for {names(once)}" if once else "",
        f"then delete {names(plain)}" if plain else "",
        perhaps,
    )
    halt = merge_patch(
        VM, vmis.owner(vmi, VM.kind) or vmi.name, vmi.namespace, {"spec": {"runStrategy": "Halted"}}
    )
    words = (
        "Set runStrategy Halted of its VM, with which KubeVirt deletes that VMI, which has ended. "
        f"Do not delete it yourself: with run strategy {_ONCE} KubeVirt then starts the VM again, "
        "which was to run once"
    )
    return typed(words, halt, "; ".join(filter(None, also)))


def _counted(order: Object, job: Object, node: str, cluster: Cluster) -> Iterator[Object]:
    release = _release(order, job)
    phases = {"Failed"} if release is None or release >= _SINCE else {"Failed", "Succeeded"}
    for vmi in sorted(cluster.known(VMI), key=lambda each: each.full_name):
        if (
            vmi.labels.get(_NODE) == node
            and vmi.at("status", "phase").text in phases
            and not vmi.deleted
            and clock.has_lasted(_entered(vmi), _PATIENCE, cluster)
        ):
            yield vmi


def _entered(vmi: Object) -> str | None:
    return migrations.entered(vmi, vmi.at("status", "phase").text or "")


def _release(order: Object, job: Object) -> Version | None:
    """Return the release whose script a Job runs; None: not known."""
    tags = workloads.image_tags(job.at("spec", "template", "spec"))
    known = (parse_version(each) for each in (*tags, order.at("spec", "version").text))
    return next(filter(None, known), None)


def _runs_once(vmi: Object, cluster: Cluster) -> bool | None:
    """Return whether KubeVirt would start the VM of a VMI again that was to run once; None: its VM
    was not read.
    """
    try:
        vm = vmis.owner_vm(vmi, cluster)
    except Unseen:
        return None
    return vm is not None and vms.run_strategy(vms.vm_spec(vm)) == _ONCE


def _starts(vmi: Object, cluster: Cluster) -> str:
    """Return what may start again once a VMI is deleted; empty: nothing does."""
    owner = vmi.controller
    if vmis.owner(vmi, VM.kind) is None:
        made = f"{owner['kind'].text} {owner['name'].text}" if owner is not None else ""
        return f" ({made}, which owns it, may then make it again)" if made else ""
    try:
        vm = vmis.owner_vm(vmi, cluster)
    except Unseen as unseen:
        return f" (whether its VM then starts cannot be determined: {unseen.what} was not read)"
    if vm is None:
        return ""
    strategy = vms.run_strategy(vms.vm_spec(vm))
    if strategy == _RECEIVER:
        return f" (with run strategy {strategy} KubeVirt then makes it again, for its migration)"
    if strategy not in _STARTED:
        return ""
    return f" (with run strategy {strategy} KubeVirt may then start its VM, on another node)"
