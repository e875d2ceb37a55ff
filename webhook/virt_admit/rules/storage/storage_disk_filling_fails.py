"""CDI fails again and again to fill a DataVolume, and no running VM says so.

**Why.** The pod that imports, receives or copies the disk ends with an error, and is restarted
without an end. The phase stays ImportInProgress, which looks like progress. What waits for the
disk, such as an image or an upgrade of Harvester, waits without an end too. The same holds for a
pod whose scratch claim CDI does not make, as the API server refuses it. CDI before 1.57 names the
snapshot of a copy as the DataVolume, and waits without an end if another VolumeSnapshot has that
name.

**Fix.** Remove the cause that the finding names. If the claim is large enough, but an attempt that
was interrupted has left a part of the image there, a larger claim does not help: let the disk be
made again, so that it gets an empty claim.

Disks of VMs that should run are reported by vm-start-stuck.
"""

from collections.abc import Collection, Mapping

from virt_admit.forecasts.drain.starts import unfinished_disks
from virt_admit.forecasts.drain.starts.storage import copy_steps, partial_images
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.cluster import Cluster, Unseen, cached, gather
from virt_admit.model.kubernetes.kinds import DATA_VOLUME, VM
from virt_admit.model.kubevirt.instances import down_vms, vms
from virt_admit.model.messages import advice_of, command_of, ended
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, rule, union


@rule(
    kinds=(DATA_VOLUME,),
    reads=union(
        unfinished_disks.READS, down_vms.READS, clock.READS, {VM: ("spec.template.spec.volumes",)}
    ),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "kubevirt/containerized-data-importer:pkg/controller/datavolume/conditions.go"
        "#updateRunningCondition",
        "kubevirt/containerized-data-importer:pkg/importer/data-processor.go#convert",
        "https://github.com/harvester/harvester/issues/11729",
        "https://github.com/kubevirt/containerized-data-importer/issues/3679",
    ),
)
def check(disk: Object, context: Context) -> Findings:
    cluster = context.cluster
    unfilled = f"its disk {disk.name} is not filled"
    found = unfinished_disks.failing(disk, cluster) or copy_steps.taken(disk, unfilled, cluster)
    if found is None or _is_of_running(disk, cluster):
        return
    path = disk.metadata["name"].path
    lasting = clock.lasts(clock.age(disk, cluster))
    begin = f"CDI has not filled {_title(disk, cluster)}{lasting}: "
    advice, reason = advice_of(found.remedy), found.reason.partition(": ")[2]
    brief = (found.brief or reason).removeprefix(f"{unfilled}: ")
    message = check.first_that_fits(
        path,
        *(f"{begin}{ended(each)} {advice}" for each in (reason, brief)),
        f"{begin}{ended(brief)}",
    )
    yield Finding(path, message, value=disk.name, command=command_of(found.remedy))


def _title(disk: Object, cluster: Cluster) -> str:
    """Return what a disk is for, as far as its owners tell."""
    upgrade, owner = partial_images.upgrade_of(disk, cluster), disk.controller
    if upgrade is not None:
        return f"the image of Upgrade {upgrade.name}"
    return f"it for {owner['kind'].text} {owner['name'].text}" if owner is not None else "it"


def _is_of_running(disk: Object, cluster: Cluster) -> bool:
    """Whether a VM that should run names the disk.

    Raises:
        Unseen: there may be such a VM, as not all VMs could be read.
    """
    space = disk.namespace
    names, unseen = _named(cluster).get(space) or _named_in(space, cluster)
    if disk.name not in names and unseen:
        raise Unseen(unseen)
    return disk.name in names


@cached
def _named(cluster: Cluster) -> Mapping[str, tuple[Collection[str], str]]:
    """Return the disks that VMs name which should run, by namespace, and what was not read."""
    spaces = {disk.namespace for disk in cluster.known(DATA_VOLUME)}
    return {space: _named_in(space, cluster) for space in spaces}


def _named_in(namespace: str, cluster: Cluster) -> tuple[Collection[str], str]:
    known, unseen = gather(cluster.list(VM, namespace))
    volumes = (
        volume.at("dataVolume", "name").text or ""
        for vm in known
        if down_vms.should_run(vm)
        for volume in vms.vmi_spec(vm)["volumes"].items()
    )
    return frozenset(volumes), unseen
