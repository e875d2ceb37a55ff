"""The empty disks of a virtual machine may grow beyond what its pod may store on the node.

**Why.** KubeVirt keeps an ``emptyDisk`` in a volume of the launcher pod on the disk of the node.
The pod has no limit for ``ephemeral-storage`` of its own, so a LimitRange of the namespace sets
one, or the VM sets it. When the guest has written more than the limit, the kubelet evicts the pod:
the guest ends without a shutdown, and the run strategy starts it into the same end.

**Fix.** Set ``resources.limits`` and ``requests`` of ``ephemeral-storage`` in the VM above the size
of its empty disks, raise the default of the LimitRange, or use a claim instead.
"""

from virt_admit.model.kubernetes import kinds
from virt_admit.model.kubernetes.kinds import POOL, VM, VMI, VMIRS
from virt_admit.model.kubevirt.instances import expand, vmis, vms
from virt_admit.rule import Action, Context, Finding, Findings, Object, Unseen, gather, rule, union


@rule(
    kinds=(VM, POOL, VMIRS, VMI),
    reads=union(
        expand.READS,
        {
            kinds.KUBEVIRT: (),
            kinds.LIMIT_RANGE: ("spec",),
            kinds.NAD: ("metadata.annotations.k8s.v1.cni.cncf.io/resourceName",),
            kinds.NAMESPACE: ("metadata.labels",),
            kinds.RESOURCE_QUOTA: ("spec",),
        },
    ),
    action=Action.WARN,
    at_admission=False,
    sources=(
        (
            "kubernetes/kubernetes:pkg/kubelet/eviction/"
            "eviction_manager.go#podEphemeralStorageLimitEviction"
        ),
        (
            "kubevirt/kubevirt:pkg/virt-controller/services/"
            "renderresources.go#WithEphemeralStorageRequest"
        ),
        "https://github.com/kubevirt/kubevirt/issues/1663",
    ),
)
def check(obj: Object, context: Context) -> Findings:
    volumes = vms.vmi_spec(obj)["volumes"].items()
    if not any(volume["emptyDisk"].is_map for volume in volumes) or vmis.owner(obj, VM.kind):
        return  # of a VMI it is said about its VM, which is what a user edits
    # few VMs have empty disks
    from virt_admit.model.kubevirt.launcher import scratch_disks  # noqa: PLC0415
    from virt_admit.model.scheduler.resources import show  # noqa: PLC0415

    vmi = context.cached(expand.expand, obj)
    _, unseen = gather(context.cluster.list(kinds.LIMIT_RANGE, vms.namespace_of(obj)))
    if unseen or vmi.unseen:
        yield from map(Unseen, (*vmi.unseen, *filter(None, (unseen,))))
        return
    disks = [disk for disk in scratch_disks.growing(vms.vmi_spec(obj)) if disk.size]
    found = scratch_disks.limit(vmi, context.cluster)
    size = scratch_disks.total(disks)
    if not disks or found is None or found.size >= size:
        return
    largest = max(disks, key=lambda disk: disk.size)
    limit, grows = show(scratch_disks.STORAGE, found.size), show(scratch_disks.STORAGE, size)
    by = f"LimitRange {found.by}" if found.by else "resources.limits"
    what = (
        f"the empty disks may grow to {grows}, but {by} limits the pod to {limit} of "
        "ephemeral-storage"
    )
    path = largest.volume.at("emptyDisk", "capacity").path
    yield Finding(
        path,
        check.first_that_fits(
            path,
            f"{what}. Beyond that the kubelet evicts it. Set resources.limits.ephemeral-storage "
            f"above {grows}.",
            f"{what}: the kubelet evicts it. Set a limit above {grows}.",
            f"empty disks of {grows}, but the pod is evicted at {limit} of ephemeral-storage. "
            "Raise the limit.",
        ),
        value=f"{size} {found.size}",
    )
