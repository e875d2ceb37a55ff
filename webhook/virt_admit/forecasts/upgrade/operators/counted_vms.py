"""VMIs that have ended, and that Harvester's Job before a drain still counts as VMs on the node.

It counts by a label that a VMI keeps: releases before 1.2.2 count all phases, later ones all but
Succeeded. With run strategies that start no VM after a shutdown, KubeVirt keeps a VMI that has
ended. Sources: harvester/harvester:package/upgrade/upgrade_node.sh#get_running_vm_count
#wait_vms_out_or_shutdown (v1.2.1, v1.2.2); harvester/harvester#4725;
kubevirt/kubevirt:pkg/virt-controller/watch/vm.go#startStop (RerunOnFailure without a VMI).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from virt_admit.model.commands import about, typed
from virt_admit.model.kubernetes import clock, workloads
from virt_admit.model.kubernetes.cluster import Cluster
from virt_admit.model.kubernetes.kinds import HARVESTER_UPGRADE, JOB, VM, VMI
from virt_admit.model.kubernetes.objects import Object
from virt_admit.model.kubernetes.reads import Reads, union
from virt_admit.model.kubevirt.instances import migrations, vmis, vms
from virt_admit.model.kubevirt.settings.versions import Version, parse_version
from virt_admit.model.messages import names

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
    others = f"then so for {names(each.full_name for each in found[1:])}" if found[1:] else ""
    remedy = f"Delete that VMI, which has ended{_starts(vmi, cluster)}"
    way = typed(remedy, about("delete", vmi, VMI), others)
    return CountedVmi(f"VMI {vmi.full_name}", words, way)


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


def _starts(vmi: Object, cluster: Cluster) -> str:
    """Return that KubeVirt may start the VM of a VMI that is deleted; empty: it does not."""
    vm = vmis.known_vm(vmi, cluster)
    strategy = vms.run_strategy(vms.vm_spec(vm)) if vm is not None else None
    if strategy not in ("Always", "RerunOnFailure"):
        return ""
    return f" (with run strategy {strategy} KubeVirt may then start its VM, on another node)"
