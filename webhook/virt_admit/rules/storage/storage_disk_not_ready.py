"""A disk of a Longhorn node is not ready.

**Why.** Longhorn places no new copy there, and uses no copy again that has failed there. Without
the disk, a volume with its last copy there is faulted. Of a backing image whose only copy is there,
no VM starts, on whatever node, and no volume can be made.

**Fix.** Bring the disk back: the right device at its path, with the UUID that Longhorn recorded. Of
backing images, keep copies on two disks or more (``minNumberOfCopies``).

Disks of a node that is not ready itself, or that are being emptied, are not reported.
"""

from virt_admit.forecasts.placement.components.longhorn import backing_images, longhorn_disks
from virt_admit.forecasts.placement.components.longhorn.longhorn_disks import LonghornDisk
from virt_admit.model.kubernetes import clock
from virt_admit.model.kubernetes.kinds import LONGHORN_NODE
from virt_admit.model.messages import advice_of, command_of
from virt_admit.rule import Action, Context, Finding, Findings, Object, Urgency, names, rule, union


@rule(
    kinds=(LONGHORN_NODE,),
    reads=union(clock.READS, backing_images.READS),
    action=Action.WARN,
    urgency=Urgency.STUCK,
    at_admission=False,
    sources=(
        "longhorn/longhorn-manager:controller/node_controller.go#updateReadyDisks",
        "longhorn/longhorn-manager:controller/node_controller.go#updateDiskStatusSchedulableCondition",
        "longhorn/longhorn-manager:controller/volume_controller.go#IsReplicaUnavailable",
        "https://github.com/harvester/harvester/issues/10453",
    ),
)
def check(node: Object, context: Context) -> Findings:
    for disk in longhorn_disks.of_node(node):
        fault = disk.fault(context.cluster)
        if not fault or longhorn_disks.is_new(disk, context.cluster):
            continue
        path, remedy = disk.ready["status"].path, disk.remedy()
        said, used = f"disk {disk.name} {fault}", _used(disk, context)
        message = check.first_that_fits(
            path, f"{said}{used}. {advice_of(remedy)}", f"{said}{used}.", f"{said}."
        )
        yield Finding(path, message, value=disk.uuid, command=command_of(remedy))


def _used(disk: LonghornDisk, context: Context) -> str:
    """Return which backing images are only there. Of volumes, Longhorn empties the list of a disk
    that is not ready.
    """
    images = names(backing_images.on_disk(disk.uuid, context.cluster))
    alone = f"; no other disk has a ready copy of backing image {images}, so no VM of it starts"
    return alone if images else ""
