"""The empty disks of a virtual machine may grow beyond what its pod may store on the node.

**Why.** KubeVirt keeps an ``emptyDisk`` in a volume of the launcher pod on the disk of the node. The pod has no limit for
``ephemeral-storage`` of its own, so a LimitRange of the namespace sets one, or the VM sets it. When the guest has written more
than the limit, the kubelet evicts the pod: the guest ends without a shutdown, and the run strategy starts it into the same end.

**Fix.** Set ``resources.limits`` and ``requests`` of ``ephemeral-storage`` in the VM above the size of its empty disks, raise
the default of the LimitRange, or use a claim instead.
"""

from virt_admit.model.kubevirt.instances import expand, vmis, vms
from virt_admit.model.kubevirt.launcher import scratch_disks
from virt_admit.model.scheduler.resources import show
from virt_admit.rule import (
    LIMIT_RANGE,
    POOL,
    VM,
    VMI,
    VMIRS,
    Action,
    Context,
    Finding,
    Findings,
    Object,
    Unseen,
    first_that_fits,
    gather,
    rule,
)


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    reads=scratch_disks.READS,
    action=Action.WARN,
    at_admission=False,
    sources=(
        "kubernetes/kubernetes:pkg/kubelet/eviction/eviction_manager.go#podEphemeralStorageLimitEviction",
        "kubevirt/kubevirt:pkg/virt-controller/services/renderresources.go#WithEphemeralStorageRequest",
        "https://github.com/kubevirt/kubevirt/issues/1663",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    disks = [disk for disk in scratch_disks.growing(vms.vmi_spec(obj)) if disk.size]
    if not disks or vmis.owner(obj, VM.kind):  # said about the VM, which is what a user edits
        return
    vmi = context.cached(expand.expand, obj)
    _, unseen = gather(context.cluster.list(LIMIT_RANGE, vms.namespace_of(obj)))
    if unseen or vmi.unseen:
        yield from map(Unseen, (*vmi.unseen, *filter(None, (unseen,))))
        return
    found = scratch_disks.limit(vmi, context.cluster)
    size = scratch_disks.total(disks)
    if found is None or found.size >= size:
        return
    largest = max(disks, key=lambda disk: disk.size)
    limit, grows = show(scratch_disks.STORAGE, found.size), show(scratch_disks.STORAGE, size)
    by = f"LimitRange {found.by}" if found.by else "resources.limits"
    what = f"the empty disks may grow to {grows}, but {by} limits the pod to {limit} of ephemeral-storage"
    path = largest.volume.at("emptyDisk", "capacity").path
    yield Finding(
        path,
        first_that_fits(
            path,
            check.id,
            f"{what}. Beyond that the kubelet evicts it. Set resources.limits.ephemeral-storage above {grows}.",
            f"{what}: the kubelet evicts it. Set a limit above {grows}.",
            f"empty disks of {grows}, but the pod is evicted at {limit} of ephemeral-storage. Raise the limit.",
        ),
        value=f"{size} {found.size}",
    )
